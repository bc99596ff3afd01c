"""Targets that are counts: 0, 1, 2 and so on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from varprop.predictive import mixtures, rates
from varprop.predictive.checks import (
    RandomState,
    as_alpha,
    as_float,
    drawing,
    mixture_weights,
)
from varprop.predictive.composed import AbstractComposed, total_moments
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import Array, ArrayLike
from varprop.predictive.warps import Moments

# Standard deviations of a count's logarithm at which sums over counts are cut into panels.
_KNOTS = np.arange(-7.0, 7.1, 1.0)
_LARGEST_RATE = 1e18  # whose draws are 64-bit integers


@final
@dataclass(frozen=True, eq=False, repr=False)
class Counts(AbstractComposed):
    """Counts whose rate is uncertain: Poisson, or negative binomial, given its logarithm f.

    ``y | f`` has mean ``mu = exp(f)`` and variance ``mu + dispersion * mu**2``; f is a Gaussian, or
    a mixture of Gaussians. Mean and variances, in their two parts, are exact: the model's is the
    variance of mu, and the rest is noise. Probabilities are integrals over f by quadrature: the
    error of `logpdf` is below 1e-7, that of `cdf` below 1e-7 too, for dispersions up to 20.

    Parameters
    ----------
    log_rate
        Distribution of f. What it calls noise varies from count to count, on top of the dispersion.
    dispersion
        Not negative: a number, one for each output, (d,), or for each member too, (K, 1, d).

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Counts(Predictive.gaussian(np.log([3.0]), [0.0], 0.0))
    >>> p.mean.round(6).tolist(), p.var.round(6).tolist(), p.quantile([0.05, 0.95]).tolist()
    ([3.0], [3.0], [[1.0, 6.0]])
    >>> p.pdf([0.0]).round(4).tolist(), p.pdf([0.5]).tolist()
    ([0.0498], [0.0])
    """

    log_rate: Predictive
    dispersion: Any = 0.0  # an array (K, 1, d), once made
    squeeze: bool = field(init=False)
    identified: bool = field(init=False)
    is_discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Settle shapes."""
        if self.log_rate.is_joint:
            raise ValueError(
                "Counts take every target by itself: give log-rates without a covariance between "
                "outputs."
            )
        k, d = self.log_rate.n_members, self.log_rate.n_outputs
        value = as_float(self.dispersion, "dispersion")
        if value.shape not in ((), (1,), (d,), (k, 1, d)):
            raise ValueError(f"dispersion has shape {value.shape}, not (), ({d},) or {(k, 1, d)}.")
        if not (np.isfinite(value).all() and (value >= 0).all()):
            raise ValueError(f"dispersion must be finite and not negative, not {value.tolist()}.")
        object.__setattr__(self, "dispersion", np.broadcast_to(value, (k, 1, d)))
        object.__setattr__(self, "squeeze", self.log_rate.squeeze)
        object.__setattr__(self, "identified", self.log_rate.identified)

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return self.log_rate.n_rows

    @property
    def n_outputs(self) -> int:
        """Number of outputs ``d``."""
        return self.log_rate.n_outputs

    def __getitem__(self, rows: Any) -> Counts:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        return replace(self, log_rate=self.log_rate[rows])

    def unsplit(self) -> Counts:
        """Return the same distribution as one whose model and noise part are not told apart."""
        return replace(self, log_rate=self.log_rate.unsplit())

    def marginal(self, outputs: int | Iterable[int]) -> Counts:
        """Return the distribution of some outputs, whatever the others are."""
        outputs = list(outputs) if isinstance(outputs, Iterable) else outputs
        index = outputs if isinstance(outputs, list) else [outputs]
        return replace(
            self, log_rate=self.log_rate.marginal(outputs), dispersion=self.dispersion[..., index]
        )

    @classmethod
    def mixture(cls, members: Sequence[Counts], weights: ArrayLike | None = None) -> Counts:
        """Mixture of predictions of the same rows, each with its own dispersion.

        Parameters
        ----------
        members
            At least one.
        weights
            Shape (members,) or (members, n), normalized here; equal unless given.
        """
        mixture_weights(weights, [member.shape for member in members])
        log_rate = Predictive.mixture([member.log_rate for member in members], weights)
        return cls(log_rate, np.concatenate([member.dispersion for member in members]))

    def with_exposure(self, exposure: ArrayLike) -> Counts:
        """Return the counts of rows that were watched so much longer, or are so much larger.

        Parameters
        ----------
        exposure
            What the rates of each row are multiplied by, positive, shape (n,), or one for each
            output, (n, d).

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Counts(Predictive.gaussian([0.0, 0.0], [0.0, 0.0], 0.0))
        >>> p.with_exposure([1.0, 10.0]).mean.round(6).tolist()
        [1.0, 10.0]
        """
        by = as_float(exposure, "exposure")
        n, d = self.n_rows, self.n_outputs
        if by.shape not in ((n,), (n, d)):
            raise ValueError(f"exposure has shape {by.shape}, not ({n},) or {(n, d)}.")
        if not (np.isfinite(by).all() and (by > 0).all()):
            raise ValueError("exposure must be finite and positive in every row.")
        shift = np.log(by.reshape(n, -1)) / self.log_rate.unit
        mean = self.log_rate.member_mean + shift
        return replace(self, log_rate=replace(self.log_rate, member_mean=mean))

    def _moments(self) -> Moments:
        f, unit = self.log_rate, self.log_rate.unit
        shape = f.member_mean.shape
        model, noise = (
            np.broadcast_to(unit**2 * v, shape) for v in (f._member_model_var(), f.member_noise)
        )
        with mixtures.quiet():
            mean = np.exp(unit * f.member_mean + 0.5 * (model + noise))
            extra = np.expm1(noise) + self.dispersion * np.exp(noise)
            parts = (
                np.expm1(model) * mean**2,
                mean + np.where(extra > 0, np.exp(model) * extra * mean**2, 0.0),
            )
        return total_moments(f.weights, (mean, np.where(model > 0, parts[0], 0.0), parts[1]))

    def _columns(self) -> tuple[Array, ...]:
        """Return weights, means, standard deviations of f and dispersions, each (K, n * d)."""
        mean, std = self.log_rate.member_moments()
        weights = self.log_rate.weights[..., None]
        parts = weights, mean, std, self.dispersion
        return tuple(np.broadcast_to(a, mean.shape).reshape(len(mean), -1) for a in parts)

    def _tail(self, k: Array, *, upper: bool = False) -> Array:
        """Return the probability of at most, or of more than, k, shape (..., n, d)."""
        return _tail(k.reshape(-1, k.shape[-2] * k.shape[-1]), self._columns(), upper).reshape(
            k.shape
        )

    def cdf(self, y: ArrayLike, *, left: bool = False) -> Array:
        """Return ``P(Y <= y)``, or ``P(Y < y)`` if `left`, of each output by itself.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
        left : bool, default False
            The two differ at whole numbers.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Counts(Predictive.gaussian([0.0], [0.0], 0.0))
        >>> p.cdf(1.0).round(4).tolist(), p.cdf(1.0, left=True).round(4).tolist()
        ([0.7358], [0.3679])
        """
        y = self._arranged(y)
        return self._public(self._tail(np.ceil(y) - 1.0 if left else np.floor(y)))

    def survival(self, y: ArrayLike) -> Array:
        """Return ``P(Y > y)``; see `cdf` for shapes."""
        return self._public(self._tail(np.floor(self._arranged(y)), upper=True))

    def quantile(self, alpha: ArrayLike) -> Array:
        """Return the smallest count whose cdf reaches `alpha`, for each output by itself.

        Parameters
        ----------
        alpha : float or array
            Probabilities strictly between 0 and 1.

        Returns
        -------
        array of whole numbers, of shape ``(*public, *alpha.shape)``
        """
        alpha = as_alpha(alpha)
        columns = self._columns()
        found = [_quantile(float(a), columns) for a in alpha.flat]
        shape = (*alpha.shape, self.n_rows, self.n_outputs)
        return self._public(np.array(found).reshape(shape))

    def _member_logs(self, y: Array) -> Array:
        """Return the log probabilities of each member, shape (K, ..., n, d)."""
        mean, std = self.log_rate.member_moments()
        parts = zip(mean, std, self.dispersion, strict=True)
        return np.stack([rates.log_pmf(y, m, s, c) for m, s, c in parts])

    def _mixed(self, logs: Array, weights: Array) -> Array:
        with mixtures.quiet():
            log_w = np.log(weights)
        shape = (len(logs), *[1] * (logs.ndim - log_w.ndim), *log_w.shape[1:])
        return mixtures.log_sum_exp(log_w.reshape(shape) + logs)

    def marginal_logpdf(self, y: ArrayLike) -> Array:
        """Log probability of each output by itself, of the shape of `y`; see `logpdf`."""
        logs = self._member_logs(self._arranged(y))
        return self._public(self._mixed(logs, self.log_rate.weights[..., None]))

    def logpdf(self, y: ArrayLike) -> Array:
        """Log probability of the counts of a row together, shape (n, ...).

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
            Numbers that are not whole, or negative, have probability 0.
        """
        logs = self._member_logs(self._arranged(y)).sum(axis=-1)
        return np.moveaxis(self._mixed(logs, self.log_rate.weights), -1, 0)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw independent rows: array of shape ``(*public, n_samples)``."""
        n_samples, rng = drawing(n_samples, random_state)
        f, shape = self.log_rate, (n_samples, self.n_rows, self.n_outputs)
        z = rng.standard_normal(shape)
        member = mixtures.chosen(f.weights, rng.uniform(size=shape[:2]))[..., None]
        rate, spread = np.empty(shape), np.empty(shape)
        for k in range(f.n_members):
            with mixtures.quiet():
                np.copyto(rate, np.exp(f.unit * f._member_draw(k, z)), where=member == k)
            np.copyto(spread, np.broadcast_to(self.dispersion[k], shape), where=member == k)
        over = np.where(spread > 0, spread, 1.0)
        rate = np.where(spread > 0, rate * rng.standard_gamma(1.0 / over) * over, rate)
        drawn: Array = rng.poisson(np.minimum(rate, _LARGEST_RATE)).astype(np.float64)
        return self._public(drawn)

    def crps(self, y: ArrayLike) -> Array:
        """Ranked probability score: the sum of squared distances of the cdf from the step at y.

        Sums over many counts are taken by Gauss's rule for sums, out to seven standard deviations
        of a count's logarithm; the relative error is below 1e-5.

        Parameters
        ----------
        y : array of the public shape

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Counts(Predictive.gaussian([0.0], [0.0], 0.0)).crps([1.0]).round(4).tolist()
        [0.212]
        """
        y = self._arranged(y)
        columns = self._columns()
        out = np.empty(y.size)
        for block in mixtures.blocks_of(y.size, 512):
            out[block] = _crps(y.reshape(-1)[block], tuple(a[:, block] for a in columns))
        return self._public(out.reshape(y.shape))


Columns = tuple[Array, ...]


def _tail(k: Array, columns: Columns, upper: bool = False) -> Array:
    """Return the probability of at most, or more than, k, (..., N), in mixtures of N columns."""
    total = np.zeros(k.shape)
    for w, m, s, c in zip(*columns, strict=True):
        live = np.flatnonzero(w > 0)
        total[..., live] += w[live] * rates.tail(
            k[..., live], m[live], s[live], c[live], upper=upper
        )
    return np.minimum(total, 1.0)


def _spread(columns: Columns) -> tuple[Array, Array]:
    """Return about the mean and standard deviation of a count's logarithm, of each member."""
    _, m, s, c = columns
    return m, np.sqrt(s**2 + np.log1p(c + np.exp(-np.clip(m, -30.0, 700.0))))


