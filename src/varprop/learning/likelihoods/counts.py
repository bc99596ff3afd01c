"""Counts: Poisson and negative binomial, with a logarithmic link and an exposure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.data.statistics import Scaling
from varprop.learning.likelihoods.contract import (
    AbstractLikelihood,
    Output,
    at_nodes,
    check_sizes,
    gaussians,
)
from varprop.learning.likelihoods.contract import Component as GaussianComponent
from varprop.learning.likelihoods.given import COUNTS, Given
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import hermite_nodes, square_root
from varprop.nn.registry import register
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.counts import Counts
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel

# Nodes of the quadrature around the mode, and steps to find it.
_N_NODES, _N_STEPS = 20, 8
# Of the logarithm of a dispersion: Poisson to the last digit, and heavier tails than can be told.
_LEAST_DISPERSION, _MOST_DISPERSION = -14.0, 5.0


class LogRate(NamedTuple):
    """The logarithm of the rate at exposure 1, as the network has it."""

    model: Output


class AbstractCounts(AbstractLikelihood):
    """What likelihoods of counts share: y of rate exp(offset_d + f) times the exposure.

    Columns of y are the counts and the logarithms of the exposures. The learned offset starts at
    the logarithm of the mean rate, so that f starts at 0.

    The integral of ROPD, log E p(y | f), is taken by Gauss-Hermite quadrature with 20 nodes about
    the mode of what is integrated, as wide as it is there: within 1e-3 nats (Poisson 1e-5) for
    counts up to a million and V f up to 1.
    """

    offset: eqx.AbstractVar[Float[Array, " d"]]
    column_scaling: ClassVar[tuple[bool, ...]] = (False, False)
    wants_joint: ClassVar[bool] = False
    given: ClassVar[Given] = COUNTS

    @property
    @abstractmethod
    def dispersion(self) -> Float[Array, " d"]:
        """How much more than a Poisson distribution counts vary: Var = rate + dispersion rate^2."""

    @abstractmethod
    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch c"]
    ) -> Float[Array, "*batch d"]:
        """Return the log-probability of the counts given f, for every target by itself."""

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.offset.shape[0]

    @property
    def n_outputs(self) -> int:
        """One for each target: the logarithm of its rate."""
        return self.n_targets

    @property
    def noise_var(self) -> None:
        """None: it depends on the rate."""
        return None

    def floored(self, floor: np.ndarray | None) -> AbstractCounts:
        """Return the same: counts need no floor."""
        return self

    def log_predictive(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return log E[p(y | f)], by quadrature about the mode."""
        check_alone(self, f, y)
        count, log_exposure = jnp.split(y, 2, axis=-1)
        std = square_root(f.variances())
        known = jax.lax.stop_gradient((f.mean + self.offset + log_exposure, std, count))
        mode, width = _mode(*known, jax.lax.stop_gradient(self.dispersion))
        z, w = (jnp.asarray(part, f.dtype) for part in hermite_nodes(_N_NODES))
        z = z.reshape(-1, *[1] * std.ndim)
        at = mode + width * z  # in standard deviations of f
        values = jax.vmap(self.log_prob, in_axes=(0, None))(f.mean + std * at, y)
        log_weight = jnp.log(w).reshape(z.shape) + 0.5 * (z * z - at * at)
        found = jax.nn.logsumexp(values + log_weight, axis=0) + jnp.log(width)
        return jnp.sum(found, axis=-1)

    def predictive(self, f: Output) -> tuple[LogRate, ...]:
        """Return the logarithm of the rate."""
        return (LogRate(Gaussian(f.mean + self.offset, f.variances())),)

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return counts at exposure 1."""
        plain = Scaling.identity(0, self.n_targets)
        no_noise: Any = np.zeros(self.n_targets)
        latent = [GaussianComponent(1.0, parts[0].model, no_noise)]
        dispersion = np.asarray(self.dispersion, np.float64)
        return Counts(gaussians(latent, plain, squeeze=squeeze), dispersion)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return the mean rate and the dispersion by moments, and how uncertain its logarithm is.

        Rows that count half a unit in all stand in for no count at all.
        """
        count, exposure = np.split(y, 2, axis=1)
        exposure = np.exp(exposure)
        weight = np.ones(len(y)) if weight is None else weight
        rate = np.maximum(weight @ count, 0.5) / (weight @ exposure)
        mean = rate * exposure
        more = weight @ ((count - mean) ** 2 - mean) / (weight @ mean**2)
        return np.concatenate([np.log(rate), np.maximum(more, 0.0)])

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the negative binomial distribution of the training counts' mean and variance.

        Of few rows the logarithm of the mean is not known: by the delta method, its variance is
        (1 / rate + dispersion) / rows.
        """
        log_rate, dispersion = np.split(numbers, 2)
        var = np.zeros_like(log_rate)
        if n_seen is not None and n_seen > 1:
            var = (np.exp(-log_rate) + dispersion) / n_seen
        parts = (log_rate, np.minimum(var, 1.0), np.zeros_like(var))
        mean, model, noise = (part[None, None] for part in parts)
        return Counts(Predictive(mean, model, noise, np.ones((1, 1)), squeeze), dispersion)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return the distribution at each row's exposure, and the counts."""
        count, log_exposure = np.split(y, 2, axis=1)
        return prediction.with_exposure(np.exp(log_exposure[:, 0])), count  # type: ignore[attr-defined]


