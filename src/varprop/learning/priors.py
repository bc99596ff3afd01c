"""Priors over the weights of a network, learned like any other parameter or fixed.

A prior says which distribution the weights of each layer are compared with; the KL divergence is
then the weights' own business. One of your own is a class with one method:

>>> import equinox as eqx, jax, jax.numpy as jnp
>>> from varprop import Gaussian
>>> from varprop.nn import mlp
>>> class WiderWithDepth(AbstractPrior):
...     std: jax.Array
...     def distribution(self, layer, weights):
...         return Gaussian(jnp.zeros(()), (self.std * (1 + layer)) ** 2)
>>> prior = WiderWithDepth(jnp.array(0.5))
>>> prior.kl(mlp(2, 1, key=jax.random.key(0))).shape
()
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from varprop.moments.checks import array_module, as_float_array, check_all, check_positive
from varprop.moments.gaussian import Gaussian
from varprop.nn.parameters import constant
from varprop.nn.registry import register
from varprop.nn.variables import Bernoulli
from varprop.nn.weights import (
    AbstractWeights,
    BernoulliWeights,
    GaussianWeights,
    PointWeights,
)

__all__ = [
    "AbstractPrior",
    "AutomaticRelevance",
    "FixedBernoulli",
    "FixedGaussian",
    "LearnedBernoulli",
    "LearnedGaussian",
    "LearnedGaussianPerLayer",
    "default_prior",
    "weights_by_layer",
]


def weights_by_layer(network: PyTree) -> list[list[AbstractWeights]]:
    """Return the distributions over weights in a network, grouped by the layer that holds them.

    Examples
    --------
    >>> import jax
    >>> from varprop.nn import mlp
    >>> [[w.shape for w in layer] for layer in weights_by_layer(mlp(3, 1, key=jax.random.key(0)))]
    [[(50, 3), (50,)], [(1, 50), (1,)]]
    """
    nodes, _ = jax.tree_util.tree_flatten_with_path(
        network, is_leaf=lambda node: isinstance(node, AbstractWeights)
    )
    layers: dict[tuple, list[AbstractWeights]] = {}
    for path, node in nodes:
        if isinstance(node, AbstractWeights):
            layers.setdefault(path[:-1], []).append(node)
    return list(layers.values())


class AbstractPrior(eqx.Module):
    """A prior over all weights of a network; authors give `distribution`.

    A class whose `distribution` is a scalar that is the same for all layers may say so by
    ``per_layer = False``: all Gaussian weights are then compared in one go, which is faster.
    """

    per_layer: ClassVar[bool] = True

    @abstractmethod
    def distribution(self, layer: int, weights: AbstractWeights) -> Any:
        """Return what an array of weights or biases of a layer is compared with.

        A `Gaussian` for Gaussian weights, a `varprop.nn.Bernoulli` for Bernoulli weights; its shape
        is () or one that broadcasts against the array.
        """

    def kl(self, network: PyTree) -> Float[Array, ""]:
        """Return the KL divergence of all weights in the network to this prior.

        Point weights bring no prior and pay nothing.
        """
        layers = weights_by_layer(network)
        if not self.per_layer:
            together = [weights for layer in layers for weights in layer]
            gaussian = [weights for weights in together if isinstance(weights, GaussianWeights)]
            others = [weights for weights in together if not isinstance(weights, GaussianWeights)]
            layers = [([GaussianWeights.joined(gaussian)] if gaussian else []) + others]
        total = None
        for number, layer in enumerate(layers):
            for weights in layer:
                if isinstance(weights, PointWeights):
                    continue
                part = weights.kl(self.distribution(number, weights))
                total = part if total is None else total + part
        return jnp.zeros(()) if total is None else total


@register()
class LearnedGaussian(AbstractPrior):
    """The paper's prior: one N(mean, std^2) for all weights and biases, both numbers learned.

    Parameters
    ----------
    mean, std
        Where learning starts; std positive.

    Examples
    --------
    >>> LearnedGaussian().mean.shape
    ()
    """

    per_layer: ClassVar[bool] = False
    mean: Float[Array, ""]
    log_std: Float[Array, ""]

    def __init__(self, mean: Any = 0.0, std: Any = 0.2):
        self.mean, self.log_std = _mean_and_log_std(mean, std, ())

    def distribution(self, layer: int, weights: AbstractWeights) -> Gaussian:
        """Return the same Gaussian for every layer."""
        return Gaussian(self.mean, jnp.exp(2 * self.log_std))


@register()
class LearnedGaussianPerLayer(AbstractPrior):
    """One learned Gaussian per layer, shared by its weights and biases.

    Parameters
    ----------
    n_layers
        Number of layers with weights.
    mean, std
        Where learning starts; std positive.

    Examples
    --------
    >>> LearnedGaussianPerLayer(2).log_std.shape
    (2,)
    """

    mean: Float[Array, " layers"]
    log_std: Float[Array, " layers"]

    def __init__(self, n_layers: int, mean: Any = 0.0, std: Any = 0.2):
        self.mean, self.log_std = _mean_and_log_std(mean, std, (n_layers,))

    def distribution(self, layer: int, weights: AbstractWeights) -> Gaussian:
        """Return the layer's own Gaussian."""
        if layer >= self.mean.shape[0]:
            raise ValueError(
                f"the prior has {self.mean.shape[0]} layers, but the network has a layer number "
                f"{layer + 1}."
            )
        return Gaussian(self.mean[layer], jnp.exp(2 * self.log_std[layer]))


