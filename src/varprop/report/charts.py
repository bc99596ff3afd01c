"""The charts of the report, drawn in Python as SVG."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup

from varprop.predictive.diagnostics import CalibrationCurve, ErrorByStd, PITHistogram
from varprop.report.numerals import number, shortened, ticks
from varprop.report.svg import (
    Axis,
    Frame,
    coordinate,
    element,
    is_skewed,
    polyline,
)


@dataclass(frozen=True)
class Figure:
    """A chart with its words: how to read it, what it shows here, and what its marks mean."""

    title: str
    svg: Markup
    how: str
    finding: str = ""
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Points:
    """The rows of one target that are drawn, in the order in which arrow keys visit them."""

    target: int
    observed: np.ndarray
    predicted: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def outside(self) -> np.ndarray:
        """Which observed values fell outside their interval."""
        return (self.observed < self.lower) | (self.observed > self.upper)


def _dots(frame: Frame, x: np.ndarray, y: np.ndarray, outside: np.ndarray) -> Markup:
    """Circles, and diamonds for what fell outside; one element per row, in order."""
    marks = []
    for (px, py), out in zip(frame.points(x, y), outside.tolist(), strict=True):
        if out:
            at = f"{coordinate(px)} {coordinate(py)}"
            marks.append(element("path", d=f"M{at}m-4 0l4-4 4 4-4 4z", class_="out"))
        else:
            marks.append(element("circle", cx=px, cy=py, r=3))
    return element("g", Markup("".join(marks)), class_="points")


def predicted_observed(points: Points, *, name: str, coverage: str) -> Markup:
    """Predicted values with intervals over observed ones."""
    short = shortened(name, 25)
    x_values = (points.observed, points.predicted)
    y_values = (*x_values, points.lower, points.upper)
    axis = Axis.sizes if is_skewed(points.observed) else Axis.around
    x, y = axis(f"observed {short}", *x_values), axis(f"predicted {short}", *y_values)
    frame = Frame(x, y, height=340.0)
    low, high = max(x.low, y.low), min(x.high, y.high)
    ends = np.array([low, high])
    layers = []
    for outside in (False, True):
        rows = points.outside == outside
        lower = frame.points(points.observed[rows], points.lower[rows])
        upper = frame.py(points.upper[rows]).tolist()
        spans = [(*start, end) for start, end in zip(lower, upper, strict=True)]
        d = "".join(f"M{coordinate(a)} {coordinate(b)}V{coordinate(c)}" for a, b, c in spans)
        if d:
            layers.append(element("path", d=d, class_="span out" if outside else "span"))
    layers.append(_dots(frame, points.observed, points.predicted, points.outside))
    layers.append(polyline(frame.points(ends, ends), "ideal"))
    label = f"Predicted against observed {name}, {len(points.observed)} rows, {coverage} intervals."
    return frame.draw(*layers, label=label, target=points.target)


def calibration(curve: CalibrationCurve, label: str) -> Markup:
    """Observed over stated coverage with the range that chance allows."""
    at = tuple(k / 5 for k in range(6))
    texts = tuple(f"{20 * k} %" for k in range(6))
    x = Axis("stated coverage of the interval", 0.0, 1.0, at, texts)
    y = Axis("observed values inside", 0.0, 1.0, at, texts)
    frame = Frame(x, y, height=340.0)
    level = np.concatenate([[0.0], curve.level, [1.0]])
    low, high = (np.concatenate([[0.0], v, [1.0]]) for v in (curve.lower, curve.upper))
    return frame.draw(
        frame.band(level, low, high, "band"),
        polyline(frame.points([0.0, 1.0], [0.0, 1.0]), "ideal"),
        polyline(frame.points(curve.level, curve.observed), "curve"),
        label=label,
    )


def pit(histogram: PITHistogram, label: str) -> Markup:
    """Bars of the probability integral transform with the range that chance allows."""
    x = Axis("stated probability of a lower value", 0.0, 1.0)
    y = Axis.around("number of rows", histogram.counts, [histogram.upper], zero=True)
    whole = tuple(v for v in ticks(y.low, y.high) if v == round(v))
    y = replace(y, tick_values=whole, tick_texts=tuple(f"{v:,.0f}" for v in whole))
    frame = Frame(x, y)
    floor, bars = float(frame.py(0.0)), []
    edges, tops = frame.px(histogram.edges).tolist(), frame.py(histogram.counts).tolist()
    for (left, right), top in zip(itertools.pairwise(edges), tops, strict=True):
        bars.append(element("rect", x=left + 1, y=top, width=right - left - 2, height=floor - top))
    ends = [0.0, 1.0]
    expected = float(histogram.counts.sum()) / len(histogram.counts)
    return frame.draw(
        element("g", Markup("".join(bars)), class_="bars"),
        frame.band(ends, [histogram.lower] * 2, [histogram.upper] * 2, "band over"),
        polyline(frame.points(ends, [expected, expected]), "ideal"),
        label=label,
    )


def error_against_std(points: Points, groups: ErrorByStd, label: str) -> Markup:
    """Size of the error over the stated standard deviation, row by row and in groups."""
    error = np.abs(points.observed - points.predicted)
    names = "stated standard deviation", "size of the error"
    if is_skewed(points.std):
        x = Axis.sizes(names[0], points.std, groups.stated)
        y = Axis.sizes(names[1], points.std / 10, error, groups.upper)
    else:
        x = Axis.around(names[0], points.std, groups.stated)
        y = Axis.around(names[1], error, groups.error, groups.upper, zero=True)
    frame = Frame(x, y)
    ends = np.clip([x.low, x.high], max(x.low, y.low, 0.0), min(x.high, y.high))
    layers = [_dots(frame, points.std, error, points.outside)]
    if ends[0] < ends[1]:
        layers.append(polyline(frame.points(ends, ends), "ideal"))
    for px, py, low, high in zip(
        frame.px(groups.stated).tolist(),
        *(frame.py(y).tolist() for y in (groups.error, groups.lower, groups.upper)),
        strict=True,
    ):
        size = {"width": 10.0, "height": max(low - high, 0.5)}
        layers.append(element("rect", x=px - 5, y=high, **size, class_="chance"))
        layers.append(element("rect", x=px - 4, y=py - 4, width=8.0, height=8.0, class_="group"))
    return frame.draw(*layers, label=label, target=points.target)


def training_curve(loss: np.ndarray) -> tuple[Markup, bool]:
    """Return the loss by epoch, and whether its beginning was cut so that the rest can be seen."""
    epoch = np.arange(1, len(loss) + 1, dtype=np.float64)
    seen = np.isfinite(loss)
    epoch, loss = epoch[seen], loss[seen]
    if len(loss) > 400:
        keep = np.unique(np.linspace(0, len(loss) - 1, 400).round().astype(int))
        epoch, loss = epoch[keep], loss[keep]
    # The first epochs often are orders of magnitude above the rest.
    top = float(loss[len(loss) // 20 :].max())
    cut = bool(loss.max() > top)
    x = Axis("epoch", 0.0, float(max(epoch[-1], 1)))
    frame = Frame(x, Axis.around("training loss", np.minimum(loss, top)))
    line = polyline(frame.points(epoch, np.minimum(loss, top)), "curve")
    [(cx, cy)] = frame.points(epoch[-1:], loss[-1:])
    last = element("circle", cx=cx, cy=cy, r=4, class_="end")
    label = f"Training loss from {number(loss[0])} to {number(loss[-1])} in {epoch[-1]:.0f} epochs."
    return frame.draw(line, last, label=label), cut