def _quantile(alpha: float, columns: Columns) -> Array:
    """Return the smallest counts whose cdf reaches alpha, (N,), by bisection."""

    def short(k: Array, at: NDArray[np.intp]) -> mixtures.Mask:
        part = tuple(a[:, at] for a in columns)
        if alpha < 0.5:
            return _tail(k, part) < alpha
        return _tail(k, part, upper=True) > 1.0 - alpha  # the smaller tail: its digits are exact

    m, spread = _spread(columns)
    guess = np.where(columns[0] > 0, m + spread * ndtri(alpha), -np.inf)
    high = np.floor(np.exp(np.clip(guess.max(axis=0), -1.0, 680.0)))
    low = np.full(high.shape, -1.0)  # falls short of any alpha
    at = np.arange(len(high))
    while len(at := at[short(high[at], at)]):
        low[at] = high[at]
        high[at] = np.floor(1.5 * high[at] + 1.0)
    # The lower end is as near as the guess was good: down by steps that grow.
    step = np.maximum(1.0, np.floor(0.1 * high))
    at = np.flatnonzero(low < 0)
    while len(at):
        below = np.floor(np.maximum(high[at] - step[at], -1.0))
        reached = ~short(below, at)
        high[at[reached]] = below[reached]
        low[at[~reached]] = below[~reached]
        step[at] *= 2.0
        at = at[reached]
    while len(at := np.flatnonzero(high - low > np.maximum(1.0, 4e-16 * high))):
        middle = np.floor(0.5 * (low[at] + high[at]))
        lacks = short(middle, at)
        low[at[lacks]], high[at[~lacks]] = middle[lacks], middle[~lacks]
    return high


