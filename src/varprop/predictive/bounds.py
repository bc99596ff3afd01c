"""Judging predictions of numbers that are known up to bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from scipy import optimize
from scipy.special import log_ndtr

from varprop.predictive.contract import AbstractContinuous, AbstractPredictive
from varprop.predictive.mixtures import LOG_2PI, Array, ArrayLike, quiet

# Thresholds that the quadratic score is summed over.
_THRESHOLDS = 64


@final
@dataclass(frozen=True, eq=False)
class Bounded(AbstractPredictive):
    """A prediction whose targets are known up to bounds: what is known is what is judged.

    Parameters
    ----------
    prediction
        Of the targets.
    lower, upper
        Bounds, shape (n, d): equal where the target is known, -inf and inf where there is none.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> known = Bounded(p, np.array([[0.0], [0.0]]), np.array([[0.0], [np.inf]]))
    >>> known.logpdf(0.0).round(4).tolist()  # a density, and the logarithm of a half
    [-0.9189, -0.6931]
    """

    prediction: AbstractContinuous
    lower: Array
    upper: Array
    squeeze: bool = field(init=False)

    def __post_init__(self) -> None:
        """Take over the shape."""
        object.__setattr__(self, "squeeze", self.prediction.squeeze)

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return self.prediction.n_rows

    def __getitem__(self, rows: Any) -> Bounded:
        """Return some rows."""
        rows = np.atleast_1d(np.arange(self.n_rows)[rows])
        return replace(
            self,
            prediction=self.prediction[rows],
            lower=self.lower[rows],
            upper=self.upper[rows],
        )

    @classmethod
    def mixture(cls, members: Sequence[Bounded], weights: ArrayLike | None = None) -> Bounded:
        """Mixture of predictions of one kind, the same of which is known."""
        kind = type(members[0].prediction)
        mixed = kind.mixture([member.prediction for member in members], weights)
        return replace(members[0], prediction=mixed)

    def _given(self, values: Array) -> Array:
        return values[:, 0] if self.squeeze else values

    def logpdf(self, y: ArrayLike) -> Array:
        """Return log density, or log probability, of the bounds; y is not looked at.

        Targets of a row count as independent given the prediction.
        """
        p, lower, upper = self.prediction, self._given(self.lower), self._given(self.upper)
        known = np.isfinite(lower) & (lower == upper)
        middle = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0))
        no_lower, no_upper = np.isneginf(lower), np.isposinf(upper)
        low, high = np.where(no_lower, middle, lower), np.where(no_upper, middle, upper)
        with quiet(), np.errstate(divide="ignore"):
            below, over = np.where(no_lower, 0, p.cdf(low)), np.where(no_lower, 1, p.survival(low))
            above = np.where(no_upper, 1, p.cdf(high))
            beyond = np.where(no_upper, 0, p.survival(high))
            # From the side on which less is subtracted.
            inside = np.where(below > 0.5, over - beyond, above - below)
            each = np.where(known, p.marginal_logpdf(middle), np.log(np.maximum(inside, 0.0)))
        return each if self.squeeze else each.sum(axis=-1)

    def crps(self, y: ArrayLike) -> Array:
        """Return the CRPS as far as it is known, at quantiles of all bounds; lower is better.

        A sum of Brier scores of thresholds, those inside a row's bounds left out, where it is not
        known whether the target lies above. Rows that are known exactly count at all thresholds,
        those beyond a bound at fewer, so that it is not proper: a mean that is somewhat too low may
        score better than the truth. `logpdf` is proper.
        """
        columns = []
        for output in range(self.lower.shape[1]):
            ends = np.concatenate([self.lower[:, output], self.upper[:, output]])
            ends = ends[np.isfinite(ends)]
            at = np.unique(np.quantile(ends, np.linspace(0, 1, _THRESHOLDS)))
            step = np.gradient(at) if len(at) > 1 else np.ones(1)
            p = self.prediction if self.squeeze else self.prediction.marginal(output)
            grid = np.broadcast_to(at, (self.n_rows, len(at)))
            below = np.asarray(p.cdf(grid if p.squeeze else grid[:, None])).reshape(grid.shape)
            lower, upper = self.lower[:, output, None], self.upper[:, output, None]
            is_below = at >= upper
            known = is_below | (at < lower)
            columns.append(np.where(known, (below - is_below) ** 2 * step, 0.0).sum(axis=1))
        return self._given(np.stack(columns, axis=1))


def constant_fit(lower: Array, upper: Array, weight: Array | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of the Gaussian that makes bounds most likely.

    Where there is no most likely one (all targets are at least something), it ends three times the
    bounds' spread beyond them.

    Parameters
    ----------
    lower, upper
        Shape (rows,): equal where a target is known, -inf and inf where there is no bound.
    weight
        Shape (rows,), or None.

    Examples
    --------
    >>> y = np.array([1.0, 2.0, 3.0])
    >>> [round(part, 4) for part in constant_fit(y, y)]
    [2.0, 0.8165]
    """
    ends = np.concatenate([lower[np.isfinite(lower)], upper[np.isfinite(upper)]])
    shift, scale = ends.mean(), ends.std()
    scale = scale if scale > 0 else 1.0
    low, high = (lower - shift) / scale, (upper - shift) / scale
    known = lower == upper
    weight = np.ones(len(lower)) if weight is None else weight
    at_low, at_high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)

    def loss(parameters: Array) -> float:
        mean, std = parameters[0], np.exp(parameters[1])
        a = np.where(np.isfinite(low), (at_low - mean) / std, -np.inf)
        b = np.where(np.isfinite(high), (at_high - mean) / std, np.inf)
        flip = np.where(np.isfinite(a) & np.isfinite(b), a + b > 0, np.isposinf(b))
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        with np.errstate(divide="ignore"):
            apart = np.maximum(log_ndtr(b) - log_ndtr(a), 1e-300)
            inside = log_ndtr(b) + np.log(-np.expm1(-apart))
        density = -0.5 * (LOG_2PI + ((at_low - mean) / std) ** 2) - parameters[1]
        each = np.where(known, density, inside)
        return float(-(weight * np.maximum(each, -1e10)).sum() / weight.sum())

    span = np.abs((ends - shift) / scale).max()
    bounds = [(-4 * span, 4 * span), (np.log(1e-3), np.log(4 * span))]
    found = optimize.minimize(loss, np.zeros(2), method="L-BFGS-B", bounds=bounds, tol=1e-12)
    return float(shift + scale * found.x[0]), float(scale * np.exp(found.x[1]))
