"""A Gaussian behind a monotone transform of the target: skewed and positive targets."""

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
    gaussians,
)
from varprop.learning.likelihoods.gaussian import GaussianLikelihood
from varprop.learning.likelihoods.given import exponentials
from varprop.nn.registry import register
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel
from varprop.predictive.simple import constant_gaussian, constant_var
from varprop.predictive.warped import Warped
from varprop.predictive.warps import AbstractWarp, Log, YeoJohnson

# Of the odds of a power: beyond, it is 0 or 2 to the last digit that counts.
_MOST_ODDS = 15.0
# Nats a row that a transform must be worth to a constant Gaussian, for networks to be tried.
_WORTH = 0.02


class AbstractTransformed(AbstractLikelihood):
    """What likelihoods share that see T(y) = f + eps, eps ~ N(0, std_d^2), T increasing.

    Both objectives are the Gaussian's of T(y) plus log T'(y): exact.
    """

    noise: eqx.AbstractVar[GaussianLikelihood]
    column_scaling: ClassVar[tuple[bool, ...]] = (True,)
    wants_joint: ClassVar[bool] = False

    @abstractmethod
    def transformed(
        self, y: Float[Array, "*batch d"]
    ) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
        """Return T(y) and log T'(y) of targets as training sees them."""

    @abstractmethod
    def warp(self, scaling: Scaling) -> AbstractWarp:
        """Return T of targets in their units."""

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.noise.n_targets

    @property
    def n_outputs(self) -> int:
        """One for each target."""
        return self.noise.n_outputs

    @property
    def noise_var(self) -> None:
        """None: in the target's units it depends on where the target lies."""
        return None

    def floored(self, floor: np.ndarray | None) -> AbstractTransformed:
        """Return the same above a floor of T(y), whose slope is 1 in the middle of the targets."""
        return dataclasses.replace(self, noise=self.noise.floored(floor))

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return E[log N(T(y) | f, std^2)] + log T'(y), summed over targets."""
        z, log_slope = self.transformed(y)
        return self.noise.expected_log_prob(f, z) + jnp.sum(log_slope, axis=-1)

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log N(T(y) | E f, V f + std^2) + log T'(y), joint over targets if f is."""
        z, log_slope = self.transformed(y)
        return self.noise.log_predictive(f, z) + jnp.sum(log_slope, axis=-1)

    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return the Gaussian of T(y)."""
        return self.noise.predictive(f)

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return the Gaussian behind the transform, in the targets' units."""
        return behind(parts, self.warp(scaling), squeeze=squeeze, between=between)


def same_noise(n_targets: int, std: float) -> GaussianLikelihood:
    """Return noise of one size for all targets, in JAX's float type of the moment."""
    return GaussianLikelihood(np.full(n_targets, std, jnp.result_type(float)))


def behind(
    parts: Sequence[Any],
    warp: AbstractWarp,
    *,
    squeeze: bool,
    between: AbstractRowKernel | None = None,
) -> Warped:
    """Return Gaussian `Component`s of what a warp makes of the targets."""
    plain = Scaling.identity(0, parts[0].model[0].shape[-1])
    return Warped(gaussians(parts, plain, squeeze=squeeze, between=between), warp)


