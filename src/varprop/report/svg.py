"""A very small SVG writer: elements that escape what they are given, and a frame with two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup, escape

from varprop.report.numerals import (
    log_ticks,
    number,
    shortened,
    tick_labels,
    ticks,
    to_precision,
)

Values = Sequence[float] | np.ndarray
#: Lines that tell bars apart where there is no color.
HATCH = Markup(
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0V6" class="hatch"/></pattern></defs>'
)
BAR_WIDTH = 380.0
_NARROW, _WIDE = frozenset(" .,:;'|!()[]/-iIjlftr"), frozenset("mwMW@%—…∞≤×QO")


def coordinate(value: float) -> str:
    """Return a coordinate in tenths of a pixel; anything not finite is a bug and refused."""
    if not math.isfinite(value):
        raise ValueError(f"A chart was asked to draw at {value}.")
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """Return ``<tag ...>children</tag>`` with texts escaped.

    ``class_`` means class, ``stroke_width`` means stroke-width; None leaves an attribute out.

    Examples
    --------
    >>> print(element("text", "a < b", x=1.25, class_="tick"))
    <text x="1.2" class="tick">a &lt; b</text>
    """
    parts = []
    for name, value in attributes.items():
        if value is not None:
            shown = coordinate(value) if isinstance(value, float) else escape(str(value))
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{shown}"')
    inside = "".join(escape(child) for child in children)
    end = f">{inside}</{tag}>" if children else "/>"
    return Markup(f"<{tag}{''.join(parts)}{end}")


def polyline(points: Iterable[tuple[float, float]], class_: str, end: str = "") -> Markup:
    """Return a line through points in pixels; the end "Z" closes it to a filled shape."""
    path = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return element("path", d=f"M{path}{end}", class_=class_)


def text_width(text: str, size: float = 11.0) -> float:
    """Return about how many pixels a text takes, in a wide font (DejaVu Sans).

    Examples
    --------
    >>> round(text_width("330,031")), round(text_width("row")), round(text_width("WWW"))
    (47, 22, 33)
    """
    parts = [
        0.4 if letter in _NARROW else 0.64 if ord(letter) < 0x2E80 and letter not in _WIDE else 1.0
        for letter in text
    ]
    return size * sum(parts)


def fitting(text: str, room: float, size: float = 11.0) -> str:
    """Return as much of a text as has room, with a sign that it goes on.

    Examples
    --------
    >>> fitting("number customer service calls", 110.0, 12.0), fitting("age", 110.0, 12.0)
    ('number custo…', 'age')
    """
    most = min(len(text), int(room / (0.4 * size)) + 1)
    while most > 1 and text_width(shortened(text, most), size) > room:
        most -= 1
    return shortened(text, most)


def bar_chart(parts: Iterable[Markup], height: float, label: str) -> Markup:
    """Return a picture of bars, `BAR_WIDTH` wide, without axes."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {BAR_WIDTH:g} {height:g}",
        class_="chart importance",
        role="img",
        aria_label=label,
    )


def _with_offset(label: str, offset: float) -> str:
    return f"{label} less {to_precision(offset, abs(offset) * 1e-9)}" if offset else label


def is_skewed(values: Values) -> bool:
    """Return whether values of one sign are told apart better by their sizes than on a line.

    That is, 95 of 100 positive ones span a decade, most of them near its low end, and their
    logarithms are more even. Quantiles decide, so that one huge value does not.

    Examples
    --------
    >>> is_skewed(np.geomspace(1, 1000, 50)), is_skewed(np.linspace(1, 1000, 50))
    (True, False)
    """
    values = np.asarray(values, np.float64)
    positive = values[values > 0]
    if len(positive) < 10 or values.min() < 0:
        return False

    def lean(low: float, middle: float, high: float) -> float:
        return abs((high - middle) - (middle - low)) / (high - low)

    marks = np.quantile(positive / positive.max(), [0.025, 0.5, 0.975])
    if not marks[2] > 10 * marks[0] > 0:
        return False
    return bool(lean(*marks) > max(0.4, lean(*np.log(marks))))