@register("poisson")
class Poisson(AbstractCounts):
    """Counts whose variance is their rate.

        VI     y (E f + o) - exp(E f + V f / 2 + o) - log y!        o: offset + log exposure

    Parameters
    ----------
    offset
        Where f is 0: the logarithm of a rate, shape (d,).

    Examples
    --------
    >>> likelihood = Poisson(jnp.zeros(1))
    >>> f, y = Gaussian(jnp.zeros((1, 1)), 0.5), jnp.array([[2.0, 0.0]])  # the exposure is 1
    >>> print(f"{likelihood.expected_log_prob(f, y)[0]:.4f}")
    -1.9772
    """

    offset: Float[Array, " d"]

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> Poisson:
        """Start at the mean rate, or at 1."""
        return cls(_start(n_targets, y)[0])

    @property
    def dispersion(self) -> Float[Array, " d"]:
        """None at all."""
        return jnp.zeros_like(self.offset)

    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch c"]
    ) -> Float[Array, "*batch d"]:
        """Return y log rate - rate - log y!."""
        count, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = f + self.offset + log_exposure
        return count * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(count + 1)

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)], in closed form."""
        check_alone(self, f, y)
        count, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = f.mean + self.offset + log_exposure
        mean_rate = jnp.exp(log_rate + 0.5 * f.variances())
        return jnp.sum(count * log_rate - mean_rate - jax.lax.lgamma(count + 1), axis=-1)


@register("negative-binomial")
class NegativeBinomial(AbstractCounts):
    """Counts that vary more than their rate says: Var = rate + a rate^2, a learned.

    VI takes E[log p(y | f)] by Gauss-Hermite quadrature with 32 nodes: within 1e-6 nats for V f up
    to 1, relative to a count of 1.

    Parameters
    ----------
    offset
        Where f is 0: the logarithm of a rate, shape (d,).
    log_dispersion
        Logarithm of a, shape (d,).

    Examples
    --------
    >>> likelihood = NegativeBinomial(jnp.zeros(1), jnp.zeros(1))
    >>> f, y = Gaussian(jnp.zeros((1, 1))), jnp.array([[0.0, 0.0]])
    >>> print(f"{jnp.exp(likelihood.log_predictive(f, y)[0]):.2f}")
    0.50
    """

    offset: Float[Array, " d"]
    log_dispersion: Float[Array, " d"]

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> NegativeBinomial:
        """Start at the mean rate, or at 1, with the dispersion about it."""
        return cls(*_start(n_targets, y))

    @property
    def dispersion(self) -> Float[Array, " d"]:
        """The dispersion a of each target."""
        log = jnp.asarray(self.log_dispersion)
        return jnp.exp(jnp.clip(log, _LEAST_DISPERSION, _MOST_DISPERSION))

    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch c"]
    ) -> Float[Array, "*batch d"]:
        """Return the log-probability, in a form that tends to the Poisson's."""
        count, log_exposure = jnp.split(y, 2, axis=-1)
        log_rate = f + self.offset + log_exposure
        a = self.dispersion
        # log Gamma(y + 1/a) - log Gamma(1/a) + y log a = sum of log(1 + a j) over j below y.
        rising = _log_rising(count, a)
        spread = jax.nn.softplus(log_rate + jnp.log(a))
        return count * (log_rate - spread) - spread / a + rising - jax.lax.lgamma(count + 1)

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Average log p(y | f) over the nodes."""
        values, weights = at_nodes(self, f, y)
        return jnp.sum(jnp.tensordot(weights, values, 1), axis=-1)


def check_alone(likelihood: AbstractLikelihood, f: Output, y: Array) -> None:
    """Raise unless sizes fit and every output comes by itself."""
    check_sizes(likelihood, f, y)
    if isinstance(f, JointGaussian):
        raise TypeError(
            f"{type(likelihood).__name__} takes every target by itself: leave out the covariance "
            "between outputs."
        )


def _start(n_targets: int, y: np.ndarray | None) -> tuple[Array, Array]:
    """Return the logarithms of mean rate and dispersion."""
    numbers = np.zeros((2, n_targets))
    if y is not None:
        numbers = AbstractCounts.constant_numbers(y, None).reshape(2, n_targets)
        numbers[1] = np.log(np.clip(numbers[1], 0.05, 5.0))
    rate, dispersion = (jnp.asarray(part, jnp.result_type(float)) for part in numbers)
    return rate, dispersion


def _log_rising(count: Array, a: Array) -> Array:
    """Return log Gamma(y + 1/a) - log Gamma(1/a) + y log a, with no difference of large numbers.

    Stirling's series after eight factors: within 1e-9 of the exact value, and of the dtype's
    rounding.
    """
    total = jnp.zeros_like(count * a)
    for j in range(8):
        total = total + jnp.where(count > j, jnp.log1p(a * j), 0.0)
    # The rest, from j = 8 on: with s = 1/a + 8 and n = y - 8, log Gamma(s + n) - log Gamma(s).
    n = jnp.maximum(count - 8, 0.0)
    s = 1 / a + 8
    ratio = n / s
    log_ratio = jnp.log1p(ratio)
    # s log(1 + n / s) - n is small for large s, though both are large.
    near = ratio < 0.1
    less = _log1p_less(jnp.where(near, ratio, 0.0))  # powers of a large ratio would overflow
    small = s * jnp.where(near, less, log_ratio - ratio)
    series = _stirling(s + n) - _stirling(s)
    return total + n * jnp.log1p(8 * a) + (n - 0.5) * log_ratio + small + series


def _log1p_less(x: Array) -> Array:
    """Return log(1 + x) - x for small x."""
    total = jnp.zeros_like(x)
    for k in range(10, 1, -1):
        total = total * x + (-1.0) ** (k + 1) / k
    return total * x * x


def _stirling(s: Array) -> Array:
    """Return the first terms of Stirling's series, log Gamma(s) less its leading ones."""
    t = 1 / (s * s)
    return (1 / 12 - t * (1 / 360 - t * (1 / 1260 - t / 1680))) / s


