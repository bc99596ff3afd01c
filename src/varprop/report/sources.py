"""Where the uncertainty of one target comes from, on average and in its most uncertain rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from varprop.predictive.budget import DISAGREE, OTHER, UNTOLD, Budget
from varprop.report.charts import Figure
from varprop.report.numerals import number, portion, shortened
from varprop.report.svg import BAR_WIDTH, bar_chart, element, fitting, text_width
from varprop.report.words import NOT_SPLIT

#: Sources that have a color of their own.
MOST_SOURCES = 7
ROWS = 6
_LEFT, _ROW, _TALL = 120.0, 26.0, 40.0
_TAIL = 52.0  # behind the longest bar, for its share


def source_figures(budget: Budget, labels: Sequence[str]) -> list[Figure]:
    """Return the charts of a budget of one output.

    There are none of a single source, nor of variances that no float64 holds.
    """
    total = budget.variance.sum(axis=1)
    if len(budget.names) < 2 or not total.any() or not np.isfinite(total).all():
        return []
    brief, rows = budget.brief(MOST_SOURCES), budget.largest(ROWS)
    shares, std = brief.shares, np.sqrt(brief.variance.sum(axis=1))
    average = shares.mean(axis=0)
    kinds = [f"source s{k}" for k in range(len(brief.names))]
    first, second = brief.names[:2]
    finding = (
        f"On average {portion(average[0])} of the stated variance comes from {_name(first)}, "
        f"{portion(average[1])} from {_name(second)}."
    )
    how = "The parts of every row sum to its stated variance; shown is the average of their shares."
    if UNTOLD in brief.names:
        how += f" {NOT_SPLIT}"
    found = [
        Figure("On average", _average_bars(brief.names, average, kinds), how, finding),
    ]
    top = rows[0]
    most = int(shares[top].argmax())
    row_finding = (
        f"The most uncertain row is {labels[top]} (± {number(std[top], 2)}): "
        f"{portion(shares[top, most])} of its variance comes from {_name(brief.names[most])}."
    )
    bars = [("average row", average, "")]
    bars += [(labels[i], shares[i], f"± {number(std[i], 2)}") for i in rows.tolist()]
    found.append(
        Figure(
            "In the most uncertain rows",
            _stacked_bars(brief.names, bars, kinds),
            "Each bar is the whole stated variance of a row; ± is its standard deviation.",
            row_finding,
            tuple(zip(kinds, brief.names, strict=True)),
        )
    )
    return found


def _name(source: str) -> str:
    """Return a source as it stands in a sentence."""
    said = {UNTOLD: "weights and noise together", DISAGREE: "members that disagree", OTHER: OTHER}
    return said.get(source, f"the {source}")


def _average_bars(names: Sequence[str], average: np.ndarray, kinds: Sequence[str]) -> Markup:
    """One bar for each source, under its name."""
    scale = (BAR_WIDTH - _TAIL) / max(float(average.max()), 1e-9)
    parts = []
    for k, (name, share, kind) in enumerate(zip(names, average.tolist(), kinds, strict=True)):
        y, length = 4 + _TALL * k, max(share * scale, 1.0)
        parts.append(element("text", shortened(name, 54), x=0.0, y=y + 11, class_="name"))
        parts.append(element("rect", x=0.0, y=y + 16, width=length, height=15.0, class_=kind))
        end = {"x": length + 6, "y": y + 28.0, "class_": "tick"}
        parts.append(element("text", portion(share), **end))
    words = "; ".join(f"{name}: {portion(s)}" for name, s in zip(names, average, strict=True))
    label = f"Average shares of the stated variance by source. {words}."
    return bar_chart(parts, 4 + _TALL * len(names), label)


def _stacked_bars(
    names: Sequence[str], bars: list[tuple[str, np.ndarray, str]], kinds: Sequence[str]
) -> Markup:
    """One bar for each row, in pieces; the first, of all rows, stands a little apart."""
    tail = max(text_width(note) for _, _, note in bars) + 8
    width, parts, words = BAR_WIDTH - _LEFT - tail, [], []
    for number_, (label, shares, note) in enumerate(bars):
        y, left = 4 + _ROW * number_ + (8 if number_ else 0), _LEFT
        at = {"x": _LEFT - 8, "y": y + 14.0, "class_": "name", "text_anchor": "end"}
        parts.append(
            element("text", fitting(label, _LEFT - 10, 12.0), element("title", label), **at)
        )
        for name, share, kind in zip(names, shares.tolist(), kinds, strict=True):
            piece = share * width
            if piece >= 0.1:
                told = element("title", f"{label}: {name} {portion(share)}")
                size = {"width": max(piece - 1.0, 0.5), "height": 18.0}
                parts.append(element("rect", told, x=left, y=y + 1, **size, class_=kind))
            left += piece
        parts.append(element("text", note, x=_LEFT + width + 5, y=y + 14.0, class_="tick"))
        shown = [
            f"{name} {portion(share)}"
            for name, share in zip(names, shares.tolist(), strict=True)
            if share >= 0.005
        ]
        words.append(f"{label}{f' ({note})' if note else ''}: {', '.join(shown) or 'no variance'}")
    label = f"Shares of the stated variance by source. {'; '.join(words)}."
    return bar_chart(parts, 16 + _ROW * len(bars), label)
