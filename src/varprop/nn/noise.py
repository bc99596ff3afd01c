"""Noise processes: what corrupts inputs, hidden units, weights or biases.

A noise process is a layer, so on inputs and hidden units it stands in a `Sequential`; on weights
and biases it is an argument of `Dense`. One of your own:

>>> import jax, jax.numpy as jnp
>>> from varprop import Gaussian
>>> class SignFlip(AbstractNoise):
...     "Each entry changes its sign with probability p."
...     p: float
...     def moments(self, x):
...         mean = (1 - 2 * self.p) * x.mean
...         return Gaussian(mean, x.second_moment() - mean**2)
...     def corrupt(self, key, x):
...         return jnp.where(jax.random.bernoulli(key, self.p, x.shape), -x, x)
>>> SignFlip(0.5).moments(Gaussian(jnp.ones(2))).var.tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import check_all
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.contract import AbstractElementwise
from varprop.nn.registry import register
from varprop.nn.variables import AbstractVariable, Bernoulli, Normal


class AbstractNoise(AbstractElementwise):
    """A noise process c(x~ | x): authors give `moments` and `corrupt`.

    For covariances between rows, which see the same draw, also `covariance`.
    """

    @abstractmethod
    def moments(self, x: Gaussian) -> Gaussian:
        """Mean and variance of the corrupted value, of the same shape as x."""

    @abstractmethod
    def corrupt(self, key: PRNGKeyArray, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Corrupt an array, independently for each entry."""

    def covariance(self, a, b, cov, *, same):
        """Return that of the means given x, for two components: their noise is independent."""
        if same:
            raise TypeError(
                f"the covariance between rows is not known for {type(self).__name__}: give it a "
                "method `covariance`."
            )

        def slope(x: Gaussian) -> Array:
            def mean(values: Array) -> Array:
                return self.moments(Gaussian(values, x.var)).mean

            return jax.jvp(mean, (x.mean,), (jnp.ones_like(x.mean),))[1]

        return slope(a) * slope(b) * cov

    def sample(self, key: PRNGKeyArray) -> Corruption:
        """Draw one fixed corruption of the units: the same for every row it is called with."""
        return Corruption(self, key)


class Corruption(eqx.Module):
    """One draw of a noise process on the units of a layer: a plain deterministic function.

    All rows of a batch see the same draw (one thinned network); `vmap` over keys gives each its
    own.
    """

    noise: AbstractNoise
    key: PRNGKeyArray

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Corrupt the last axis of x."""
        rows = x.reshape(-1, x.shape[-1])
        # A unit's noise must not depend on how many rows there are, hence one draw per row with the
        # same key rather than one draw for the whole array.
        return eqx.filter_vmap(self.noise.corrupt, in_axes=(None, 0))(self.key, rows).reshape(
            x.shape
        )


def _eps_moments(eps: AbstractVariable, dtype: Any) -> Gaussian:
    moments = eps.moments()
    var = None if moments.var is None else moments.var.astype(dtype)
    return Gaussian(moments.mean.astype(dtype), var)


def _one_size(eps: AbstractVariable, dtype: Any) -> Gaussian:
    moments = _eps_moments(eps, dtype)
    if moments.mean.ndim:
        raise TypeError("covariances are known for noise that is alike for all components only.")
    return moments


class AbstractAdditive(AbstractNoise):
    """x~ = x + eps: E = E[x] + E[eps], V = V[x] + V[eps]."""

    eps: eqx.AbstractVar[AbstractVariable]

    def moments(self, x: Gaussian | JointGaussian) -> Any:
        """Return the moments of the sum of independents, joint if x is."""
        return x + _eps_moments(self.eps, x.dtype)

    def covariance(self, a, b, cov, *, same):
        """Add the variance of the noise, if it is one draw."""
        return cov + _one_size(self.eps, a.dtype).variances() if same else cov

    def corrupt(self, key: PRNGKeyArray, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Add a draw to each entry."""
        return x + self.eps.sample(key, x.shape, x.dtype)


