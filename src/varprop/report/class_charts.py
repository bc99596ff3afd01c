"""The charts of a report on classes, drawn in Python as SVG."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from varprop.predictive.class_diagnostics import ROC, Reliability
from varprop.report.numerals import number, percent, shortened
from varprop.report.svg import Axis, Frame, element, polyline

#: Classes that a confusion matrix shows; the others are one row and one column more.
MOST_SHOWN = 10
OTHER = "(other)"
_PARTS = tuple(k / 5 for k in range(6))
_PERCENTS = tuple(f"{20 * k} %" for k in range(6))


def _share_axis(label: str) -> Axis:
    return Axis(label, 0.0, 1.0, _PARTS, _PERCENTS)


def reliability_chart(found: Reliability, *, x: str, y: str, label: str) -> Markup:
    """Shares that came true over stated probabilities, with the range that chance allows."""
    frame = Frame(_share_axis(x), _share_axis(y), height=340.0)
    layers = [polyline(frame.points([0.0, 1.0], [0.0, 1.0]), "ideal")]
    sides = (found.observed, found.lower, found.upper)
    pixels = (frame.px(found.stated).tolist(), *(frame.py(side).tolist() for side in sides))
    for px, py, low, high in zip(*pixels, strict=True):
        size = {"width": 10.0, "height": max(low - high, 0.5)}
        layers.append(element("rect", x=px - 5, y=high, **size, class_="chance"))
        layers.append(element("rect", x=px - 4, y=py - 4, width=8.0, height=8.0, class_="group"))
    return frame.draw(*layers, label=label)


def _thinned(found: ROC, most: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return at most so many points, among them the ends."""
    keep = np.unique(np.linspace(0, len(found.true) - 1, most).round().astype(int))
    return found.false[keep], found.true[keep]


def roc_chart(found: ROC, label: str) -> Markup:
    """Rows of the class that are found over others that are taken for it."""
    x, y = "of the other rows taken for it", "of its rows found"
    frame = Frame(_share_axis(x), _share_axis(y), height=340.0)
    ideal = polyline(frame.points([0.0, 1.0], [0.0, 1.0]), "ideal")
    return frame.draw(ideal, polyline(frame.points(*_thinned(found)), "curve"), label=label)


def roc_panel(found: ROC, label: str) -> Markup:
    """Draw the same in small, as one of several."""
    axis = Axis("", 0.0, 1.0, (0.0, 0.5, 1.0), ("0", "50 %", "100 %"))
    frame = Frame(axis, axis, 210.0, 170.0, 44.0, 16.0, 8.0, 24.0, x_ticks=3, y_ticks=3)
    ideal = polyline(frame.points([0.0, 1.0], [0.0, 1.0]), "ideal")
    return frame.draw(ideal, polyline(frame.points(*_thinned(found)), "curve"), label=label)


def merged_confusion(counts: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """Return the matrix of the most frequent classes, in their order, and of all others as one.

    Examples
    --------
    >>> matrix, names = merged_confusion(np.eye(12, dtype=int), [str(k) for k in range(12)])
    >>> names[-1], matrix.shape, int(matrix[-1, -1]), int(matrix.sum())
    ('(other)', (10, 10), 3, 12)
    """
    if len(names) <= MOST_SHOWN:
        return counts, names
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    kept = np.sort(order[: MOST_SHOWN - 1])
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    matrix = np.zeros((len(kept) + 1,) * 2, int)
    np.add.at(matrix, (place[:, None], place[None, :]), counts)
    return matrix, [*(names[k] for k in kept), OTHER]


def told_apart(names: list[str], most: int) -> list[str]:
    """Return names of at most so many characters; by their ends where beginnings are alike.

    Examples
    --------
    >>> told_apart(["class number 1", "class number 2"], 6), told_apart(["spring", "fall"], 4)
    (['…ber 1', '…ber 2'], ['spr…', 'fall'])
    """
    short = [shortened(name, most) for name in names]
    if len(set(short)) == len(set(names)):
        return short
    return [name if len(name) <= most else f"…{name[len(name) + 1 - most :]}" for name in names]


def confusion_chart(counts: np.ndarray, names: list[str], label: str) -> Markup:
    """Rows by observed class (down) and predicted class (across), each row of the chart shaded."""
    k, width, left = len(names), 380.0, 88.0
    side = (width - left - 4) / k
    tall, most = min(side, 64.0), max(int((side - 4) / 6.6), 1)
    steep = max(len(name) for name in names) > most
    top = 88.0 if steep else 38.0
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, 1)
    middle, down = {"class_": "label", "text_anchor": "middle"}, top + tall * k / 2
    parts = [
        element("text", "predicted", x=left + side * k / 2, y=12.0, **middle),
        element("text", "observed", x=12.0, y=down, **middle, transform=f"rotate(-90 12 {down:g})"),
    ]
    for j, (name, text) in enumerate(
        zip(names, told_apart(names, 8 if steep else most), strict=True)
    ):
        x, y = left + side * (j + 0.5) + 4 * steep, top - 6
        turn = f"rotate(-90 {x:g} {y:g})" if steep else None
        style = {"class_": "name", "text_anchor": "start" if steep else "middle"}
        told = element("title", name)
        parts.append(element("text", text, told, x=x, y=y, **style, transform=turn))
    beside = told_apart(names, 9)
    for i, name in enumerate(names):
        y = top + tall * i
        told = element("title", name)
        at = {"x": left - 8, "y": y + tall / 2 + 4, "class_": "name", "text_anchor": "end"}
        parts.append(element("text", beside[i], told, **at))
        for j in range(k):
            x, share = left + side * j, float(shares[i, j])
            kind = "cell right" if i == j else "cell"
            said = f"{name} taken for {names[j]}" if i != j else f"{name} found"
            told = element("title", f"{said}: {counts[i, j]:,} rows, {percent(share)}")
            size = {"width": side - 2, "height": tall - 2}
            style = {"class_": kind, "fill_opacity": f"{0.04 + 0.9 * share:.2f}"}
            parts.append(element("rect", told, x=x + 1, y=y + 1, **size, **style))
            text = f"{counts[i, j]:,}" if len(f"{counts[i, j]:,}") <= most else percent(share)[:-2]
            ink = "count strong" if share > 0.55 else "count"
            at = {"x": x + side / 2, "y": y + tall / 2 + 4}
            parts.append(element("text", text, **at, class_=ink, text_anchor="middle"))
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {top + tall * k + 6:g}",
        class_="chart confusion",
        role="img",
        aria_label=label,
    )


def entropy_chart(entropy: np.ndarray, right: np.ndarray, label: str) -> Markup:
    """How unsure right and wrong predictions were: the share of each by entropy."""
    top = max(float(entropy.max()), 1e-9)
    bins = int(np.clip(len(entropy) // 15, 4, 20))
    edges = np.linspace(0.0, top, bins + 1)
    shares = []
    for rows in (right, ~right):
        count = np.histogram(entropy[rows], edges)[0]
        shares.append(count / max(count.sum(), 1))
    x = Axis("entropy of the prediction, in nats", 0.0, top)
    y = Axis.around("share of these rows", *shares, zero=True)
    frame = Frame(x, y)
    layers = []
    for share, kind in zip(shares, ("curve", "curve model"), strict=True):
        if share.any():
            steps = np.repeat(share, 2), np.repeat(edges, 2)[1:-1]
            layers.append(polyline(frame.points(steps[1], steps[0]), kind))
    return frame.draw(*layers, label=f"{label} The largest entropy is {number(top, 2)}.")