@register()
class FixedGaussian(AbstractPrior):
    """One given N(mean, std^2) for all weights and biases.

    Parameters
    ----------
    mean, std
        The prior; std positive.

    Examples
    --------
    >>> from varprop.nn.parameters import count_parameters
    >>> count_parameters(FixedGaussian(0.0, 1.0))
    0
    """

    per_layer: ClassVar[bool] = False
    mean: Float[Array, ""] = constant()
    log_std: Float[Array, ""] = constant()

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        self.mean, self.log_std = _mean_and_log_std(mean, std, ())

    def distribution(self, layer: int, weights: AbstractWeights) -> Gaussian:
        """Return the same Gaussian for every layer."""
        return Gaussian(self.mean, jnp.exp(2 * self.log_std))


@register("ard")
class AutomaticRelevance(AbstractPrior):
    """N(0, s^2) with a scale s for each group of weights, put in at its optimum.

    Groups are what leaves one input, in the first layer, and the weights of every other layer. The
    best s^2 is the group's mean of E[w]^2 + V[w]; the divergence there is

        KL = 1/2 sum_w log(s^2 / V[w]),

    which does not change when a group is rescaled: an input that is of no use is shrunk for free.
    No scale falls below 1e-6, which is nothing for standardized inputs. Biases are compared with
    N(0, 1): near zero they would be taken as known, for free, and what is not known of the
    intercept would be lost.

    Examples
    --------
    >>> import jax
    >>> from varprop.nn import mlp
    >>> layer = mlp(3, 1, key=jax.random.key(0)).layers[0]
    >>> AutomaticRelevance().distribution(0, layer.weight).var.shape
    (1, 3)
    """

    def distribution(self, layer: int, weights: AbstractWeights) -> Gaussian:
        """Return the best Gaussian of each group."""
        found = jax.lax.stop_gradient(weights.moments())
        if found.mean.ndim < 2:
            one = jnp.ones((), found.mean.dtype)
            return Gaussian(0 * one, one)
        by_input = layer == 0
        squares = found.mean**2 + found.variances()
        square = jnp.mean(squares, axis=0 if by_input else None, keepdims=by_input)
        # At its optimum the divergence does not depend on the scale, so no gradient is lost.
        return Gaussian(jnp.zeros_like(square), jnp.maximum(square, 1e-12))


@register()
class LearnedBernoulli(AbstractPrior):
    """The Bernoulli counterpart of the paper's prior: one learned probability for all bits.

    Parameters
    ----------
    p
        Where learning starts, in (0, 1).

    Examples
    --------
    >>> LearnedBernoulli(0.5).logit.item()
    0.0
    """

    logit: Float[Array, ""]

    def __init__(self, p: Any = 0.5):
        self.logit = _logit(p)

    def distribution(self, layer: int, weights: AbstractWeights) -> Bernoulli:
        """Return the same Bernoulli for every layer."""
        return Bernoulli(jax.nn.sigmoid(self.logit))


@register()
class FixedBernoulli(AbstractPrior):
    """One given probability for all bits.

    Parameters
    ----------
    p
        The prior probability, in (0, 1).

    Examples
    --------
    >>> FixedBernoulli(0.5).logit.item()
    0.0
    """

    logit: Float[Array, ""] = constant()

    def __init__(self, p: Any = 0.5):
        self.logit = _logit(p)

    def distribution(self, layer: int, weights: AbstractWeights) -> Bernoulli:
        """Return the same Bernoulli for every layer."""
        return Bernoulli(jax.nn.sigmoid(self.logit))


def default_prior(network: PyTree) -> AbstractPrior:
    """Return the learned prior that fits the network's weights, in the network's dtype.

    Examples
    --------
    >>> import jax
    >>> from varprop.nn import BernoulliWeights, mlp
    >>> network = mlp(2, 1, key=jax.random.key(0), weights=BernoulliWeights.init)
    >>> type(default_prior(network)).__name__
    'LearnedBernoulli'
    """
    flat = [weights for layer in weights_by_layer(network) for weights in layer]
    dtype = flat[0].moments().dtype if flat else jnp.result_type(float)
    if any(isinstance(weights, BernoulliWeights) for weights in flat):
        return LearnedBernoulli(jnp.asarray(0.5, dtype))
    return LearnedGaussian(jnp.asarray(0.0, dtype), jnp.asarray(0.2, dtype))


def _mean_and_log_std(mean: Any, std: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    mean = as_float_array(mean, "mean")
    std = as_float_array(std, "std", mean.dtype)
    check_positive(std, "std")
    xp = array_module(mean, std)
    both = (xp.asarray(mean), xp.log(xp.asarray(std)))
    mean, log_std = (jnp.asarray(xp.broadcast_to(value, shape)) for value in both)
    return mean, log_std


def _logit(p: Any) -> Array:
    p = as_float_array(p, "p")
    xp = array_module(p)
    p = xp.asarray(p)
    check_all((p > 0) & (p < 1), p, "p must lie strictly between 0 and 1, but is {value:g}{where}.")
    return jnp.asarray(xp.log(p) - xp.log1p(-p))
