"""Where the variance of predictions comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from varprop.plotting.style import Axes, axes, finish
from varprop.predictive.budget import Budget
from varprop.predictive.mixtures import ArrayLike

# Okabe and Ito's, and grey for what is left.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_REST = "#9ca3af"


def plot_budget(
    budget: Budget,
    *,
    rows: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    shares: bool = True,
    output: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw where the variance of some rows comes from, as stacked bars, the average on top.

    Parameters
    ----------
    budget : Budget
        As of ``model.uncertainty_budget(X)``.
    rows : array of int, optional
        Which rows; the six of largest variance by default.
    labels : sequence of str, optional
        Names of all rows of the budget; their numbers from 0 by default.
    shares : bool, default True
        Whether bars are shares of each row's variance; else variances, in the target's units
        squared. The average is that of the same.
    output : int, optional
        Which output, if the budget is of several.
    ax : Axes, optional

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> budget = Predictive.gaussian([0.0, 0.0], [1.0, 3.0], 1.0).budget()
    >>> ax = plot_budget(budget)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['average of 2 rows', 'row 1', 'row 0']
    """
    one = budget if output is None else budget.of_output(output)
    if one.variance.ndim != 2:
        raise ValueError("The budget is of several outputs: choose one by `output`.")
    n = len(one.variance)
    named = [f"row {i}" for i in range(n)] if labels is None else list(map(str, labels))
    if len(named) != n:
        raise ValueError(f"There are {len(named)} labels but {n} rows.")
    chosen = one.largest() if rows is None else np.arange(n)[np.asarray(rows, np.intp)]
    drawn = one.brief(len(_COLORS))
    values = drawn.shares if shares else drawn.variance
    bars = np.vstack([values.mean(axis=0), values[chosen]])
    ax = axes(ax)
    at, left = np.arange(len(bars)), np.zeros(len(bars))
    for name, width, color in zip(drawn.names, bars.T, (*_COLORS, _REST), strict=False):
        ax.barh(at, width, left=left, height=0.7, color=color, edgecolor="white", label=name)
        left = left + width
    ax.set_yticks(at, [f"average of {n} rows", *(named[i] for i in chosen)])
    ax.invert_yaxis()
    if shares:
        ax.set_xlim(0, 1)
        ax.xaxis.set_major_formatter("{x:.0%}")
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2}
    return finish(ax, "share of the variance" if shares else "variance", "rows", **below)