@dataclass(frozen=True)
class Axis:
    """An axis: what it is called, from where to where it goes, and whether it is logarithmic.

    A logarithmic one shows what lies below its low end at that end, marked as such if `cut`.
    """

    label: str
    low: float
    high: float
    tick_values: tuple[float, ...] | None = None
    tick_texts: tuple[str, ...] | None = None
    log: bool = False
    cut: bool = False

    @classmethod
    def sizes(cls, label: str, typical: Values, *others: Values) -> Axis:
        """Return a logarithmic axis from the smaller typical values to the largest value of all."""
        everything = np.concatenate([typical, *others], dtype=np.float64)
        typical = np.asarray(typical, np.float64)
        typical = typical[typical > 0]
        low = max(float(typical.min()), float(np.quantile(typical, 0.025)) / 10) / 1.3
        high = 1.3 * min(float(everything.max()), float(np.finfo(np.float64).max) / 1.3)
        return cls(
            f"{label}, log scale" if label else "",
            low,
            high,
            log=True,
            cut=bool(everything.min() < low),
        )

    @classmethod
    def around(cls, label: str, *values: Values, zero: bool = False) -> Axis:
        """Return the axis that holds all values with some room; never of zero length."""
        everything = np.concatenate([np.asarray(v, np.float64).ravel() for v in values])
        low, high = float(everything.min()), float(everything.max())
        low = min(low, 0.0) if zero else low
        half = high / 2 - low / 2
        if half <= 4 * np.finfo(np.float64).eps * max(abs(low), abs(high)):
            half = abs(high) / 10 or 0.5
        room = 0.1 * half
        top = float(np.finfo(np.float64).max)
        bottom = low if zero and low == 0.0 else max(low - room, -top)
        return cls(label, bottom, min(high + room, top))

    def share(self, values: Values | float) -> np.ndarray:
        """Return where values are, 0 at the low end and 1 at the high end."""
        if self.log:
            sizes = np.log(np.maximum(values, self.low)) - np.log(self.low)
            return np.asarray(sizes / (np.log(self.high) - np.log(self.low)))
        # Halves, since a range may be twice the largest float.
        length = self.high / 2 - self.low / 2
        return np.asarray((np.asarray(values, np.float64) / 2 - self.low / 2) / length)

    def marks(self, about: int) -> tuple[list[float], list[str], float]:
        """Return tick positions, their texts, and what has been subtracted in the texts."""
        if self.tick_values is not None and self.tick_texts is not None:
            return list(self.tick_values), list(self.tick_texts), 0.0
        if self.log:
            at = log_ticks(self.low, self.high, about)
            texts = [number(value) for value in at]
            if self.cut:  # beside a tick that is near there would be no room
                far = [i for i in range(len(at)) if self.share(at[i]) > 0.12]
                at = [self.low, *(at[i] for i in far)]
                texts = [f"≤ {number(self.low, 1)}", *(texts[i] for i in far)]
            return at, texts, 0.0
        at = ticks(self.low, self.high, about)
        size = max(abs(self.low), abs(self.high))
        if 0 < at[-1] - at[0] < 1e-5 * size:  # digits that all ticks share would fill the chart
            return at, tick_labels([value - at[0] for value in at]), at[0]
        return at, tick_labels(at), 0.0


@dataclass(frozen=True)
class Frame:
    """A drawing area with axes; turns data into pixels."""

    x: Axis
    y: Axis
    width: float = 380.0
    height: float = 300.0
    left: float = 58.0
    right: float = 14.0
    top: float = 12.0
    bottom: float = 46.0
    x_ticks: int = 5
    y_ticks: int = 5

    @cached_property
    def gutter(self) -> float:
        """Room on the left: as much as the texts there need."""
        longest = max(map(text_width, self.y.marks(self.y_ticks)[1]), default=0.0)
        return max(self.left, (24.0 if self.y.label else 10.0) + longest)

    @cached_property
    def end(self) -> float:
        """Where the area ends on the right: half of the last text below it needs room as well."""
        at, texts, _ = self.x.marks(self.x_ticks)
        ends = [self.width - self.right]
        for share, text in zip(self.x.share(at).tolist(), texts, strict=True):
            if share > 0.5:
                room = self.width - text_width(text) / 2 - 1 - self.gutter
                ends.append(self.gutter + room / share)
        return max(min(ends), self.gutter + 1)

    def px(self, values: Values | float) -> np.ndarray:
        """Return horizontal pixels."""
        return np.asarray(self.gutter + self.x.share(values) * (self.end - self.gutter))

    def py(self, values: Values | float) -> np.ndarray:
        """Return vertical pixels."""
        length = self.height - self.top - self.bottom
        return np.asarray(self.height - self.bottom - self.y.share(values) * length)

    def points(self, x: Values, y: Values) -> list[tuple[float, float]]:
        """Return pixels of data points."""
        return list(zip(self.px(x).tolist(), self.py(y).tolist(), strict=True))

    def band(self, x: Values, low: Values, high: Values, class_: str) -> Markup:
        """Return the area between two curves."""
        around = [*self.points(x, low), *reversed(self.points(x, high))]
        return polyline(around, class_, end="Z")

    def axes(self) -> Markup:
        """Return grid lines, ticks and labels."""
        right, floor = self.end, self.height - self.bottom
        parts = []

        def line(d: str, class_: str) -> None:
            parts.append(element("path", d=d, class_=class_))

        def write(text: str, x: float, y: float, class_: str, anchor: str = "middle", **more: str):
            style = {"class_": class_, "text_anchor": anchor, **more}
            parts.append(element("text", text, x=x, y=y, **style))

        at_y, texts_y, offset_y = self.y.marks(self.y_ticks)
        at_x, texts_x, offset_x = self.x.marks(self.x_ticks)
        for at, text in zip(self.py(at_y).tolist(), texts_y, strict=True):
            line(f"M{self.gutter:.1f} {at:.1f}H{right:.1f}", "grid")
            write(text, self.gutter - 6, at + 4, "tick", "end")
        written = -np.inf
        for at, text in zip(self.px(at_x).tolist(), texts_x, strict=True):
            line(f"M{at:.1f} {floor:g}v4", "axis")
            half = text_width(text) / 2
            if at - half > written:  # else it would run into the one before it
                write(text, at, floor + 17, "tick")
                written = at + half + 2
        line(f"M{self.gutter:.1f} {floor:g}H{right:.1f}", "axis")
        middle, height = (self.gutter + right) / 2, (self.top + floor) / 2
        write(_with_offset(self.x.label, offset_x), middle, self.height - 8, "label")
        upward = f"rotate(-90 13 {height:g})"
        write(_with_offset(self.y.label, offset_y), 13.0, height, "label", transform=upward)
        return Markup("".join(parts))

    def draw(self, *layers: Markup, label: str, target: int | None = None) -> Markup:
        """Return the whole picture; with a target, its points can be stepped through."""
        interactive = target is not None
        return element(
            "svg",
            self.axes(),
            *layers,
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            class_="chart pick" if interactive else "chart",
            role="group" if interactive else "img",
            aria_roledescription="chart" if interactive else None,
            aria_label=label + (" Arrow keys step through the rows." if interactive else ""),
            tabindex=0 if interactive else None,
            data_target=target,
        )