def _mode(log_rate: Array, std: Array, count: Array, a: Array) -> tuple[Array, Array]:
    """Return mode and width, in x, of p(y | exp(log_rate + std x)) N(x | 0, 1).

    The Poisson's mode is Lambert's function W: with u = V e^{log rate + V y} it lies at
    x std = V y - W(u). That of more dispersed counts lies between it and 0, found by Newton's
    steps kept between the two.
    """
    var = std * std
    safe = jnp.where(var > 0, var, 1.0)
    log_u = jnp.log(safe) + log_rate + var * count
    large = log_u - jnp.log(jnp.maximum(log_u, 1.0))
    w = jnp.where(log_u > 1, large, jnp.exp(jnp.minimum(log_u, 1.0)))
    w = jnp.maximum(w, jnp.finfo(w.dtype).tiny)
    for _ in range(5):
        w = w * (1 + log_u - jnp.log(w)) / (1 + w)
        w = jnp.maximum(w, jnp.finfo(w.dtype).tiny)
    end = jnp.where(var > 0, (var * count - w) / jnp.where(var > 0, std, 1.0), 0.0)
    low, high, x = jnp.minimum(end, 0.0), jnp.maximum(end, 0.0), end
    for _ in range(_N_STEPS):
        rate = jnp.exp(jnp.minimum(log_rate + std * x, 80.0))
        damped = 1 / (1 + a * rate)
        gradient = std * (count - rate) * damped - x
        low, high = jnp.where(gradient > 0, x, low), jnp.where(gradient > 0, high, x)
        curvature = 1 + var * (rate * damped) * ((1 + a * count) * damped)
        step = x + gradient / curvature
        x = jnp.where((step > low) & (step < high), step, 0.5 * (low + high))
    rate = jnp.exp(jnp.minimum(log_rate + std * x, 80.0))
    damped = 1 / (1 + a * rate)
    # In pairs that neither overflow nor underflow: counts may be large, and rates far larger.
    return x, jax.lax.rsqrt(1 + var * (rate * damped) * ((1 + a * count) * damped))
