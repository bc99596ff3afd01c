"""Simple models to compare with, and to fall back on: a linear one, and one that knows nothing."""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np

from varprop.data.source import Rows
from varprop.data.statistics import Scaling
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel, Shares
from varprop.predictive.mixtures import safe_unit

#: Names of the simple models among the weights of a mixture.
LINEAR, CONSTANT = "linear", "constant"


@dataclasses.dataclass(frozen=True, repr=False)
class LinearModel:
    """Bayesian ridge regression of each target by itself, in standardized units.

    Attributes
    ----------
    scaling
        Of inputs and targets.
    center
        Mean of the inputs it was fitted to, shape (features,).
    coef
        Shape (targets, features).
    intercept, noise_var
        Shape (targets,).
    cov
        Posterior covariance of the coefficients, shape (targets, features, features).

    Examples
    --------
    >>> from varprop.data.source import Data
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = LinearModel.fit(X, 3 * X + 1, scaling=Scaling.of(Data(X, 3 * X + 1)))
    >>> model.predict_dist(X[:1]).mean.round(2).tolist()
    [1.0]
    """

    scaling: Scaling
    center: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    noise_var: np.ndarray
    cov: np.ndarray

    def __repr__(self) -> str:
        """Return sizes, not values."""
        targets, features = self.coef.shape
        return f"LinearModel(n_features={features}, n_targets={targets})"

    @classmethod
    def fit(
        cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None, *, scaling: Scaling
    ) -> LinearModel:
        """Fit to inputs (rows, features) and targets (rows, targets), as they are.

        Weights (rows,) say how the rows share what they say: their sum does not matter.
        """
        from sklearn.linear_model import BayesianRidge

        rows = scaling.rows(Rows(X, y), np.float64)
        if weight is not None:
            weight = weight * (len(X) / weight.sum())
        fits = []
        for target in rows.y.T:
            fit = BayesianRidge().fit(rows.x, target, weight)
            fits.append((fit.coef_, fit.intercept_, 1 / fit.alpha_, fit.sigma_))
        parts = (np.array(part, np.float64) for part in zip(*fits, strict=True))
        return cls(scaling, np.asarray(fit.X_offset_, np.float64), *parts)

    def predict_dist(
        self, X: np.ndarray, x_var: np.ndarray | None = None, *, squeeze: bool | None = None
    ) -> Predictive:
        """Return the predictive distribution of rows.

        Parameters
        ----------
        X
            Shape (rows, features).
        x_var
            Variances of the inputs' errors, shape of X, or their covariances, shape (rows,
            features, features): exact.
        squeeze
            Whether a single target comes without an axis of its own; it does unless given.
        """
        squeeze = len(self.intercept) == 1 if squeeze is None else squeeze
        x, scaled_var = self.scaling.inputs(X, x_var, np.float64)
        mean = x @ self.coef.T + self.intercept
        own, inputs = self.variances(x, scaled_var)
        kernel = LinearKernel(X, x_var, None, self)
        var = own + inputs.sum(axis=0)
        found = in_units(mean, var, self.noise_var, self.scaling, squeeze=squeeze)
        return dataclasses.replace(found, between=(kernel,))

    def variances(self, x: np.ndarray, x_var: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return variances that come from the coefficients, and from each input's error.

        All is standardized; shapes are (rows, targets) and (features, rows, targets).
        """
        apart = x - self.center
        own = np.stack([np.einsum("ij,ij->i", apart @ cov, apart) for cov in self.cov], axis=1)
        own = np.maximum(own, 0.0)
        if x_var is None:
            return own, np.zeros((x.shape[1], *own.shape))
        square = self.coef**2 + np.diagonal(self.cov, axis1=1, axis2=2)
        alone = x_var if x_var.ndim == 2 else np.diagonal(x_var, axis1=1, axis2=2)
        inputs = alone.T[:, :, None] * square.T[:, None, :]
        if x_var.ndim == 2:
            return own, inputs
        # What errors add or take away together belongs to all of them, in proportion.
        second = self.coef[:, :, None] * self.coef[:, None, :] + self.cov
        together = np.maximum(np.einsum("rij,tij->rt", x_var, second), 0.0)
        whole = inputs.sum(axis=0)
        return own, inputs * (together / np.where(whole > 0, whole, 1.0))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class LinearKernel(AbstractRowKernel):
    """What rows of a `LinearModel` have in common: its coefficients."""

    model: LinearModel

    def _scaled(self, rows: slice) -> tuple[np.ndarray, np.ndarray | None]:
        x_var = None if self.x_var is None else self.x_var[rows]
        return self.model.scaling.inputs(self.x[rows], x_var, np.float64)

    def correlate(self, rows: slice, others: slice) -> np.ndarray:
        """Return the correlation that the coefficients' covariance makes."""
        (x, x_var), (z, z_var) = self._scaled(rows), self._scaled(others)
        cov = np.einsum(
            "ai,tij,bj->tab", x - self.model.center, self.model.cov, z - self.model.center
        )
        var, other = (
            own + inputs.sum(axis=0)
            for own, inputs in (self.model.variances(x, x_var), self.model.variances(z, z_var))
        )
        scale = np.sqrt(var.T[:, :, None] * other.T[:, None, :])
        return np.divide(cov, scale, out=np.zeros_like(cov), where=scale > 0)

    def shares(self) -> Shares:
        """Return those of the inputs' errors and of the coefficients."""
        own, inputs = self.model.variances(*self._scaled(slice(None)))
        whole = own + inputs.sum(axis=0)
        whole = np.where(whole > 0, whole, 1.0)
        return Shares(inputs / whole, {"linear coefficients": own / whole})


def constant_gaussian(
    scaling: Scaling, n_rows: int, *, n_seen: int | None = None, squeeze: bool = False
) -> Predictive:
    """Return the same Gaussian for all rows: the training targets' mean and standard deviation.

    Parameters
    ----------
    scaling
        Has both.
    n_rows
        How many rows.
    n_seen
        How many rows the two numbers are of. Few say little of a next one, whose variance about
        their mean is (n + 1) / (n - 1) times their own; as many as it takes unless given.
    squeeze
        Whether a single target comes without an axis of its own.

    Examples
    --------
    >>> scaling = Scaling(np.zeros(1), np.ones(1), np.array([2.0]), np.array([3.0]))
    >>> constant_gaussian(scaling, 3, squeeze=True).std.tolist()
    [3.0, 3.0, 3.0]
    """
    mean = np.zeros((n_rows, len(scaling.y_shift)))
    noise = np.full(mean.shape[1], constant_var(n_seen))
    return in_units(mean, mean, noise, scaling, squeeze=squeeze)


def constant_var(n_seen: int | None) -> float:
    """Return the constant Gaussian's variance, in standardized units; see `constant_gaussian`.

    Examples
    --------
    >>> constant_var(None), constant_var(2), constant_var(1)
    (1.0, 3.0, 1.0)
    """
    return 1.0 if n_seen is None or n_seen < 2 else (n_seen + 1) / (n_seen - 1)


def in_units(
    mean: np.ndarray, var: np.ndarray, noise: np.ndarray, scaling: Scaling, *, squeeze: bool
) -> Predictive:
    """Return Gaussians given in standardized units in those of the targets.

    Parameters
    ----------
    mean
        Shape (rows, targets).
    var
        Of the model: the same shape, or (rows, targets, targets).
    noise
        Variance of the noise, shape (targets,) or (rows, targets).
    scaling
        Of the targets.
    squeeze
        Whether a single target comes without an axis of its own.

    Raises
    ------
    ValueError
        If a prediction is not finite.
    """
    # Numbers whose squares are none are kept in multiples of a unit.
    unit = safe_unit(scaling.y_scale)
    scale, shift = scaling.y_scale / unit, scaling.y_shift / unit
    mean, noise = mean * scale + shift, noise * scale**2
    if squeeze and var.ndim == 3:  # a single target has no other to be correlated with
        var = var[..., 0]
    joint = var.ndim == 3
    var = var * (scale[:, None] * scale if joint else scale**2)
    bad = ~np.isfinite(mean + var.sum(axis=tuple(range(1, var.ndim)))[:, None] + noise).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The prediction of row {int(np.argmax(bad))} is not finite: the row lies too far "
            "from the training data for the model's precision."
        )
    if joint:
        return Predictive.joint(mean, var, noise).times(unit)
    noise = noise if noise.ndim > 1 else noise[None]
    return Predictive(mean[None], var[None], noise[None], np.ones((1, 1)), squeeze).times(unit)
