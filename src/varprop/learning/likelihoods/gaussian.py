"""Gaussian noise: of one size for each target, or of a size that depends on the input."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.learning.likelihoods.contract import (
    AbstractGaussianMixture,
    Component,
    Output,
    check_sizes,
)
from varprop.moments.checks import array_module, as_float_array, check_nonnegative, check_positive
from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import LOG_2PI
from varprop.nn.parameters import constant
from varprop.nn.registry import register

# Of the noise's log-variance, to either side of its constant: a factor of 20 in std.
_LOG_VAR_BOUND = 6.0


class AbstractGaussianNoise(AbstractGaussianMixture):
    """What Gaussian likelihoods share: a learned standard deviation per target, and a floor."""

    log_std: eqx.AbstractVar[Float[Array, " d"]]
    floor: eqx.AbstractVar[Float[Array, "..."] | None]

    @abstractmethod
    def __init__(self, std: Any, *, floor: Any = None):
        pass

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> AbstractGaussianNoise:
        """Return the same noise for all targets, wherever they lie."""
        return cls(np.full(n_targets, noise_std, jnp.result_type(float)))

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.log_std.shape[0]

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density of the one Gaussian of `predictive`, joint over outputs if f is."""
        check_sizes(self, f, y)
        total = self.predictive(f)[0].total
        if isinstance(total, JointGaussian):
            return total.log_prob(y)
        # Noise keeps the variance positive, so the plain formula will do.
        var = total.variances()
        error = y - total.mean
        return -0.5 * jnp.sum(LOG_2PI + jnp.log(var) + error * error / var, axis=-1)


@register("gaussian")
class GaussianLikelihood(AbstractGaussianNoise):
    """y = f + eps with eps ~ N(0, std_d^2) independent for each output d, learned with the rest.

    Parameters
    ----------
    std
        Where learning starts: shape (d,), positive.
    floor
        Standard deviation below which the noise cannot fall, shape (d,) or (); none unless given.
        Without it the density of targets that repeat (whole numbers, say) has no bound: see
        `varprop.data.Statistics`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> likelihood = GaussianLikelihood(jnp.ones(1))
    >>> f = Gaussian(jnp.zeros((1, 1)), 3.0)
    >>> likelihood.predictive(f)[0].total.var.tolist()
    [[4.0]]
    >>> y = jnp.zeros((1, 1))
    >>> print(f"{likelihood.expected_log_prob(f, y)[0]:.4f}")
    -2.4189
    >>> print(f"{likelihood.log_predictive(f, y)[0]:.4f}")
    -1.6121
    """

    log_std: Float[Array, " d"]
    floor: Float[Array, "..."] | None = constant()
    wants_joint: ClassVar[bool] = False

    def __init__(self, std: Any, *, floor: Any = None):
        self.log_std, self.floor = _log_std_and_floor(std, floor)

    @property
    def n_outputs(self) -> int:
        """One for each target: its mean."""
        return self.n_targets

    @property
    def noise_var(self) -> Float[Array, " d"]:
        """The noise variance of each output."""
        var = jnp.exp(2 * self.log_std)
        return var if self.floor is None else var + self.floor**2

    def floored(self, floor: np.ndarray | None) -> GaussianLikelihood:
        """Return the same noise, as far as it can be, above a floor or with none."""
        std, floor = released(self.log_std, self.floor, floor)
        return type(self)(std, floor=floor)

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log N(y | E[f], std^2) - V[f] / (2 std^2), summed over outputs.

        Covariances between outputs play no part, since the noise is independent.
        """
        check_sizes(self, f, y)
        var = self.noise_var
        spread = (y - f.mean) ** 2
        if isinstance(f, JointGaussian) or f.var is not None:
            spread = spread + f.variances()
        log_var = 2 * self.log_std if self.floor is None else jnp.log(var)
        return -0.5 * jnp.sum(spread / var + (LOG_2PI + log_var), axis=-1)

    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return the output and the noise."""
        return (Component(1.0, f, self.noise_var),)


