"""Distributions over weights: their moments, a sample, their number of parameters, their KL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import (
    array_module,
    as_float_array,
    check_all,
    check_positive,
    check_shape,
)
from varprop.moments.gaussian import Gaussian
from varprop.nn.parameters import count_parameters
from varprop.nn.registry import register
from varprop.nn.variables import Bernoulli

Prior = TypeVar("Prior")

_LEAST_DRAWN = 1024  # normal numbers at a time: a fraction of a millisecond


class AbstractWeights(eqx.Module, Generic[Prior]):
    """A distribution over one array of independent weights.

    `Prior` is the type of distribution its KL divergence is taken to.
    """

    @abstractmethod
    def moments(self) -> Gaussian:
        """Mean and variance of each weight (var is None for weights that are points)."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """Draw one array of weights, differentiable in the parameters where that is possible."""

    @abstractmethod
    def kl(self, prior: Prior) -> Float[Array, ""]:
        """KL divergence to independent draws from the prior, summed over the weights."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of weights."""

    @property
    def n_parameters(self) -> int:
        """How many numbers describe the distribution."""
        return count_parameters(self)


@register("gaussian")
class GaussianWeights(AbstractWeights[Gaussian]):
    """Independent Gaussian weights (the paper's q).

    The standard deviation is stored as its logarithm, so every value of the parameters is valid.

    Parameters
    ----------
    mean
        Any shape.
    std
        Same shape, or a scalar for all; positive. Under `jit`, where it cannot be checked, a
        negative one gives NaN, and 0 a weight without variance.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> weights = GaussianWeights(jnp.zeros((3, 2)), 0.5)
    >>> weights.n_parameters, weights.kl(Gaussian(0.0, 0.25)).item()
    (12, 0.0)
    """

    mean: Float[Array, "*shape"]
    log_std: Float[Array, "*shape"]

    def __init__(self, mean: Any, std: Any):
        self.mean = as_float_array(mean, "mean")
        std = as_float_array(std, "std", self.mean.dtype)
        check_positive(std, "std")
        xp = array_module(std)
        if std.ndim == 0:
            std = xp.broadcast_to(xp.asarray(std), self.mean.shape)
        check_shape(std, self.mean.shape, "std", "it must match the mean")
        self.log_std = jnp.asarray(xp.log(xp.asarray(std)))

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        shape: tuple[int, ...],
        *,
        scale: float = 0.2,
        std: float = 0.05,
        dtype: Any = None,
    ) -> GaussianWeights:
        """Draw a start: means from N(0, scale^2) as in the paper, all standard deviations `std`."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        return cls(_normal(key, shape, scale, dtype), jnp.asarray(std, dtype))

    @classmethod
    def joined(cls, parts: Sequence[GaussianWeights]) -> GaussianWeights:
        """Return the weights of several arrays as one vector, for what treats all alike."""
        mean = jnp.concatenate([jnp.ravel(part.mean) for part in parts])
        log_std = jnp.concatenate([jnp.ravel(part.log_std) for part in parts])
        return eqx.tree_at(lambda part: (part.mean, part.log_std), parts[0], (mean, log_std))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of weights."""
        return self.mean.shape

    def moments(self) -> Gaussian:
        """Return mean and variance."""
        return Gaussian(self.mean, jnp.exp(2 * self.log_std))

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """Draw by reparametrization: mean + std * eps."""
        eps = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * eps

    def kl(self, prior: Gaussian) -> Float[Array, ""]:
        """KL[q || prior] in closed form, summed; the prior broadcasts against the weights.

        The prior's variance must be positive; under `jit` one of 0 gives NaN.
        """
        if not isinstance(prior, Gaussian) or prior.var is None:
            given = "a point" if isinstance(prior, Gaussian) else type(prior).__name__
            raise TypeError(
                "prior must be a Gaussian with a variance: the KL of Gaussian weights to "
                f"{given} is not finite."
            )
        check_positive(prior.var, "the prior's var")
        # The ratio of variances is exp of a difference of logs, so that neither can overflow alone;
        # expm1 keeps the digits where posterior and prior nearly agree.
        log_ratio = 2 * self.log_std - jnp.log(prior.var)
        shift = (self.mean - prior.mean) ** 2 / prior.var
        return 0.5 * jnp.sum(jnp.expm1(log_ratio) - log_ratio + shift)


