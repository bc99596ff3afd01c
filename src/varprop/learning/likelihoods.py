"""What is observed, given the network's output: Gaussian noise of learned size.

The two objectives of the paper differ in one call: VI takes `expected_log_prob`, ROPD takes
`log_predictive`. A likelihood of your own needs these three methods.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from varprop.moments.checks import array_module, as_float_array, check_nonnegative, check_positive
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import LOG_2PI
from varprop.nn.parameters import constant

Output = Gaussian | JointGaussian


class AbstractLikelihood(eqx.Module):
    """The distribution of a target given the network's (uncertain) output."""

    @abstractmethod
    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)] over the distribution of f, per row."""

    @abstractmethod
    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log E[p(y | f)] over the (Gaussian) distribution of f, per row."""

    @abstractmethod
    def predictive(self, f: Output) -> Output:
        """Return the distribution of y: the output's with the noise added."""


class GaussianLikelihood(AbstractLikelihood):
    """y = f + eps with eps ~ N(0, std_d^2) independent for each output d, learned with the rest.

    Parameters
    ----------
    std
        Where learning starts: shape (d,), positive.
    floor
        Standard deviation below which the noise cannot fall, shape (d,) or (); none unless given.
        Without it the density of targets that repeat (whole numbers, say) has no bound: see
        `varprop.data.noise_floor`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> likelihood = GaussianLikelihood(jnp.ones(1))
    >>> f = Gaussian(jnp.zeros((1, 1)), 3.0)
    >>> likelihood.predictive(f).var.tolist()
    [[4.0]]
    >>> y = jnp.zeros((1, 1))
    >>> print(f"{likelihood.expected_log_prob(f, y)[0]:.4f}")
    -2.4189
    >>> print(f"{likelihood.log_predictive(f, y)[0]:.4f}")
    -1.6121
    """

    log_std: Float[Array, " d"]
    floor: Float[Array, "..."] | None = constant()

    def __init__(self, std: Any, *, floor: Any = None):
        std = as_float_array(std, "std")
        if std.ndim != 1:
            raise ValueError(f"std must have one entry per output, but has shape {std.shape}.")
        check_positive(std, "std")
        xp = array_module(std)
        self.log_std = jnp.asarray(xp.log(xp.asarray(std)))
        self.floor = None
        if floor is not None:
            self.floor = as_float_array(floor, "floor")
            check_nonnegative(self.floor, "floor")

    @property
    def var(self) -> Float[Array, " d"]:
        """The noise variance of each output."""
        var = jnp.exp(2 * self.log_std)
        return var if self.floor is None else var + self.floor**2

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return log N(y | E[f], std^2) - V[f] / (2 std^2), summed over outputs.

        Covariances between outputs play no part, since the noise is independent.
        """
        var = self._matching_var(f, y)
        spread = (y - f.mean) ** 2
        if isinstance(f, JointGaussian) or f.var is not None:
            spread = spread + f.variances()
        log_var = 2 * self.log_std if self.floor is None else jnp.log(var)
        return -0.5 * jnp.sum(spread / var + (LOG_2PI + log_var), axis=-1)

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density of N(E[f], V[f] + std^2), joint over outputs for a JointGaussian."""
        self._matching_var(f, y)
        predictive = self.predictive(f)
        if isinstance(predictive, JointGaussian):
            return predictive.log_prob(y)
        # Noise keeps the variance positive, so the plain formula will do.
        var = predictive.variances()
        error = y - predictive.mean
        return -0.5 * jnp.sum(LOG_2PI + jnp.log(var) + error * error / var, axis=-1)

    def predictive(self, f: Output) -> Output:
        """Add the noise variance to the output's."""
        return f + Gaussian(jnp.zeros_like(self.log_std), self.var)

    def _matching_var(self, f: Output, y: Array) -> Array:
        d = self.log_std.shape[0]
        if f.shape[-1] != d or y.shape[-1] != d:
            raise ValueError(
                f"the likelihood has {d} outputs, but the network gives {f.shape[-1]} and the "
                f"targets have {y.shape[-1]}."
            )
        return self.var
