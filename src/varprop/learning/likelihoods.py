"""What is observed, given the network's output: a likelihood goes with a model to the end.

It says how many outputs of the network it needs for its targets, whether these are standardized,
where its noise starts and what it cannot fall below, and what distribution comes out. The two
objectives of the paper differ in one call: VI takes `expected_log_prob`, ROPD `log_predictive`.

One of your own has `AbstractPointwise` do the integrals, from log p(y | f) alone; see
docs/how-to/your-own.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.moments.checks import array_module, as_float_array, check_nonnegative, check_positive
from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import LOG_2PI, hermite_nodes, square_root
from varprop.nn.parameters import constant
from varprop.nn.registry import register

Output = Gaussian | JointGaussian
# Of the noise's log-variance, to either side of its constant: a factor of 20 in std.
_LOG_VAR_BOUND = 6.0


class Component(NamedTuple):
    """One Gaussian of a target's predictive distribution, in its two parts.

    Attributes
    ----------
    weight
        Of the component; those of a distribution sum to 1.
    model
        The target without noise, shape (..., d): what the model is unsure of.
    noise_var
        Variance of the noise, shape (..., d) or (d,).
    """

    weight: Any
    model: Output
    noise_var: Float[Array, "..."]

    @property
    def total(self) -> Output:
        """Both parts together."""
        return self.model + Gaussian(jnp.zeros_like(self.noise_var), self.noise_var)


class AbstractLikelihood(eqx.Module):
    """The distribution of d targets given the network's (uncertain) output."""

    #: Whether targets are shifted and scaled to mean 0 and variance 1, or taken as they are.
    scales_targets: eqx.AbstractClassVar[bool]
    #: Whether it wants the covariance between the network's outputs.
    wants_joint: eqx.AbstractClassVar[bool]

    @classmethod
    @abstractmethod
    def start(cls, n_targets: int, *, noise_std: float = 0.5) -> AbstractLikelihood:
        """Return where learning starts; the noise is in units of the targets' own spread."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Number of targets d."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs the network needs for them."""

    @property
    @abstractmethod
    def noise_var(self) -> Float[Array, " d"] | None:
        """Variance of the noise of each target; None if it is not one number for all rows."""

    @abstractmethod
    def floored(self, floor: np.ndarray | None) -> AbstractLikelihood:
        """Return the same, with noise that cannot fall below a standard deviation, shape (d,).

        None releases the floor: what is kept after training has as much noise, by its parameters.
        """

    @abstractmethod
    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)] over the distribution of f, per row."""

    @abstractmethod
    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log E[p(y | f)] over the (Gaussian) distribution of f, per row."""

    @abstractmethod
    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return the distribution of y as a mixture of Gaussians, usually of one."""


class AbstractPointwise(AbstractLikelihood):
    """One output for each target, which depends on it alone; authors give `log_prob`.

    Both objectives are integrals over one output, taken by Gauss-Hermite quadrature with 32 nodes:
    spectrally accurate for densities that are smooth over the output's standard deviation, and off
    by a few hundredths of a nat where the noise is a tenth of it.
    """

    scales_targets: ClassVar[bool] = True
    wants_joint: ClassVar[bool] = False

    @abstractmethod
    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """Return log p(y | f) for every target by itself."""

    @property
    def n_outputs(self) -> int:
        """As many as there are targets."""
        return self.n_targets

    @property
    def noise_var(self) -> None:
        """Not known here."""
        return None

    def floored(self, floor: np.ndarray | None) -> AbstractPointwise:
        """Return the same: this noise knows no floor."""
        return self

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Average log p(y | f) over the nodes."""
        values, weights = self._at_nodes(f, y)
        return jnp.sum(jnp.tensordot(weights, values, 1), axis=-1)

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Average p(y | f) over the nodes."""
        values, weights = self._at_nodes(f, y)
        log_weights = jnp.log(weights).reshape(-1, *[1] * (values.ndim - 1))
        return jnp.sum(jax.nn.logsumexp(values + log_weights, axis=0), axis=-1)

    def _at_nodes(self, f: Output, y: Array) -> tuple[Array, Array]:
        _check_sizes(self, f, y)
        if isinstance(f, JointGaussian):
            raise TypeError(
                f"{type(self).__name__} takes every target by itself: leave out the covariance "
                "between outputs."
            )
        z, w = (jnp.asarray(part, f.dtype) for part in hermite_nodes(32))
        spread = square_root(f.variances())
        nodes = z.reshape(-1, *[1] * f.mean.ndim)
        return jax.vmap(self.log_prob, in_axes=(0, None))(f.mean + nodes * spread, y), w


class AbstractGaussianNoise(AbstractLikelihood):
    """What Gaussian likelihoods share: a learned standard deviation per target, and a floor."""

    log_std: eqx.AbstractVar[Float[Array, " d"]]
    floor: eqx.AbstractVar[Float[Array, "..."] | None]
    scales_targets: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, std: Any, *, floor: Any = None):
        pass

    @classmethod
    def start(cls, n_targets: int, *, noise_std: float = 0.5) -> AbstractGaussianNoise:
        """Return the same noise for all targets."""
        return cls(np.full(n_targets, noise_std, jnp.result_type(float)))

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.log_std.shape[0]

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density of the one Gaussian of `predictive`, joint over outputs if f is."""
        _check_sizes(self, f, y)
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
        var = np.exp(2 * np.asarray(self.log_std, np.float64))
        if self.floor is not None:
            var = var + np.asarray(self.floor, np.float64) ** 2
        dtype = np.dtype(self.log_std.dtype)
        if floor is None:
            return type(self)(np.sqrt(var).astype(dtype))
        above = np.maximum(var - floor**2, 1e-6 * var)
        return type(self)(np.sqrt(above).astype(dtype), floor=floor.astype(dtype))

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log N(y | E[f], std^2) - V[f] / (2 std^2), summed over outputs.

        Covariances between outputs play no part, since the noise is independent.
        """
        _check_sizes(self, f, y)
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
    through a, (E l')^2 V a. For Gaussian (f, l) both objectives are in closed form:

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
        _check_sizes(self, f, y)
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
        log_var = _LOG_VAR_BOUND * jax.lax.erf(at)
        noise = Gaussian(log_var + 2 * self.log_std, slope**2 * log_var_var)
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


def _check_sizes(likelihood: AbstractLikelihood, f: Output, y: Array) -> None:
    outputs, targets = likelihood.n_outputs, likelihood.n_targets
    if f.shape[-1] != outputs or y.shape[-1] != targets:
        raise ValueError(
            f"the likelihood has {targets} targets and needs {outputs} outputs of the network, but "
            f"the network gives {f.shape[-1]} and the targets are {y.shape[-1]}."
        )