@register("bernoulli")
class BernoulliWeights(AbstractWeights[Bernoulli]):
    """Binary weights w = (b - 1/2) s with b ~ Bernoulli(p): half the parameters of Gaussian ones.

    E[w] = (p - 1/2) s and V[w] = p (1 - p) s^2. Stored as the logit of p and the logarithm of s.

    Parameters
    ----------
    p
        Probabilities in (0, 1), any shape. Under `jit`, where they cannot be checked, 0 and 1 give
        a weight without variance, and anything beyond gives NaN.
    scale
        The scaler s > 0: a scalar shared by all weights (one per layer, the default), or an array
        of the shape of p (one per weight).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> weights = BernoulliWeights(jnp.full((3, 2), 0.75), 2.0)
    >>> print(f"{weights.moments().mean[0, 0]:.3f} {weights.moments().var[0, 0]:.3f}")
    0.500 0.750
    >>> weights.n_parameters  # six probabilities and one scale
    7
    """

    logit: Float[Array, "*shape"]
    log_scale: Float[Array, "*#shape"]

    def __init__(self, p: Any, scale: Any = 1.0):
        p = as_float_array(p, "p")
        check_all(
            (p > 0) & (p < 1), p, "p must lie strictly between 0 and 1, but is {value:g}{where}."
        )
        self.logit = jnp.log(p) - jnp.log1p(-p)
        scale = as_float_array(scale, "scale", self.logit.dtype)
        check_positive(scale, "scale")
        if scale.ndim:
            check_shape(scale, p.shape, "scale", "it must be a scalar or match p")
        self.log_scale = jnp.log(scale)

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        shape: tuple[int, ...],
        *,
        logit_scale: float = 1.0,
        scale: float = 8**0.5,
        per_weight: bool = False,
        dtype: Any = None,
    ) -> BernoulliWeights:
        """Draw a start: logits from N(0, logit_scale^2), scalers by the number of weights summed.

        Parameters
        ----------
        key, shape
            As usual; the last of two axes is the fan-in.
        logit_scale
            Spread of the logits.
        scale
            The scaler of a matrix starts at scale / sqrt(fan-in). Since E[w^2] = s^2 / 4, the
            default, sqrt(8), keeps the size of a signal through rectifiers (He et al. 2015). That
            of a vector of biases starts at a tenth of `scale`: a bias is not summed with others, so
            nothing else would hide that it has only two values.
        per_weight
            One scaler per weight instead of one for all.
        dtype
            Floating dtype.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        logit = _normal(key, shape, logit_scale, dtype)
        start = jnp.asarray(scale / shape[-1] ** 0.5 if len(shape) > 1 else 0.1 * scale, dtype)
        return cls(jax.nn.sigmoid(logit), jnp.full(shape, start) if per_weight else start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of weights."""
        return self.logit.shape

    def moments(self) -> Gaussian:
        """Return mean and variance."""
        p, scale = jax.nn.sigmoid(self.logit), jnp.exp(self.log_scale)
        # sigmoid(-l) instead of 1 - p: no digits are lost where p is near 1.
        var = p * jax.nn.sigmoid(-self.logit) * scale**2
        # p - 1/2 = tanh(l / 2) / 2, exact also near 0.
        return Gaussian(0.5 * jnp.tanh(0.5 * self.logit) * scale, var)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """Draw weights that are +s/2 or -s/2 (differentiable in s only)."""
        on = jax.random.bernoulli(key, jax.nn.sigmoid(self.logit), self.shape)
        half = 0.5 * jnp.exp(self.log_scale)
        return jnp.where(on, half, -half)

    def kl(self, prior: Bernoulli) -> Float[Array, ""]:
        """KL[q || prior] of the bits b, summed. The scalers are parameters, not random."""
        if not isinstance(prior, Bernoulli):
            raise TypeError(
                "prior must be a Bernoulli: the KL of Bernoulli weights to "
                f"{type(prior).__name__} is not finite."
            )
        log_p, log_q = jax.nn.log_sigmoid(self.logit), jax.nn.log_sigmoid(-self.logit)
        on, off = jnp.log(prior.p), jnp.log1p(-prior.p)
        return jnp.sum(jnp.exp(log_p) * (log_p - on) + jnp.exp(log_q) * (log_q - off))


@register()
class PointWeights(AbstractWeights[None]):
    """Weights that are exactly known: those of an ordinary network.

    Parameters
    ----------
    value
        Any shape.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> PointWeights(jnp.ones(3)).moments().var is None
    True
    """

    value: Float[Array, "*shape"]

    def __init__(self, value: Any):
        self.value = as_float_array(value, "value")

    @classmethod
    def init(
        cls, key: PRNGKeyArray, shape: tuple[int, ...], *, scale: float = 0.2, dtype: Any = None
    ) -> PointWeights:
        """Draw a start from N(0, scale^2)."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        return cls(_normal(key, shape, scale, dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of weights."""
        return self.value.shape

    def moments(self) -> Gaussian:
        """Return the values with no variance at all."""
        return Gaussian(self.value)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """Return the values."""
        return self.value

    def kl(self, prior: None = None) -> Float[Array, ""]:
        """Return 0: a point has no finite KL to a density, so it has no prior and pays nothing."""
        if prior is not None:
            raise TypeError(
                "prior must be None: the KL of point weights to a density is not finite."
            )
        return jnp.zeros((), self.value.dtype)


def _normal(
    key: PRNGKeyArray, shape: tuple[int, ...], scale: float, dtype: Any
) -> Float[Array, "..."]:
    # JAX compiles a program for every shape it draws. A draw depends on its place in the whole, not
    # on how much follows, so that a few lengths serve all arrays with the very same numbers.
    size = int(np.prod(shape, dtype=int))
    draws = jax.random.normal(key, (max(_LEAST_DRAWN, 1 << (size - 1).bit_length()),), dtype)
    xp = array_module(draws, scale)
    return jnp.asarray(xp.asarray(draws)[:size].reshape(shape) * xp.asarray(scale, dtype))
