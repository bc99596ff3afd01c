"""Whether predicted probabilities of classes can be trusted, and what is taken for what."""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.plotting.style import BLUE, GREY, IDEAL, Axes, Look, axes, chance, finish
from varprop.predictive import class_diagnostics
from varprop.predictive.categories import Categories


def plot_reliability(
    y: Any,
    prediction: Categories,
    *,
    label: Any = None,
    n_bins: int | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw how often stated probabilities came true, with the range that chance allows.

    Below the dashed line the model is overconfident, above it too cautious.

    Parameters
    ----------
    y : array of shape (n,)
        Observed labels.
    prediction : Categories
        Of the same rows.
    label, n_bins
        See `varprop.predictive.class_diagnostics.reliability`.
    probability, ax
        See `varprop.plotting`.

    Examples
    --------
    >>> p = Categories([[0.8, 0.2], [0.3, 0.7]] * 20)
    >>> plot_reliability([0, 1] * 20, p).get_ylabel()
    'came true'
    """
    options = {"label": label, "n_bins": n_bins, "probability": probability}
    found = class_diagnostics.reliability(y, prediction, **options)
    ax = axes(ax)
    bars: Look = {"color": GREY, "alpha": 0.4, "linewidth": 7, "label": chance(probability)}
    ax.vlines(found.stated, found.lower, found.upper, **bars)
    ax.plot([0, 1], [0, 1], label="as stated", **IDEAL)
    squares: Look = {"color": "white", "markeredgecolor": "black", "markersize": 6}
    ax.plot(found.stated, found.observed, "s", label="group of rows", **squares)
    ax.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:.0%}")
    of = "the predicted class" if label is None and prediction.n_classes > 2 else label
    of = prediction.classes[1] if of is None else of
    return finish(ax, f"stated probability of {of}", "came true", loc="upper left")


def plot_roc(y: Any, prediction: Categories, *, label: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the ROC curve of a class against all others, with its area in the legend.

    Parameters
    ----------
    y, prediction
        As in `plot_reliability`.
    label
        The class; the last unless given. Call it again with the same `ax` for others.
    ax : Axes, optional

    Examples
    --------
    >>> p = Categories([[0.8, 0.2], [0.3, 0.7]] * 20)
    >>> len(plot_roc([0, 1] * 20, p).lines)
    2
    """
    found = class_diagnostics.roc(y, prediction, label=label)
    ax = axes(ax)
    which = prediction.classes[-1] if label is None else label
    ax.plot(found.false, found.true, linewidth=2, label=f"{which}: area {found.area:.3f}")
    if len(ax.lines) == 1:
        ax.plot([0, 1], [0, 1], label="guessing", **IDEAL)
    ax.set(xlim=(0, 1), ylim=(0, 1.01))
    return finish(ax, "of the other rows taken for it", "of its rows found", loc="lower right")


def plot_confusion(y: Any, prediction: Categories, *, ax: Axes | None = None) -> Axes:
    """Draw rows by observed and predicted class; shades are shares of the observed class.

    Parameters
    ----------
    y, prediction
        As in `plot_reliability`.
    ax : Axes, optional

    Examples
    --------
    >>> p = Categories([[0.8, 0.2], [0.3, 0.7]], classes=["no", "yes"])
    >>> [text.get_text() for text in plot_confusion(["no", "no"], p).texts]
    ['1', '1', '0', '0']
    """
    counts = class_diagnostics.confusion(y, prediction)
    names = [str(label) for label in prediction.classes]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = axes(ax)
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right")
    ax.set_yticks(range(len(names)), names)
    if len(names) <= 12:  # more numbers would not be readable
        for i, j in np.ndindex(*counts.shape):
            color = "white" if shares[i, j] > 0.6 else "black"
            ax.text(j, i, f"{counts[i, j]}", ha="center", va="center", color=color)
    ax.set(xlabel="predicted", ylabel="observed")
    return ax


def plot_entropy(y: Any, prediction: Categories, *, ax: Axes | None = None) -> Axes:
    """Draw how unsure right and wrong predictions were, as shares of each.

    Parameters
    ----------
    y, prediction
        As in `plot_reliability`.
    ax : Axes, optional

    Examples
    --------
    >>> p = Categories([[0.8, 0.2], [0.3, 0.7]] * 20)
    >>> plot_entropy([0, 1, 1, 1] * 10, p).get_xlabel()
    'entropy of the prediction, in nats'
    """
    entropy = prediction.entropy()
    right = prediction.proba.argmax(axis=1) == prediction.codes(y)
    edges = np.linspace(0.0, max(float(entropy.max()), 1e-9), 16)
    ax = axes(ax)
    for rows, color, label in ((right, BLUE, "right"), (~right, "#D55E00", "wrong")):
        count = np.histogram(entropy[rows], edges)[0]
        if count.sum():
            ax.stairs(count / count.sum(), edges, color=color, linewidth=2, label=label)
    return finish(ax, "entropy of the prediction, in nats", "share of these rows")