def _crps(y: Array, columns: Columns) -> Array:
    """Return the sum over counts of the squared gap of N columns."""
    m, spread = _spread(columns)
    pooled = np.exp(np.clip(m + _KNOTS[:, None, None] * spread, -1.0, 680.0))
    pooled = np.where(columns[0] > 0, pooled, np.nan).reshape(-1, len(y))
    # As many knots as for one member, however many there are: they mostly agree.
    shares = np.linspace(0.0, 1.0, 2 * len(_KNOTS) if len(m) > 1 else len(_KNOTS))
    knots = np.ceil(np.nanquantile(pooled, shares, axis=0))
    end = np.clip(np.ceil(y), 0.0, knots[-1])
    edges = np.sort(np.concatenate([np.zeros((1, len(y))), knots, end[None]]), axis=0)
    nodes, weights = rates.sum_rule(np.diff(edges, axis=0).ravel())
    start = np.broadcast_to(edges[:-1].ravel()[:, None], nodes.shape)
    column = np.broadcast_to(np.tile(np.arange(len(y)), len(edges) - 1)[:, None], nodes.shape)
    use = weights > 1e-12
    k, column, weight = (start + nodes)[use], column[use], weights[use]
    below = start[use] < end[column]
    part = tuple(a[:, column] for a in columns)
    gap = np.where(below, 1.0, 0.0)
    for side in (True, False):
        at = np.flatnonzero(below == side)
        gap[at] = _tail(k[at], tuple(a[:, at] for a in part), upper=not side)
    total = np.bincount(column, weight * gap**2, minlength=len(y))
    # Between the last knot and y, or y and 0 if it is negative, the cdf is 1, or 0.
    return total + np.abs(y - end)