@register("heteroscedastic")
class HeteroscedasticGaussian(AbstractGaussianNoise):
    """y = f + eps with noise that depends on the input: eps ~ N(0, exp(l)).

    For d targets the network has 2 d outputs: d means f, then d outputs a that say how the noise's
    log-variance l differs from a learned constant. It is bounded, so that no row, however far from
    the others, is given noise of any size:

        l = 2 log std + B erf(sqrt(pi) a / (2 B)),    B = 6: a factor of 20 in std to either side.

    E l is exact for Gaussian a, and so is the covariance c of f and l; V l is that of l's best line
    through a, (E l')^2 V a, or, if that is less, what bounds allow: so that an output as good as
    unknown has no noise, or precision, beyond them. For Gaussian (f, l) both objectives are in
    closed form:

        VI     -1/2 [log 2 pi + E l + exp(-E l + V l / 2) (V f + (E f - c - y)^2)]
        ROPD   log N(y | E f, V f + exp(E l + V l / 2))

    Against the integral over (f, a) this is off by less than 0.01 nats for V a <= 0.3.

    A floor on the noise is noise of its own on top. It enters VI by the bound that counts it among
    what f is unsure of.

    Parameters
    ----------
    std
        The constant's start: shape (d,), positive.
    floor
        As in `GaussianLikelihood`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> likelihood = HeteroscedasticGaussian(jnp.ones(1))
    >>> likelihood.n_targets, likelihood.n_outputs
    (1, 2)
    >>> f = Gaussian(jnp.array([[0.0, 2.0]]), jnp.array([[3.0, 0.0]]))
    >>> print(f"{likelihood.predictive(f)[0].noise_var[0, 0]:.3f}")  # nearly exp(2)
    6.982
    """

    log_std: Float[Array, " d"]
    floor: Float[Array, "..."] | None = constant()
    wants_joint: ClassVar[bool] = True

    def __init__(self, std: Any, *, floor: Any = None):
        self.log_std, self.floor = _log_std_and_floor(std, floor)

    @property
    def n_outputs(self) -> int:
        """Two for each target: mean and log-variance."""
        return 2 * self.n_targets

    @property
    def noise_var(self) -> None:
        """None: it depends on the input."""
        return None

    def floored(self, floor: np.ndarray | None) -> HeteroscedasticGaussian:
        """Return the same with another floor; what a floor adds cannot be released."""
        if floor is None:
            return self
        dtype = np.dtype(self.log_std.dtype)
        std = np.exp(np.asarray(self.log_std, np.float64)).astype(dtype)
        return type(self)(std, floor=floor.astype(dtype))

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return E[log N(y | f, exp(l))], summed over targets."""
        check_sizes(self, f, y)
        mean, log_var, cov = self._split(f)
        spread = mean.variances() if self.floor is None else mean.variances() + self.floor**2
        precision = jnp.exp(0.5 * log_var.variances() - log_var.mean)
        error = mean.mean - cov - y
        return -0.5 * jnp.sum(LOG_2PI + log_var.mean + precision * (spread + error**2), axis=-1)

    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return the means, and the noise at its expected variance."""
        mean, log_var, _ = self._split(f)
        noise = jnp.exp(log_var.mean + 0.5 * log_var.variances())
        return (Component(1.0, mean, noise if self.floor is None else noise + self.floor**2),)

    def _split(self, f: Output) -> tuple[Output, Gaussian, Array]:
        """Return means, log-variances, and their covariance target by target."""
        cut = [self.n_targets]
        mean, log_var = jnp.split(f.mean, cut, axis=-1)
        var, log_var_var = jnp.split(f.variances(), cut, axis=-1)
        # erf(c a) has slope 1 at 0; the mean of its slope is that of a bell, by Stein's lemma.
        c = 0.5 * math.sqrt(math.pi) / _LOG_VAR_BOUND
        wide = jax.lax.rsqrt(1 + 2 * c**2 * log_var_var)
        at = c * log_var * wide
        slope = jnp.exp(-(at**2)) * wide
        middle = jax.lax.erf(at)
        log_var = _LOG_VAR_BOUND * middle
        # What lies within bounds has no larger E exp(l) or E exp(-l) than the two ends have with
        # its mean: a line's would be hundreds of times as large for an output as good as unknown.
        most = _most_var(middle)
        own_var = slope**2 * log_var_var
        slope = slope * jnp.where(own_var > most, jnp.sqrt(most / jnp.maximum(own_var, most)), 1.0)
        noise = Gaussian(log_var + 2 * self.log_std, jnp.minimum(own_var, most))
        if not isinstance(f, JointGaussian):
            return Gaussian(mean, var), noise, jnp.zeros_like(mean)
        if isinstance(f.cov, DiagonalPlusLowRank):
            ours, theirs = jnp.split(f.cov.factor, cut, axis=-1)
            cov = jnp.einsum("...n,...nd,...nd->...d", f.cov.weight, ours, theirs)
            diagonal, _ = jnp.split(f.cov.diagonal, cut, axis=-1)
            own: Any = DiagonalPlusLowRank(diagonal, f.cov.weight, ours)
        else:
            d = self.n_targets
            cov = jnp.diagonal(f.cov[..., :d, d:], axis1=-2, axis2=-1)
            own = f.cov[..., :d, :d]
        joint = self.n_targets > 1
        return JointGaussian(mean, own) if joint else Gaussian(mean, var), noise, slope * cov


def _most_var(middle: Array) -> Array:
    """Return the variance of a Gaussian l that has the largest E exp(l) and E exp(-l) there are.

    Of l between -B and B with mean B x: log E exp(-l) is at most that of B and -B themselves,
    log((1 - x) e^B + (1 + x) e^-B) - log 2, and for a Gaussian V / 2 - B x. The lesser of the two.
    """
    size = jnp.abs(middle)
    # The end that is nearer to the mean has less room.
    ends = jnp.log(0.5 * (1 + size) + 0.5 * (1 - size) * math.exp(-2 * _LOG_VAR_BOUND))
    room = ends + _LOG_VAR_BOUND * (1 - size)
    return 2 * jnp.maximum(room, 1e-6)


def released(
    log_std: Any, before: Any, floor: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return standard deviation and floor of the same noise, as far as it can be.

    Parameters
    ----------
    log_std, before
        Of the noise above its floor, and that floor, if there is one.
    floor
        The new one, shape (d,); None for none.
    """
    var = np.exp(2 * np.asarray(log_std, np.float64))
    if before is not None:
        var = var + np.asarray(before, np.float64) ** 2
    dtype = np.dtype(log_std.dtype)
    if floor is None:
        return np.sqrt(var).astype(dtype), None
    above = np.maximum(var - floor**2, 1e-6 * var)
    return np.sqrt(above).astype(dtype), floor.astype(dtype)


def _log_std_and_floor(std: Any, floor: Any) -> tuple[Array, Array | None]:
    std = as_float_array(std, "std")
    if std.ndim != 1:
        raise ValueError(f"std must have one entry per target, but has shape {std.shape}.")
    check_positive(std, "std")
    xp = array_module(std)
    if floor is not None:
        floor = as_float_array(floor, "floor")
        check_nonnegative(floor, "floor")
    return jnp.asarray(xp.log(xp.asarray(std))), floor