@register("yeo-johnson")
class YeoJohnsonLikelihood(AbstractTransformed):
    """A Gaussian behind the transform of Yeo and Johnson, its power learned: skewed targets.

    T of the standardized target is ((1 + y)^p - 1) / p for y >= 0 and minus the same of -y with
    2 - p in place of p for y < 0. p lies between 0 and 2; 1, where it starts, changes nothing, less
    shortens a tail to the right, more one to the left.

    Parameters
    ----------
    noise
        Of T(y).
    odds
        Logarithm of p / (2 - p), shape (d,).

    Examples
    --------
    >>> likelihood = YeoJohnsonLikelihood.start(1)
    >>> z, log_slope = likelihood.transformed(jnp.array([[-0.5], [3.0]]))
    >>> [f"{at:.3f}" for at in z[:, 0]], likelihood.power.tolist()
    (['-0.500', '3.000'], [1.0])
    """

    noise: GaussianLikelihood
    odds: Float[Array, " d"]

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> YeoJohnsonLikelihood:
        """Return no transform at all."""
        noise = same_noise(n_targets, noise_std)
        return cls(noise, jnp.zeros(n_targets, noise.log_std.dtype))

    @classmethod
    def worth_trying(cls, y: np.ndarray, weight: np.ndarray | None) -> bool:
        """Return whether the best transform makes a constant Gaussian of some target likelier.

        By more than 0.02 nats a row. Of twelve tables all are below 0.008 or above 0.13; on those
        below, networks behind a transform predicted worse than ones whose noise depends on the
        input (docs/likelihoods.md).
        """
        powers = np.linspace(0.0, 2.0, 21)
        likeliest = np.max([_log_density(y, weight, power) for power in powers], axis=0)
        return bool(np.max(likeliest - _log_density(y, weight, 1.0)) > _WORTH)

    @property
    def power(self) -> Float[Array, " d"]:
        """The power p of each target."""
        return 2 * jax.nn.sigmoid(jnp.clip(jnp.asarray(self.odds), -_MOST_ODDS, _MOST_ODDS))

    def transformed(
        self, y: Float[Array, "*batch d"]
    ) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
        """Return T(y) and log T'(y)."""
        # The odds of the other side, not 2 - p, which would lose the digits of a small one.
        odds = jnp.clip(jnp.asarray(self.odds), -_MOST_ODDS, _MOST_ODDS)
        power = 2 * jax.nn.sigmoid(jnp.where(y >= 0, odds, -odds))
        log = jnp.log1p(jnp.abs(y))
        size = jnp.expm1(power * log) / power
        return jnp.where(y >= 0, size, -size), (power - 1) * log

    def warp(self, scaling: Scaling) -> AbstractWarp:
        """Return the transform of standardized targets, in their units."""
        power = np.asarray(self.power, np.float64)
        return YeoJohnson(power, scaling.y_shift, scaling.y_scale)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return nothing: the simplest model is the Gaussian of the scaling."""
        return np.empty(0)

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the constant Gaussian."""
        return constant_gaussian(scaling, 1, n_seen=n_seen, squeeze=squeeze)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return both as they are."""
        return prediction, y


def _log_density(y: np.ndarray, weight: np.ndarray | None, power: float) -> np.ndarray:
    """Return the mean log density of the best Gaussian behind a power, but for a constant: (d,)."""
    warp = YeoJohnson(power, 0.0, 1.0)
    z = warp.forward(y)
    apart = z - np.average(z, axis=0, weights=weight)
    var = np.average(apart**2, axis=0, weights=weight)
    slope = np.average(warp.log_slope(y), axis=0, weights=weight)
    return slope - 0.5 * np.log(np.maximum(var, np.finfo(np.float64).tiny))


@register("log-normal")
class LogNormal(AbstractTransformed):
    """log y = f + eps with eps ~ N(0, std_d^2): positive targets, whose errors are relative.

    Training sees the standardized logarithm of the targets; a training loss is of that.

    Parameters
    ----------
    noise
        Of the standardized logarithm.

    Examples
    --------
    >>> LogNormal.start(2).n_outputs
    2
    """

    noise: GaussianLikelihood
    logged: ClassVar[bool] = True

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> LogNormal:
        """Return the same noise for all targets."""
        return cls(same_noise(n_targets, noise_std))

    def transformed(
        self, y: Float[Array, "*batch d"]
    ) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
        """Return y itself, a logarithm already."""
        return y, jnp.zeros_like(y)

    def warp(self, scaling: Scaling) -> AbstractWarp:
        """Return the standardized logarithm."""
        return Log(scaling.y_scale, scaling.y_shift)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return mean and spread of the logarithms."""
        mean = np.average(y, axis=0, weights=weight)
        std = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
        return np.concatenate([mean, np.where(std > 0, std, 1.0)])

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the log-normal distribution of these."""
        return constant_log_normal(numbers, n_seen=n_seen, squeeze=squeeze)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return the targets themselves."""
        return prediction, exponentials(y, cls.column_scaling)


def constant_log_normal(numbers: np.ndarray, *, n_seen: int | None, squeeze: bool) -> Warped:
    """Return one row of log-normal distributions, given means and spreads of the logarithms."""
    mean, std = np.split(numbers, 2)
    zeros = np.zeros((1, 1, len(mean)))
    latent = Predictive(zeros, zeros, zeros + constant_var(n_seen), np.ones((1, 1)), squeeze)
    return Warped(latent, Log(std, mean))