class AbstractMultiplicative(AbstractNoise):
    """x~ = x * eps: E = E[x] E[eps], V = E[x]^2 V[eps] + V[x] E[eps]^2 + V[x] V[eps]."""

    eps: eqx.AbstractVar[AbstractVariable]

    def moments(self, x: Gaussian | JointGaussian) -> Any:
        """Return the moments of the product of independents, joint if x is."""
        return x * _eps_moments(self.eps, x.dtype)

    def covariance(self, a, b, cov, *, same):
        """Scale by the noise's mean, or, if it is one draw, by its second moment and more."""
        eps = _one_size(self.eps, a.dtype)
        own = eps.variances() * (a.mean * b.mean + cov) if same else 0.0
        return eps.mean**2 * cov + own

    def corrupt(self, key: PRNGKeyArray, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Multiply each entry by a draw."""
        return x * self.eps.sample(key, x.shape, x.dtype)


@register()
class AdditiveNoise(AbstractAdditive):
    """x~ = x + eps.

    Parameters
    ----------
    eps
        A variable with known mean and variance.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> AdditiveNoise(Normal(1.0, 2.0)).moments(Gaussian(jnp.zeros(2))).var.tolist()
    [4.0, 4.0]
    """

    eps: AbstractVariable


@register()
class MultiplicativeNoise(AbstractMultiplicative):
    """x~ = x * eps.

    Parameters
    ----------
    eps
        A variable with known mean and variance.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> MultiplicativeNoise(Normal(1.0, 2.0)).moments(Gaussian(jnp.array([3.0]))).var.tolist()
    [36.0]
    """

    eps: AbstractVariable


@register()
class Dropout(AbstractMultiplicative):
    """Fast dropout (Wang & Manning 2013): each entry is 0 with probability `rate`.

    Parameters
    ----------
    rate
        Probability of dropping an entry, in [0, 1). Under `jit`, where it cannot be checked, any
        other rate gives a variance of NaN.
    rescale
        Divide what is kept by 1 - rate, so that the mean is unchanged (the usual convention today).
        False is the original of Hinton et al. and Wang & Manning.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> dropped = Dropout(0.5).moments(Gaussian(jnp.array([2.0])))
    >>> dropped.mean.tolist(), dropped.var.tolist()
    ([2.0], [4.0])
    """

    eps: Bernoulli

    def __init__(self, rate: Any, *, rescale: bool = True):
        self.eps = _kept(rate, rescale)


@register()
class DropConnect(AbstractMultiplicative):
    """DropConnect (Wan et al. 2013): dropout of weights, for ``Dense(weight_noise=...)``.

    Parameters
    ----------
    rate
        Probability of dropping a weight, in [0, 1); unchecked under `jit`, as in `Dropout`.
    rescale
        As in `Dropout`; the original keeps the weights as they are (False).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> DropConnect(0.25).moments(Gaussian(jnp.array([2.0]))).mean.tolist()
    [1.5]
    """

    eps: Bernoulli

    def __init__(self, rate: Any, *, rescale: bool = False):
        self.eps = _kept(rate, rescale)


@register()
class GaussianWeightNoise(AbstractAdditive):
    """Additive zero-mean Gaussian noise of one given size (Graves 2013), on weights or elsewhere.

    Parameters
    ----------
    std
        Standard deviation, >= 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> GaussianWeightNoise(0.5).moments(Gaussian(jnp.zeros(1))).var.tolist()
    [0.25]
    """

    eps: Normal

    def __init__(self, std: Any):
        self.eps = Normal(0.0, std)


def _kept(rate: Any, rescale: bool) -> Bernoulli:
    rate = jnp.asarray(rate, jnp.result_type(float))
    check_all((rate >= 0) & (rate < 1), rate, "rate must lie in [0, 1), but is {value:g}{where}.")
    return Bernoulli(1 - rate, 1 / (1 - rate) if rescale else 1.0)
