"""What all plots share: axes, colors, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from varprop.predictive.checks import as_columns
from varprop.predictive.mixtures import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # matplotlib is imported when something is drawn
    Axes = Any

# Okabe and Ito's colors, which the color-blind can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
Look = dict[str, Any]
IDEAL: Look = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
MARKS: Look = {"markersize": 4, "alpha": 0.8, "markeredgewidth": 0}


def axes(ax: Axes | None) -> Axes:
    """Return the given Axes or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib: install it by `pip install varprop[plot]`."
        ) from error
    return plt.subplots(layout="constrained")[1]


def area(color: str, alpha: float, label: str) -> Look:
    """Return how an area without an edge looks."""
    return {"color": color, "alpha": alpha, "linewidth": 0, "label": label}


def chance(probability: float) -> str:
    """Return what the legend calls the range of chance."""
    return f"{probability:.0%} range of chance"


def finish(ax: Axes, x: str, y: str, **legend: Any) -> Axes:
    """Name the axes, add the legend and return the Axes."""
    ax.set(xlabel=x, ylabel=y)
    ax.legend(framealpha=0.85, edgecolor="none", fontsize="small", **legend)
    return ax


def one_column(values: ArrayLike, name: str) -> np.ndarray:
    """Return finite numbers of shape ``(n,)`` or ``(n, 1)`` as ``(n,)``."""
    a = as_columns(values, name)
    if a.shape[1] != 1:
        raise ValueError(f"{name} must have shape (n,), not {a.shape}.")
    return a[:, 0]
