"""What a notebook shows: predictions as rows with a strip each, and what came of a fit.

Notebooks may drop style sheets and scripts of what they show, and are light or dark: styles stand
in the elements, and texts and grays are those of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from varprop.predictive.categories import Categories
from varprop.predictive.contract import AbstractNumeric
from varprop.report.numerals import number, percent, shortened
from varprop.report.svg import Axis, element, polyline

MAX_ROWS, MAX_OUTPUTS, MAX_CLASSES = 10, 3, 7
# Pixels of a strip, in how many cells its axis is cut, and what lies outside of it on either side.
_WIDTH, _HEIGHT, _CELLS, _TAIL = 300.0, 26.0, 120, 1e-3
_COVERAGE = 0.9
_BLUE, _SOFT = "#3b8fd0", "opacity:0.75"
# Okabe and Ito's colors, and gray for all other classes.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a97a8")


def prediction_html(prediction: AbstractNumeric | Categories) -> str:
    """Return the first rows of predictions as a table, with a strip for each.

    The strip of a number is thick where the target is likely, with the interval below it and a
    mark at the mean; all rows of a target share an axis. That of classes has a part for each.

    Parameters
    ----------
    prediction
        Of numbers, counts or classes.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> text = prediction_html(Predictive.gaussian([0.0, 5.0], [0.5, 1.0], 0.5))
    >>> text.count("<svg"), "90% interval" in text
    (2, True)
    """
    shown = prediction[: min(prediction.n_rows, MAX_ROWS)]
    if isinstance(shown, Categories):
        header, rows, more = _classes(shown)
    else:
        header, rows, more = _numbers(shown)
    if hidden := prediction.n_rows - shown.n_rows:
        more.append(f"{hidden:,} more rows")
    note = f"{prediction!r}{': ' if more else ''}{', '.join(more)}{' not shown' if more else ''}"
    return str(_table(header, rows) + element("div", note, style=f"font-size:85%;{_SOFT}"))


def fit_html(sentence: str, scores: Mapping[str, Mapping[str, float | str]]) -> str:
    """Return what came of a fit: a sentence, and a table of scores.

    Parameters
    ----------
    sentence
        How it ended.
    scores
        For every row of the table its columns, the same for all.

    Examples
    --------
    >>> fit_html("It converged.", {"linear": {"NLL": 1.2345}}).count("<td")
    2
    """
    header = ["", *next(iter(scores.values()), {})]
    rows = [
        [name, *(value if isinstance(value, str) else number(value) for value in own.values())]
        for name, own in scores.items()
    ]
    said = element("div", sentence, style="padding:4px 10px")
    return str(element("div", said, _table(header, rows), style="margin-top:0.6em"))


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    cell = "padding:2px 10px;white-space:nowrap;text-align:"
    sides = ["left", *["right"] * (len(header) - 1)]
    head = [
        element("th", name, scope="col", style=cell + side)
        for name, side in zip(header, sides, strict=True)
    ]
    body = [
        element("tr", *(element("td", c, style=cell + s) for c, s in zip(row, sides, strict=True)))
        for row in rows
    ]
    whole = element("thead", element("tr", *head)) + element("tbody", *body)
    return element("table", whole, style="border-collapse:collapse;text-align:right")


def _numbers(shown: AbstractNumeric) -> tuple[list[str], list[list[Any]], list[str]]:
    outputs = range(min(shown.n_outputs, MAX_OUTPUTS))
    header, columns = ["row"], list[list[Any]]([[str(row) for row in range(shown.n_rows)]])
    for output in outputs:
        one = shown.marginal([output])
        prefix = f"y{output} " if shown.n_outputs > 1 else ""
        lower, upper = (end[..., 0] if end.ndim == 2 else end for end in one.interval(_COVERAGE))
        mean, std = one.mean.reshape(-1), one.std.reshape(-1)
        ends = [f"{number(a)} to {number(b)}" for a, b in zip(lower, upper, strict=True)]
        low, high, strips = _strips(one, mean, lower, upper)
        header += [f"{prefix}mean", f"{prefix}std", f"{prefix}{_COVERAGE:.0%} interval"]
        header.append(f"{prefix}density, {number(low)} to {number(high)}")
        columns += [list(map(number, mean)), list(map(number, std)), ends, strips]
    hidden = shown.n_outputs - len(outputs)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return header, rows, [f"{hidden} more targets"] if hidden else []


def _strips(
    one: AbstractNumeric, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, float, list[Markup]]:
    """Return the ends of the axis, and a picture for each row of one target."""
    axis = Axis.around("", *(one.quantile(level) for level in (_TAIL, 1 - _TAIL)))
    low, high = axis.low, axis.high
    # Halves, since the range may be twice the largest float.
    edges = 2 * (low / 2 + np.linspace(0, 1, _CELLS + 1) * (high / 2 - low / 2))
    if one.is_discrete:  # a cell for each count, or for as many as there must be
        low = max(low, 0.0)
        step = max(1.0, np.ceil((high - low) / _CELLS))
        edges = np.arange(np.floor(low), np.ceil(high) + step, step) - 0.5
        axis = Axis("", float(edges[0]), float(edges[-1]))
    points = np.broadcast_to(edges, (*one.shape, len(edges)))
    mass = np.diff(one.cdf(points).reshape(one.n_rows, -1), axis=1)
    across = _WIDTH * axis.share(edges)
    strips = []
    for row in range(one.n_rows):
        top = mass[row].max()
        thick = 0.5 * (_HEIGHT - 6) * (mass[row] / top if top > 0 else mass[row])
        x = np.repeat(across, 2)[1:-1] if one.is_discrete else (across[1:] + across[:-1]) / 2
        y = np.repeat(thick, 2) if one.is_discrete else thick
        middle = (_HEIGHT - 6) / 2
        outline = [*zip(x, middle - y, strict=True), *zip(x[::-1], middle + y[::-1], strict=True)]
        a, b, m = (
            float(np.clip(_WIDTH * axis.share(end[row]), 0, _WIDTH)) for end in (lower, upper, mean)
        )
        label = f"from {number(lower[row])} to {number(upper[row])}, mean {number(mean[row])}"
        strips.append(
            _svg(
                label,
                element("g", polyline(outline, "d", end="Z"), fill=_BLUE, fill_opacity="0.55"),
                _line(a, _HEIGHT - 3, b, _HEIGHT - 3, _BLUE),
                _line(m, 1.0, m, _HEIGHT - 6, "currentColor"),
            )
        )
    return low, high, strips


def _line(x: float, y: float, to_x: float, to_y: float, color: str) -> Markup:
    return element("line", x1=x, y1=y, x2=to_x, y2=to_y, stroke=color, stroke_width="2")


def _svg(label: str, *parts: Markup) -> Markup:
    view = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    size = {"width": f"{_WIDTH:g}", "height": f"{_HEIGHT:g}"}
    style = "display:block;max-width:none"
    return element("svg", *parts, viewBox=view, **size, style=style, role="img", aria_label=label)


def _classes(shown: Categories) -> tuple[list[str], list[list[Any]], list[str]]:
    largest = np.argsort(-shown.proba.mean(axis=0), kind="stable")[:MAX_CLASSES]
    named = np.sort(largest) if shown.n_classes <= MAX_CLASSES else np.sort(largest[:-1])
    names = [shortened(str(shown.classes[k]), 20) for k in named]
    hidden = shown.n_classes - len(names)
    keyed = [*names, f"{hidden} others"] if hidden else names  # those have the last color, gray
    entropy, mode, rows = shown.entropy(), shown.mode, []
    for row in range(shown.n_rows):
        shares = shown.proba[row, named]
        widths = _WIDTH * np.append(shares, max(1 - shares.sum(), 0.0))
        left = np.append(0.0, np.cumsum(widths))
        bars = [
            element(
                "rect",
                element("title", f"{name} {percent(width / _WIDTH)}"),
                **{"x": float(x), "y": 3.0, "width": float(width), "height": _HEIGHT - 6},
                fill=color,
            )
            for name, x, width, color in zip(keyed, left, widths, _COLORS, strict=False)
            if width >= 0.05
        ]
        label = ", ".join(f"{n} {percent(p)}" for n, p in zip(names, shares, strict=True))
        best = [shortened(str(mode[row]), 20), percent(shown.proba[row].max())]
        rows.append([str(row), *best, number(entropy[row]), _svg(label, *bars)])
    keys = [
        element("span", element("span", "■", style=f"color:{color}"), f" {name}  ")
        for name, color in zip(keyed, _COLORS, strict=False)
    ]
    legend = Markup("").join(keys)
    return ["row", "predicted", "probability", "entropy", legend], rows, []
