"""Which inputs matter, for each target by itself: shares of all that inputs do, and their bars."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from varprop.predictive.mixtures import ArrayLike
from varprop.report.charts import Figure
from varprop.report.numerals import portion
from varprop.report.svg import BAR_WIDTH, HATCH, bar_chart, element, fitting, text_width

#: Of each input, for the mean and for the spread: a number, or one for each target.
Importance = Mapping[str, tuple[float | ArrayLike, float | ArrayLike]]
#: Of each input what it does to the predicted value and to the spread, as shares of all inputs.
Shares = dict[str, tuple[float, float]]

MAX_BARS = 15
_ROW, _TALL, _LEFT = 40.0, 11.0, 120.0


def shares_of(importance: Importance | None, n_targets: int) -> list[Shares]:
    """Return for each target the shares of its inputs, which sum to 1, the largest first.

    Parameters
    ----------
    importance
        Of each input, for the mean and for the spread: a number, or one for each target. Inputs of
        which one is not finite are left out.
    n_targets
        How many targets there are.

    Examples
    --------
    >>> shares_of({"age": (1.0, 1.5), "size": (3.0, 0.5), "site": (float("nan"), 1.0)}, 1)
    [{'age': (0.25, 0.75), 'size': (0.75, 0.25)}]
    """
    names = [str(name) for name in importance or {}]
    numbers = np.zeros((len(names), 2, n_targets))
    for row, (name, pair) in zip(numbers, (importance or {}).items(), strict=True):
        for kind, values in enumerate(pair):
            given = np.asarray(values, np.float64)
            if given.shape not in ((), (n_targets,)):
                raise ValueError(
                    f"The importance of {name!r} must be a number or one for each of {n_targets} "
                    f"targets, not of shape {given.shape}."
                )
            row[kind] = given
    found = []
    for k in range(n_targets):
        known = np.flatnonzero(np.isfinite(numbers[:, :, k]).all(axis=1))
        parts = np.maximum(numbers[known, :, k], 0.0)
        top = parts.max(axis=0, initial=0.0)
        parts = parts / np.where(top > 0, top, 1.0)  # first, since a sum may overflow
        total = parts.sum(axis=0)
        parts = parts / np.where(total > 0, total, 1.0)
        order = np.argsort(-parts.max(axis=1, initial=0.0), kind="stable").tolist()
        found.append({names[known[i]]: (float(parts[i, 0]), float(parts[i, 1])) for i in order})
    return found


def importance_figures(shares: Shares, *, spread: str = "stated spread") -> list[Figure]:
    """Return the chart of one target, or none; `spread` is what else inputs move."""
    if not shares:
        return []
    most = dict(list(shares.items())[:MAX_BARS])
    return [
        Figure(
            "Which inputs matter?",
            _bars(most),
            "Each bar is an input's part of what all inputs do, so that the bars of one kind sum "
            f"to 100 %. What an input does is the mean square change of the prediction (of its "
            f"{spread}) when that input alone is taken from another row. Correlated inputs are to "
            "be read together: changing one of them alone makes rows that do not occur.",
            _finding(shares, most, spread),
            (("mean", "for the prediction"), ("spread", f"for the {spread}")),
        )
    ]


def _finding(shares: Shares, most: Shares, spread: str) -> str:
    """Say what moves the prediction and its spread most, if anything does."""
    tops = [max(shares, key=lambda name: shares[name][kind]) for kind in (0, 1)]
    moves = [shares[name][kind] > 0 for kind, name in enumerate(tops)]
    what = "the prediction", f"its {spread}"
    if all(moves) and tops[0] == tops[1]:
        said = f"{tops[0]} moves both the prediction and its {spread} most."
    else:
        parts = [
            f"{name} moves {thing} most" if moved else f"no input moves {thing}"
            for name, thing, moved in zip(tops, what, moves, strict=True)
        ]
        said = "; ".join(parts) + "."
        said = said if any(moves) else f"No input moves the prediction or its {spread}."
    if len(shares) > len(most):
        said += f" The {len(most)} most important of {len(shares)} inputs are drawn."
    return said


def _bars(shares: Shares) -> Markup:
    """Two bars per input: for the mean, and (hatched) for the spread."""
    top = max(max(pair) for pair in shares.values())
    texts = {name: [portion(value) for value in pair] for name, pair in shares.items()}
    tail = 8 + max(text_width(text) for pair in texts.values() for text in pair)
    scale = (BAR_WIDTH - _LEFT - tail) / top if top > 0 else 0.0
    parts = [HATCH]
    for i, (name, pair) in enumerate(shares.items()):
        y = 6 + i * _ROW
        at = {"x": _LEFT - 8, "y": y + 19, "class_": "name", "text_anchor": "end"}
        parts.append(element("text", fitting(name, _LEFT - 10, 12.0), element("title", name), **at))
        for k, (value, kind) in enumerate(zip(pair, ("mean", "spread"), strict=True)):
            length, at_y = value * scale, y + 3 + 13 * k
            size = {"width": max(length, 1.0), "height": _TALL}
            parts.append(element("rect", x=_LEFT, y=at_y, **size, class_=kind))
            end = {"x": _LEFT + length + 5, "y": at_y + 9.5}
            parts.append(element("text", texts[name][k], **end, class_="tick"))
    words = "; ".join(f"{name}: {mean} and {spread}" for name, (mean, spread) in texts.items())
    label = f"Importance for the mean and for the spread. {words}."
    return bar_chart(parts, 10 + _ROW * len(shares), label)
