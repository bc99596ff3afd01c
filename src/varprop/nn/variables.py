"""Noise variables: anything with a known mean, a known variance and a way to draw from it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import as_float_array, check_all, check_nonnegative
from varprop.moments.gaussian import Gaussian
from varprop.nn.parameters import constant
from varprop.nn.registry import register


class AbstractVariable(eqx.Module):
    """A scalar random variable, drawn independently for each entry it is applied to.

    A variable of your own needs these two methods and nothing else.
    """

    @abstractmethod
    def moments(self) -> Gaussian:
        """Mean and variance, as a Gaussian of shape () or one that broadcasts against the data."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
        """Independent draws of the given shape."""


@register()
class Normal(AbstractVariable):
    """A Gaussian variable.

    Parameters
    ----------
    mean, std
        Scalars (or arrays that broadcast against the data); std >= 0.

    Examples
    --------
    >>> Normal(1.0, 2.0).moments().var.item()
    4.0
    """

    mean: Float[Array, "..."] = constant()
    std: Float[Array, "..."] = constant()

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        self.mean = as_float_array(mean, "mean")
        self.std = as_float_array(std, "std", self.mean.dtype)

    def __check_init__(self):
        check_nonnegative(self.std, "std")

    def moments(self) -> Gaussian:
        """Return the mean and the variance."""
        mean, std = jnp.broadcast_arrays(self.mean, self.std)
        return Gaussian(mean, std**2)

    def sample(self, key, shape, dtype):
        """Draw Gaussian values."""
        draws = jax.random.normal(key, shape, dtype)
        return self.mean.astype(dtype) + self.std.astype(dtype) * draws


@register()
class Bernoulli(AbstractVariable):
    """A variable that is `scale` with probability p and 0 otherwise.

    Parameters
    ----------
    p
        Probability, in [0, 1].
    scale
        The value when it is on. Dropout that keeps the mean has scale 1 / p.

    Examples
    --------
    >>> Bernoulli(0.5, scale=2.0).moments().mean.item()
    1.0
    """

    p: Float[Array, "..."] = constant()
    scale: Float[Array, "..."] = constant()

    def __init__(self, p: Any, scale: Any = 1.0):
        self.p = as_float_array(p, "p")
        self.scale = as_float_array(scale, "scale", self.p.dtype)

    def __check_init__(self):
        check_all(
            (self.p >= 0) & (self.p <= 1),
            self.p,
            "p must be a probability in [0, 1], but is {value:g}{where}.",
        )

    def moments(self) -> Gaussian:
        """Return the mean and the variance."""
        p, scale = jnp.broadcast_arrays(self.p, self.scale)
        return Gaussian(p * scale, p * (1 - p) * scale**2)

    def sample(self, key, shape, dtype):
        """Draw values that are 0 or `scale`."""
        on = jax.random.bernoulli(key, self.p.astype(dtype), shape)
        return jnp.where(on, self.scale.astype(dtype), 0)


@register()
class Uniform(AbstractVariable):
    """A variable uniform between low and high.

    Parameters
    ----------
    low, high
        Scalars with low <= high.

    Examples
    --------
    >>> round(Uniform(0.0, 6.0).moments().var.item(), 6)
    3.0
    """

    low: Float[Array, "..."] = constant()
    high: Float[Array, "..."] = constant()

    def __init__(self, low: Any, high: Any):
        self.low = as_float_array(low, "low")
        self.high = as_float_array(high, "high", self.low.dtype)

    def __check_init__(self):
        check_all(
            self.high >= self.low,
            self.high - self.low,
            "high must not be below low, but high - low is {value:g}{where}.",
        )

    def moments(self) -> Gaussian:
        """Return the mean and the variance."""
        low, high = jnp.broadcast_arrays(self.low, self.high)
        return Gaussian(0.5 * (low + high), (high - low) ** 2 / 12)

    def sample(self, key, shape, dtype):
        """Draw values between low and high."""
        low, high = self.low.astype(dtype), self.high.astype(dtype)
        return low + (high - low) * jax.random.uniform(key, shape, dtype)
