"""Targets that are known up to bounds: detection limits, survival times, rounded numbers."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.data.statistics import Scaling
from varprop.learning.likelihoods.contract import (
    AbstractLikelihood,
    Component,
    Output,
    at_nodes,
    gaussians,
)
from varprop.learning.likelihoods.counts import check_alone
from varprop.learning.likelihoods.gaussian import GaussianLikelihood
from varprop.learning.likelihoods.given import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    BOUNDS,
    EXACT,
    Given,
    exponentials,
)
from varprop.learning.likelihoods.transformed import behind, constant_log_normal, same_noise
from varprop.moments.numerics import LOG_2PI
from varprop.nn.registry import register
from varprop.predictive.bounds import Bounded, constant_fit
from varprop.predictive.contract import AbstractContinuous, AbstractPredictive
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel
from varprop.predictive.simple import constant_var
from varprop.predictive.warps import Log

# In standard deviations, the width below which an interval's probability is its middle's density.
_NARROW = 0.03


class AbstractCensored(AbstractLikelihood):
    """What Gaussian likelihoods share whose targets are known exactly, or up to bounds, row by row.

    Columns of y are a value, how it is known (exactly; the target is at most, or at least, the
    value; it lies between value and upper bound), and the upper bound.

        p(y | f) = N(value | f, std^2)      where the target is known exactly, else
                   P(lower < f + eps < upper)

    ROPD has the same with V f + std^2 in place of std^2, exactly. VI has closed form for known
    targets; for others E[log P] is taken by Gauss-Hermite quadrature with 32 nodes: within 1e-3
    nats where V f is at most std^2, and 0.05 where it is ten times that.
    """

    noise: eqx.AbstractVar[GaussianLikelihood]
    column_scaling: ClassVar[tuple[bool, ...]] = (True, False, True)
    wants_joint: ClassVar[bool] = False
    given: ClassVar[Given] = BOUNDS

    @abstractmethod
    def __init__(self, noise: GaussianLikelihood):
        pass

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> AbstractCensored:
        """Return the same noise for all targets."""
        return cls(same_noise(n_targets, noise_std))

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.noise.n_targets

    @property
    def n_outputs(self) -> int:
        """One for each target: its mean."""
        return self.noise.n_outputs

    def floored(self, floor: np.ndarray | None) -> AbstractCensored:
        """Return the same noise, as far as it can be, above a floor or with none."""
        return dataclasses.replace(self, noise=self.noise.floored(floor))

    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch c"]
    ) -> Float[Array, "*batch d"]:
        """Return log p(y | f) for every target by itself."""
        return log_observed(f, self.noise.noise_var, y)

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)], in closed form where targets are known, else over nodes."""
        check_alone(self, f, y)
        values, weights = at_nodes(self, f, y)
        value, code, _ = jnp.split(y, 3, axis=-1)
        var = self.noise.noise_var
        spread = (value - f.mean) ** 2 + f.variances()
        exact = -0.5 * (LOG_2PI + jnp.log(var) + spread / var)
        return jnp.sum(jnp.where(code == EXACT, exact, jnp.tensordot(weights, values, 1)), axis=-1)

    def log_predictive(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return the log-density, or log-probability, of what is known."""
        check_alone(self, f, y)
        return jnp.sum(log_observed(f.mean, f.variances() + self.noise.noise_var, y), axis=-1)

    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return the Gaussian of the target itself."""
        return self.noise.predictive(f)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return mean and spread of the Gaussian that makes the bounds most likely."""
        fits = []
        for value, code, upper in zip(*(part.T for part in np.split(y, 3, axis=1)), strict=True):
            low = np.where(code == AT_MOST, -np.inf, value)
            high = np.where(code == AT_LEAST, np.inf, upper)
            fits.append(constant_fit(low, high, weight))
        return np.array(fits).T.ravel()


@register("censored")
class CensoredGaussian(AbstractCensored):
    """y = f + eps with eps ~ N(0, std_d^2), of which some rows are known up to bounds only.

    `FAWNRegressor` takes y of shape (rows, 2), lower and upper bound: equal where the target is
    known, -inf and inf where there is none. It predicts the target itself.

    Parameters
    ----------
    noise
        Its Gaussian.

    Examples
    --------
    >>> from varprop import Gaussian
    >>> likelihood = CensoredGaussian(GaussianLikelihood(jnp.ones(1)))
    >>> y = jnp.array([[0.0, 2.0, 0.0]])  # at least 0
    >>> print(f"{jnp.exp(likelihood.log_predictive(Gaussian(jnp.zeros((1, 1)), 3.0), y))[0]:.2f}")
    0.50
    """

    noise: GaussianLikelihood

    def __init__(self, noise: GaussianLikelihood):
        self.noise = noise

    @property
    def noise_var(self) -> Float[Array, " d"]:
        """Variance of the noise."""
        return self.noise.noise_var

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return the Gaussian in the targets' units."""
        return gaussians(parts, scaling, squeeze=squeeze, between=between)

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the Gaussian of these numbers."""
        mean, std = np.split(numbers, 2)
        zeros = np.zeros((1, 1, len(mean)))
        noise = zeros + std**2 * constant_var(n_seen)
        return Predictive(zeros + mean, zeros, noise, np.ones((1, 1)), squeeze)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return what is to be judged by the probability of the bounds, and the values."""
        return _bounded(prediction, y)


@register("censored-log-normal")
class CensoredLogNormal(AbstractCensored):
    """log y = f + eps, eps ~ N(0, std_d^2), some rows known up to bounds: durations, amounts.

    As `CensoredGaussian`, of positive targets: a lower bound of 0 is none, like -inf.

    Parameters
    ----------
    noise
        Of the standardized logarithm.

    Examples
    --------
    >>> CensoredLogNormal.start(1).n_outputs
    1
    """

    noise: GaussianLikelihood
    logged: ClassVar[bool] = True

    def __init__(self, noise: GaussianLikelihood):
        self.noise = noise

    @property
    def noise_var(self) -> None:
        """None: in the target's units it depends on where the target lies."""
        return None

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return the log-normal distribution in the targets' units."""
        warp = Log(scaling.y_scale, scaling.y_shift)
        return behind(parts, warp, squeeze=squeeze, between=between)

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the log-normal distribution of these numbers."""
        return constant_log_normal(numbers, n_seen=n_seen, squeeze=squeeze)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return what is to be judged by the probability of the bounds, and the values."""
        return _bounded(prediction, exponentials(y, cls.column_scaling))


def _bounded(prediction: AbstractPredictive, y: np.ndarray) -> tuple[Bounded, np.ndarray]:
    value, code, upper = np.split(y, 3, axis=1)
    assert isinstance(prediction, AbstractContinuous)
    lower = np.where(code == AT_MOST, -np.inf, value)
    return Bounded(prediction, lower, np.where(code == AT_LEAST, np.inf, upper)), value


def log_observed(mean: Array, var: Array, y: Array) -> Array:
    """Return the log-density or log-probability of what is known, under N(mean, var).

    Parameters
    ----------
    mean, var
        Shape (..., d).
    y
        Value, how it is known and upper bound: shape (..., 3 d).
    """
    value, code, upper = jnp.split(y, 3, axis=-1)
    inverse = jax.lax.rsqrt(jnp.broadcast_to(var, value.shape))
    z = (value - mean) * inverse
    exact = -0.5 * (LOG_2PI + z * z) + jnp.log(inverse)
    side = jax.scipy.special.log_ndtr(jnp.where(code == AT_LEAST, -z, z))
    # Of what is no interval any width will do.
    width = jnp.where(code == BETWEEN, (upper - value) * inverse, 1.0)
    inside = log_interval(z, width)
    return jnp.where(code == EXACT, exact, jnp.where(code == BETWEEN, inside, side))


def log_interval(z: Array, width: Array) -> Array:
    """Return log(Phi(z + width) - Phi(z)) for width > 0, to the dtype's precision in the tails.

    By log Phi at both ends, mirrored so that they lie on the left, where the logarithm keeps its
    digits; an interval narrower than 0.03 by the density in its middle m,
    log phi(m) + log width + log(sinh(m width / 2) / (m width / 2)) - width^2 / 24,
    off by less than width^4.
    """
    middle = z + 0.5 * width
    slope = jnp.abs(0.5 * middle * width)
    safe = jnp.maximum(slope, 1e-3)
    steep = jnp.where(
        slope > 1e-3, safe + jnp.log(-jnp.expm1(-2 * safe) / (2 * safe)), slope * slope / 6
    )
    narrow = -0.5 * (LOG_2PI + middle * middle) + jnp.log(width) + steep - width * width / 24
    wide = jnp.where(width > _NARROW, width, 1.0)
    left = jnp.where(middle > 0, -(z + wide), z)
    log_low = jax.scipy.special.log_ndtr(left)
    log_high = jax.scipy.special.log_ndtr(left + wide)
    apart = jnp.maximum(log_high - log_low, jnp.finfo(z.dtype).tiny)
    whole = log_high + jnp.log(-jnp.expm1(-apart))
    return jnp.where(width > _NARROW, whole, narrow)
