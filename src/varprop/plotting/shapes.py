"""What was predicted: bands, densities, correlations of outputs; and how training went."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from varprop.plotting.style import BLUE, GREY, ORANGE, Axes, Look, area, axes, finish, one_column
from varprop.predictive.checks import as_float
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.diagnostics import of_one_output
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import ArrayLike


def plot_band(
    x: ArrayLike,
    prediction: AbstractNumeric,
    *,
    y: ArrayLike | None = None,
    x_observed: ArrayLike | None = None,
    coverage: float = 0.9,
    show_model: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw mean and interval over one input.

    Parameters
    ----------
    prediction, ax
        See `varprop.plotting`.
    x : array of shape (n,) or (n, 1)
        The input of each predicted row, in any order.
    y : array of shape (m,), optional
        Observations to draw as points.
    x_observed : array of shape (m,) or (m, 1), optional
        Where they were made; `x` by default.
    coverage : float, default 0.9
        Of the interval.
    show_model : bool, default True
        Whether a darker band shows the interval of the same coverage without the noise, that of
        the model alone (of a Gaussian with the model's variance), where model and noise are told
        apart (``prediction.identified``).

    Examples
    --------
    >>> x = np.linspace(0.0, 6.0, 50)
    >>> p = Predictive.gaussian(np.sin(x), 0.01 + 0.02 * x, 0.1)
    >>> ax = plot_band(x, p)
    >>> len(ax.lines), len(ax.collections)
    (1, 2)
    """
    where = one_column(x, "x")
    if len(where) != prediction.n_rows:
        raise ValueError(f"x has {len(where)} values but {prediction.n_rows} rows were predicted.")
    order = np.argsort(where, kind="stable")
    sorted_x = where[order]
    _, prediction = of_one_output(where, prediction)
    mean = prediction.mean[order]
    lower, upper = (bound[order] for bound in prediction.interval(coverage))
    ax = axes(ax)
    ax.fill_between(sorted_x, lower, upper, **area(BLUE, 0.2, f"{coverage:.0%} interval"))
    if show_model and prediction.identified:
        reach = ndtri((1 + coverage) / 2) * prediction.model_std[order]
        style = area(BLUE, 0.35, "of which the model")
        ax.fill_between(sorted_x, mean - reach, mean + reach, **style)
    ax.plot(sorted_x, mean, color=BLUE, linewidth=1.8, label="mean")
    if y is not None:
        at = where if x_observed is None else one_column(x_observed, "x_observed")
        seen = one_column(y, "y")
        if len(at) != len(seen):
            raise ValueError(f"y has {len(seen)} values but there are {len(at)} inputs for it.")
        ax.plot(at, seen, ".", color="black", markersize=4, alpha=0.7, label="observed")
    return finish(ax, "input", "output")


def plot_density(
    samples: ArrayLike,
    prediction: AbstractNumeric,
    *,
    row: int = 0,
    n_bins: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of samples and over it the stated density of one row.

    Parameters
    ----------
    prediction, ax
        See `varprop.plotting`.
    samples : array of shape (n_samples,)
        Draws of that row, for example outputs of sampled networks.
    row : int, default 0
        Which row of the prediction.
    n_bins : int, optional
        Of the histogram; chosen from the samples by default.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0], [1.0], 0.0)
    >>> plot_density(p.sample(500, random_state=0)[0], p, n_bins=20).get_ylabel()
    'density'
    """
    drawn = one_column(samples, "samples")
    _, one = of_one_output([0.0], prediction[row])
    mean, std = float(one.mean[0]), float(one.std[0])
    if not std > 0:
        raise ValueError(f"Row {row} has zero variance, so it has no density to draw.")
    ax = axes(ax)
    bars: Look = {"color": GREY, "alpha": 0.4, "label": f"{len(drawn):,} samples"}
    ax.hist(drawn, bins="auto" if n_bins is None else n_bins, density=True, **bars)
    low, high = min(drawn.min(), mean - 4 * std), max(drawn.max(), mean + 4 * std)
    grid = np.linspace(low, high, 400)
    ax.plot(grid, one.pdf(grid[None])[0], color=ORANGE, linewidth=2, label="stated density")
    return finish(ax, "output", "density")


def plot_output_correlation(
    prediction: Predictive,
    *,
    row: int | None = None,
    covariance: bool = False,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how the outputs of a row go together, as a matrix with its numbers.

    Parameters
    ----------
    prediction : Predictive
        Of any number of outputs.
    row : int, optional
        Which row; the average covariance of all rows by default.
    covariance : bool, default False
        Whether to draw covariances instead of correlations.
    names : sequence of str, optional
        Of the outputs.
    ax : Axes, optional

    Examples
    --------
    >>> p = Predictive.joint([[0.0, 0.0]], [[[1.0, 0.8], [0.8, 1.0]]], 0.0)
    >>> [text.get_text() for text in plot_output_correlation(p).texts]
    ['1.00', '0.80', '0.80', '1.00']
    """
    d = prediction.n_outputs
    labels = [f"output {i}" for i in range(d)] if names is None else list(names)
    if len(labels) != d:
        raise ValueError(f"There are {len(labels)} names but {d} outputs.")
    if not covariance:  # which has no unit
        prediction = dataclasses.replace(prediction, unit=np.ones(d))
    shown = prediction.output_cov.mean(axis=0) if row is None else prediction[row].output_cov[0]
    if not covariance:
        std = np.sqrt(np.diagonal(shown))
        if not (std > 0).all():
            raise ValueError("An output has zero variance, so its correlations do not exist.")
        shown = shown / std[:, None] / std
    ax = axes(ax)
    top = np.abs(shown).max() or 1.0
    image = ax.imshow(shown, cmap="RdBu_r", vmin=-top, vmax=top)
    ax.set_xticks(range(d), labels, rotation=45, ha="right")
    ax.set_yticks(range(d), labels)
    if d <= 12:  # more numbers would not be readable
        for i, j in np.ndindex(d, d):
            dark = abs(shown[i, j]) > 0.6 * top
            text = f"{shown[i, j]:.3g}" if covariance else f"{shown[i, j]:.2f}"
            ax.text(j, i, text, ha="center", va="center", color="white" if dark else "black")
    name = "covariance" if covariance else "correlation"
    if ax.figure is not None:
        ax.figure.colorbar(image, ax=ax, label=name)
    return ax


def plot_training(
    loss_curve: ArrayLike, *, label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the loss by epoch; call it again with the same `ax` to compare runs.

    Parameters
    ----------
    loss_curve : array of shape (n_epochs,)
        As of ``FAWNRegressor.loss_curve_`` or ``Fit.history``.
    label : str, optional
        Name of the run in the legend.
    ax : Axes, optional

    Examples
    --------
    >>> plot_training([3.0, 2.0, 1.5]).get_xlabel()
    'epoch'
    """
    loss = as_float(loss_curve, "loss_curve")
    if loss.ndim != 1 or not loss.size:
        raise ValueError(f"loss_curve must have shape (n_epochs,), not {loss.shape}.")
    ax = axes(ax)
    ax.plot(np.arange(1, len(loss) + 1), loss, linewidth=1.6, label=label)
    if label is not None:
        return finish(ax, "epoch", "training loss")
    ax.set(xlabel="epoch", ylabel="training loss")
    return ax
