"""Plots of predictive distributions with matplotlib, the extra ``plot``; nothing here knows of JAX.

Every function draws into ``ax`` (a new figure's by default), takes its options by keyword and
returns the Axes. Targets come first, predictions second, as in `varprop.metrics`: ``y`` is an array
of shape (n,) and ``prediction`` a `Predictive` of n rows and, unless said otherwise, one output;
of several outputs choose one by ``prediction.marginal(i)``. ``probability`` is that of the range
which chance allows a perfect model, 0.95 by default; see `varprop.diagnostics` for the numbers.
"""

from varprop.plotting.classes import plot_confusion, plot_entropy, plot_reliability, plot_roc
from varprop.plotting.judging import (
    plot_calibration,
    plot_error_by_std,
    plot_pit,
    plot_predicted_observed,
)
from varprop.plotting.observed import plot_rootogram, plot_survival
from varprop.plotting.shapes import (
    plot_band,
    plot_density,
    plot_output_correlation,
    plot_training,
)
from varprop.plotting.sources import plot_budget

__all__ = [
    "plot_band",
    "plot_budget",
    "plot_calibration",
    "plot_confusion",
    "plot_density",
    "plot_entropy",
    "plot_error_by_std",
    "plot_output_correlation",
    "plot_pit",
    "plot_predicted_observed",
    "plot_reliability",
    "plot_roc",
    "plot_rootogram",
    "plot_survival",
    "plot_training",
]
