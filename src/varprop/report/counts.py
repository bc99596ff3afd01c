"""How often each count occurs: a rootogram, for the report."""

from __future__ import annotations

import itertools

import numpy as np
from markupsafe import Markup

from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.count_diagnostics import Rootogram, rootogram
from varprop.predictive.diagnostics import chance_range
from varprop.report.charts import Figure
from varprop.report.numerals import ticks
from varprop.report.svg import Axis, Frame, element


def rootogram_figure(y: np.ndarray, prediction: AbstractNumeric) -> Figure:
    """Return the chart of how many rows had each count, beside how many should have."""
    found = rootogram(y, prediction)
    said = _finding(found)
    return Figure(
        "Does each count occur as often as stated?",
        _chart(found, f"Rootogram. {said}"),
        "Bars are rows by their count; squares are how many the stated distributions expect, with "
        "the range that chance allows. Heights are square roots, so that rare counts can be seen "
        "(a rootogram); the last bar holds all larger counts.",
        said,
        (("bar", "rows"), ("square", "expected"), ("chance", "95 % range of chance")),
    )


def _finding(found: Rootogram) -> str:
    more = found.observed > found.upper
    less = found.observed < found.lower
    if not (more | less).any():
        return f"All {len(found.value)} bars end where chance allows."
    said = []
    for rows, word in ((more, "more"), (less, "fewer")):
        if rows.any():
            values = [f"{v:.0f}" for v in found.value[rows][:5]]
            said.append(f"{word} than stated of {', '.join(values)}{', …' * bool(rows.sum() > 5)}")
    k, outside = len(found.value), int((more | less).sum())
    chance = outside <= chance_range(k, 0.05, 0.98)[1] * k
    return f"There are {' and '.join(said)}{', as chance may have it' * bool(chance)}."


def _chart(found: Rootogram, label: str) -> Markup:
    root = {
        name: np.sqrt(getattr(found, name)) for name in ("observed", "expected", "lower", "upper")
    }
    top = max(float(root["observed"].max()), float(root["upper"].max()))
    marks = [v for v in ticks(0.0, top, 5) if v == round(v)] or [0.0, top]
    x = Axis("count", -0.7, float(found.value[-1]) + 0.7)
    whole = [v for v in ticks(0.0, float(found.value[-1]), 6) if v == round(v)]
    x = Axis("count", x.low, x.high, tuple(whole), tuple(f"{v:.0f}" for v in whole))
    texts = tuple(f"{v * v:,.0f}" for v in marks)
    frame = Frame(x, Axis("number of rows", 0.0, 1.05 * top, tuple(marks), texts))
    floor, layers = float(frame.py(0.0)), []
    edges = frame.px(np.append(found.value - 0.45, found.value[-1] + 0.55)).tolist()
    width = min(b - a for a, b in itertools.pairwise(edges)) * 0.9
    bars = [
        element("rect", x=left, y=float(y), width=width, height=floor - float(y))
        for left, y in zip(edges, frame.py(root["observed"]), strict=False)
    ]
    layers.append(element("g", Markup("".join(bars)), class_="bars"))
    side = min(8.0, 0.7 * width)
    sides = (frame.py(root[name]).tolist() for name in ("expected", "lower", "upper"))
    for px, py, low, high in zip(frame.px(found.value).tolist(), *sides, strict=True):
        size = {"width": side + 2, "height": max(low - high, 0.5)}
        layers.append(element("rect", x=px - side / 2 - 1, y=high, **size, class_="chance"))
        box = {"x": px - side / 2, "y": py - side / 2, "width": side, "height": side}
        layers.append(element("rect", **box, class_="group"))
    return frame.draw(*layers, label=label)
