"""What all plots share: axes, colors, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from varprop.predictive.checks import as_float, check_finite
from varprop.predictive.mixtures import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # matplotlib is imported when something is drawn
    Axes = Any

# Okabe and Ito's colors, which the color-blind can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
CHANCE: dict[str, Any] = {"color": GREY, "alpha": 0.2, "linewidth": 0}
LEGEND: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "fontsize": "small"}
IDEAL: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2}


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


def one_column(values: ArrayLike, name: str) -> np.ndarray:
    """Return finite numbers as ``(n,)``."""
    a = as_float(values, name)
    if not (a.ndim == 1 or (a.ndim == 2 and a.shape[1] == 1)) or not a.size:
        raise ValueError(f"{name} must have shape (n,) with n > 0, not {a.shape}.")
    a = a.reshape(-1)
    check_finite(a, name)
    return a
