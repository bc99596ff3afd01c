"""Where the model is unsure: the stated spread along each input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from varprop.predictive.diagnostics import equal_groups
from varprop.report.numerals import number, shortened
from varprop.report.svg import Axis, Frame, element, is_skewed, polyline

MISSING = "(missing)"
OTHER = "(other)"


def _is_missing(value: object) -> bool:
    """None, NaN, and pandas' NA and NaT, without importing pandas."""
    not_a_number = isinstance(value, float) and value != value
    return value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType")


@dataclass(frozen=True)
class Column:
    """One input as it stood in the table: numbers (NaN where missing) or words."""

    name: str
    values: np.ndarray

    @classmethod
    def read(cls, name: str, values: object) -> Column:
        """Take numbers as numbers and everything else as words."""
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"The input {name!r} must be one column, not of shape {array.shape}.")
        if array.dtype.kind in "iuf":
            return cls(name, array.astype(np.float64))
        if array.dtype.kind == "O":
            try:
                blank = [np.nan if _is_missing(v) else v for v in array]
                if not any(isinstance(v, str | bool | bytes) for v in blank):
                    return cls(name, np.asarray(blank, np.float64))
            except (TypeError, ValueError):
                pass
        words = [MISSING if _is_missing(v) else str(v) for v in array.tolist()]
        return cls(name, np.asarray(words, dtype=str))

    @property
    def is_number(self) -> bool:
        """Whether the values are numbers."""
        return self.values.dtype.kind == "f"

    def text(self, row: int) -> str:
        """Return one value as it is shown."""
        value = self.values[row]
        if self.is_number:
            return MISSING if np.isnan(value) else number(value, 4)
        return shortened(str(value), 80)

    def key(self, row: int) -> float | str | None:
        """Return what a page sorts by: a number, nothing if it is missing, None for words."""
        if not self.is_number:
            return None
        value = float(self.values[row])
        return value if np.isfinite(value) else ""


def by_importance(columns: Iterable[Column], important: Iterable[str]) -> list[Column]:
    """Return inputs, those that are named first and in that order, the others as they stood."""
    place = {name: i for i, name in enumerate(important)}
    return sorted(columns, key=lambda column: place.get(column.name, len(place)))


@dataclass(frozen=True)
class Region:
    """Groups of rows along one input with the root mean variances stated there.

    `model` is None where the model part is not told apart; `log` is whether sizes tell values of
    the input apart better than places on a line.
    """

    name: str
    at: np.ndarray
    labels: tuple[str, ...] | None
    total: np.ndarray
    model: np.ndarray | None
    count: np.ndarray
    missing: int = 0
    log: bool = False

    @property
    def title(self) -> str:
        """The name, that its axis is logarithmic, and how many rows have no value."""
        scale = ", log scale" if self.log else ""
        return self.name + scale + (f" ({self.missing:,} missing)" if self.missing else "")

    @property
    def change(self) -> float:
        """How much the stated spread differs between groups."""
        return float(self.total.max() - self.total.min())


def _groups(column: Column) -> tuple[list[np.ndarray], np.ndarray, tuple[str, ...] | None]:
    """Return rows, positions, and labels if the groups are not numbers."""
    values = column.values
    if column.is_number:
        present = np.flatnonzero(np.isfinite(values))
        if not len(present):
            return [np.arange(len(values))], np.zeros(1), (MISSING,)
        bins = int(np.clip(len(present) // 15, 1, 8))
        rows = [present[group] for group in equal_groups(values[present], bins)]
        return rows, np.array([np.median(values[group]) for group in rows]), None
    words, count = np.unique(values, return_counts=True)
    most = words[np.argsort(-count, kind="stable")]
    top = most if len(most) <= 6 else most[:5]
    rows = [np.flatnonzero(values == word) for word in top]
    labels = [str(word) for word in top]
    if len(most) > len(top):
        rows.append(np.flatnonzero(~np.isin(values, top)))
        labels.append(OTHER)
    return rows, np.arange(len(rows), dtype=np.float64), tuple(labels)


def regions(columns: list[Column], total: np.ndarray, model: np.ndarray | None) -> list[Region]:
    """Return the groups of every input, those with the largest change first."""
    size = float(total.max()) or 1.0

    def roots(values: np.ndarray, groups: list[np.ndarray]) -> np.ndarray:
        return np.array([size * np.sqrt(np.mean((values[rows] / size) ** 2)) for rows in groups])

    found = []
    for column in columns:
        groups, at, labels = _groups(column)
        count = np.array([len(rows) for rows in groups])
        log = (
            labels is None
            and (at > 0).sum() > 1
            and is_skewed(column.values[np.isfinite(column.values)])
        )
        found.append(
            Region(
                name=column.name,
                at=at,
                labels=labels,
                total=roots(total, groups),
                model=None if model is None else roots(model, groups),
                count=count,
                missing=len(total) - int(count.sum()),
                log=bool(log),
            )
        )
    return sorted(found, key=lambda region: -region.change)


def panel(region: Region, top: float) -> Markup:
    """Draw one input; all panels share the scale of the spread, which is across for words."""
    spread = Axis.around("", [top], zero=True)
    drawn = [region.total] if region.model is None else [region.total, region.model]
    if region.labels is None:
        along = (Axis.sizes if region.log else Axis.around)("", region.at)
        frame = Frame(along, spread, 210.0, 150.0, 44.0, 10.0, 8.0, 24.0, x_ticks=3, y_ticks=3)
        total, *model = (frame.points(region.at, v) for v in drawn)
    else:
        k = len(region.labels)
        short = tuple(shortened(word, 10) for word in region.labels)
        along = Axis("", k - 0.5, -0.5, tuple(region.at.tolist()), short)
        frame = Frame(spread, along, 210.0, 150.0, 72.0, 10.0, 8.0, 24.0, x_ticks=3, y_ticks=k)
        total, *model = (frame.points(v, region.at) for v in drawn)
    layers = []
    if region.labels is None and len(total) > 1:
        layers = [polyline(total, "curve"), *(polyline(part, "curve model") for part in model)]
    layers += [element("circle", cx=a, cy=b, r=3.5, class_="total") for a, b in total]
    layers += [
        element("rect", x=a - 5, y=b - 5, width=10.0, height=10.0, class_="model")
        for part in model
        for a, b in part
    ]
    words = "; ".join(
        f"{number(at) if region.labels is None else region.labels[i]}: "
        + ", ".join(number(values[i]) for values in drawn)
        for i, at in enumerate(region.at)
    )
    parts = " and its model part" if model else ""
    return frame.draw(*layers, label=f"Stated spread{parts} along {region.name}: {words}.")
