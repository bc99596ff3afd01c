"""Dense, JointDense (full output covariance), Sequential, and mlp() that puts them together."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.gaussian import Gaussian, JointGaussian, add_variances, as_gaussian
from varprop.nn.activations import AbstractActivation, ReLU
from varprop.nn.contract import AbstractLayer, Adjoint, Linearized
from varprop.nn.noise import AbstractNoise
from varprop.nn.plain import Affine, Chain
from varprop.nn.propagation import FEW_OUTPUTS, by_pairs, checked_propagation, pushed_through
from varprop.nn.registry import register
from varprop.nn.weights import AbstractWeights, GaussianWeights

WeightInit = Callable[[PRNGKeyArray, tuple[int, ...]], AbstractWeights]


def linear_moments(
    x: Gaussian,
    weight: Gaussian,
    bias: Gaussian | None = None,
    *,
    columns: bool = False,
    own: bool = False,
) -> tuple[Float[Array, "..."], Float[Array, "..."] | None]:
    """Return mean and variance of W x + b, all entries independent: the linear rule.

    E = E[W] E[x] + E[b] and V = E[W^2] V[x] + V[W] E[x]^2 + V[b], the squares entry by entry. What
    an exactly known part would contribute is not computed.

    Parameters
    ----------
    x
        Rows of shape (..., n).
    weight, bias
        Shapes (m, n) and (m,).
    columns
        Whether x is one batch with rows as columns, (n, rows), and the result likewise.
    own
        Leave out E[W]^2 V[x], which outputs share: what remains is independent between outputs.

    Returns
    -------
    mean, var
        Shape (..., m); the variance is None if nothing is random.

    Examples
    --------
    >>> x, weight = Gaussian(jnp.array([3.0, 4.0]), 1.0), Gaussian(jnp.array([[2.0, 0.0]]), 0.5)
    >>> mean, var = linear_moments(x, weight)
    >>> mean.tolist(), var.tolist(), linear_moments(x, weight, own=True)[1].tolist()
    ([6.0], [17.5], [13.5])
    """
    n = x.shape[0 if columns else -1] if x.mean.ndim else None
    if n != weight.shape[1]:
        shape = x.shape[::-1] if columns else x.shape
        raise ValueError(f"x has shape {shape}, but this layer needs (..., {weight.shape[1]}).")

    def times(matrix: Array, values: Array) -> Array:
        return matrix @ values if columns else values @ matrix.T

    mean, var = times(weight.mean, x.mean), None
    if x.var is not None and not own:
        var = times(weight.second_moment(), x.var)
    if weight.var is not None:
        square = x.second_moment() if own else x.mean**2
        var = add_variances(var, times(weight.var, square))
    if bias is not None:
        mean = mean + (bias.mean[:, None] if columns else bias.mean)
        if bias.var is not None:
            var = add_variances(var, bias.var[:, None] if columns else bias.var)
    return mean, None if var is None else jnp.broadcast_to(var, mean.shape)


class AbstractDense(AbstractLayer):
    """What `Dense` and `JointDense` share: noisy weights and biases, and drawing from them."""

    weight: eqx.AbstractVar[AbstractWeights]
    bias: eqx.AbstractVar[AbstractWeights | None]
    weight_noise: eqx.AbstractVar[AbstractNoise | None]
    bias_noise: eqx.AbstractVar[AbstractNoise | None]

    def __check_init__(self):
        if len(self.weight.shape) != 2:
            raise ValueError(f"weight has shape {self.weight.shape}, but needs (outputs, inputs).")
        if self.bias is not None and self.bias.shape != self.weight.shape[:1]:
            raise ValueError(
                f"bias has shape {self.bias.shape}, but weight of shape {self.weight.shape} "
                f"needs {self.weight.shape[:1]}."
            )

    def noisy_weights(self) -> tuple[Gaussian, Gaussian | None]:
        """Return the moments of weights and bias, noise included."""
        weight = self.weight.moments()
        if self.weight_noise is not None:
            weight = self.weight_noise.moments(weight)
        bias = None if self.bias is None else self.bias.moments()
        if bias is not None and self.bias_noise is not None:
            bias = self.bias_noise.moments(bias)
        return weight, bias

    def linearized(self, x: Gaussian) -> Linearized:
        """Return the marginals of the outputs, and the mean weights as the linear part."""
        weight, bias = self.noisy_weights()
        mean, own = linear_moments(x, weight, bias, columns=True, own=True)
        own = jnp.zeros_like(mean) if own is None else own
        square = weight.mean**2

        def back(matrix: Array, g: Array) -> Array:
            # As a product of two matrices: XLA is slower with further axes.
            flat = g.reshape(len(g), math.prod(g.shape[1:]))  # -1 would not do for no rows
            return (matrix.T @ flat).reshape(weight.shape[1], *g.shape[1:])

        def pull(at: Adjoint) -> Adjoint:
            if at.mean is None:
                return Adjoint(weight.mean.T[..., None])
            by_mean = back(weight.mean, at.mean)
            if at.var is None:
                return Adjoint(by_mean)
            if weight.var is not None:  # the variance of W x + b depends on the mean of x too
                by_mean = by_mean + 2 * x.mean[:, None] * back(weight.var, at.var)
            return Adjoint(by_mean, back(weight.second_moment(), at.var))

        out = Gaussian(mean, own + square @ x.variances())
        return Linearized(out, own, pull, lambda v: square @ v)

    def between_rows(self, x, other, cov):
        """Return what the same weights make of two rows."""
        weight, bias = self.noisy_weights()
        both = x.mean[..., None] * other.mean[:, None]
        own = None
        if weight.var is not None:
            own = jnp.tensordot(weight.var, both if cov is None else both + cov, 1)
        if bias is not None and bias.var is not None:
            alike = jnp.broadcast_to(bias.var[:, None, None], (len(bias.var), *both.shape[1:]))
            own = add_variances(own, alike)
        through = None if cov is None else jnp.tensordot(weight.mean**2, cov, 1)
        return add_variances(through, own), own

    def sample(self, key: PRNGKeyArray) -> Affine:
        """Draw the weights and the bias once."""
        keys = jax.random.split(key, 4)
        weight = self.weight.sample(keys[0])
        if self.weight_noise is not None:
            weight = self.weight_noise.corrupt(keys[1], weight)
        bias = None if self.bias is None else self.bias.sample(keys[2])
        if bias is not None and self.bias_noise is not None:
            bias = self.bias_noise.corrupt(keys[3], bias)
        return Affine(weight, bias)


@register()
class Dense(AbstractDense):
    """A fully connected layer with random weights: the marginal mean and variance of W x + b.

    Parameters
    ----------
    weight
        A distribution over weights of shape (outputs, inputs).
    bias
        A distribution over biases of shape (outputs,), or None.
    weight_noise, bias_noise
        Noise processes on top of the weights and the bias, such as `DropConnect`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from varprop.nn import GaussianWeights
    >>> layer = Dense(GaussianWeights(jnp.ones((1, 2)), 0.5))
    >>> out = layer.moments(Gaussian(jnp.array([3.0, 4.0])))
    >>> out.mean.tolist(), out.var.tolist()
    ([7.0], [6.25])
    >>> out = layer.moments(Gaussian(jnp.array([3.0, 4.0]), 1.0))  # inputs known up to an error
    >>> out.var.tolist()
    [8.75]
    """

    weight: AbstractWeights
    bias: AbstractWeights | None = None
    weight_noise: AbstractNoise | None = eqx.field(default=None, kw_only=True)
    bias_noise: AbstractNoise | None = eqx.field(default=None, kw_only=True)

    def moments(self, x: Gaussian | Float[Array, "*batch n"]) -> Gaussian:
        """Return mean and variance of every output, shape (..., outputs)."""
        return Gaussian(*linear_moments(as_gaussian(x), *self.noisy_weights()))

    def moments_of_columns(self, x: Gaussian) -> Gaussian:
        """Return the same of shape (outputs, rows), for inputs of shape (inputs, rows)."""
        return Gaussian(*linear_moments(x, *self.noisy_weights(), columns=True))


@register()
class JointDense(AbstractDense):
    """The last layer of Co-FAWN: W x + b with the full covariance between outputs.

    C = V + sum_i V[x_i] mu_i mu_i^T, where mu_i is the mean of what input i sends to the outputs (a
    column of W; a row in the paper's notation) and V is diagonal. The covariance is kept in this
    form (`DiagonalPlusLowRank`); its diagonal equals `Dense`'s variance.

    Parameters
    ----------
    weight, bias, weight_noise, bias_noise
        As for `Dense`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from varprop.nn import PointWeights
    >>> layer = JointDense(PointWeights(jnp.array([[1.0], [-1.0]])))
    >>> print(layer.moments(Gaussian(jnp.array([5.0]), 2.0)).dense_cov())
    [[ 2. -2.]
     [-2.  2.]]
    """

    weight: AbstractWeights
    bias: AbstractWeights | None = None
    weight_noise: AbstractNoise | None = eqx.field(default=None, kw_only=True)
    bias_noise: AbstractNoise | None = eqx.field(default=None, kw_only=True)
    joint: ClassVar[bool] = True

    def moments(self, x: Gaussian | Float[Array, "*batch n"]) -> JointGaussian:
        """Return mean (..., outputs) and covariance (..., outputs, outputs)."""
        x = as_gaussian(x)
        weight, bias = self.noisy_weights()
        mean, own = linear_moments(x, weight, bias, own=True)
        if x.var is None:  # known inputs give independent outputs: no outer products at all
            return Gaussian(mean, own).to_joint()
        own = jnp.zeros_like(mean) if own is None else own
        return JointGaussian(mean, DiagonalPlusLowRank(own, x.var, weight.mean.T))

    def moments_of_columns(self, x: Gaussian) -> Gaussian | JointGaussian:
        """Return the same by rows, for inputs of shape (inputs, rows)."""
        weight, bias = self.noisy_weights()
        if x.var is None or len(weight.mean) > FEW_OUTPUTS:
            return super().moments_of_columns(x)
        mean, own = linear_moments(x, weight, bias, columns=True, own=True)
        return by_pairs(mean, own, [(x.var, weight.mean.T[..., None])])


@register()
class Sequential(AbstractLayer):
    """Layers one after the other. Only the last may give a `JointGaussian`.

    With a known input, Gaussian weights and one hidden layer the propagated mean, variance and
    covariance are exact, since no two hidden units share a weight. From two hidden layers on, and
    with a random input already, the units of a layer are correlated. `propagation` says what is
    made of that; see `docs/what-is-exact.md`.

    Parameters
    ----------
    layers
        The layers, in order.
    propagation
        "first-order" follows every source of variance to the output by one backward pass, so that
        what units share adds up as it should; where units are independent it is exact and costs
        nothing. "second-order" carries the covariance between all units of a layer along, by a
        series: a reference for small networks. "independent" takes units as independent, as the
        paper does.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from varprop.nn import mlp
    >>> net = mlp(3, 1, key=jax.random.key(0))
    >>> net.moments(jnp.ones((5, 3))).mean.shape  # plain arrays are exactly known inputs
    (5, 1)
    >>> net.sample(jax.random.key(1))(jnp.ones((5, 3))).shape  # one drawn network
    (5, 1)
    """

    layers: tuple[AbstractLayer, ...]
    # Model files from before there was a choice have none.
    propagation: str = eqx.field(static=True, metadata={"before": "independent"})

    def __init__(self, layers: Sequence[AbstractLayer], propagation: str = "first-order"):
        self.layers = tuple(layers)
        self.propagation = checked_propagation(propagation)

    def moments(
        self, x: Gaussian | JointGaussian | Float[Array, "*batch n"]
    ) -> Gaussian | JointGaussian:
        """Push a Gaussian of shape (..., inputs), or a plain array, through all layers.

        A `JointGaussian` is an input whose errors are correlated.
        """
        x = x if isinstance(x, JointGaussian) else as_gaussian(x)
        return pushed_through(self.flat, x, self.propagation)

    @property
    def flat(self) -> tuple[AbstractLayer, ...]:
        """The layers, those of networks among them one by one."""
        parts = (x.flat if isinstance(x, Sequential) else (x,) for x in self.layers)
        return tuple(itertools.chain(*parts))

    def sample(self, key: PRNGKeyArray) -> Chain:
        """Draw one plain deterministic network."""
        keys = jax.random.split(key, max(len(self.layers), 1))
        return Chain(tuple(layer.sample(k) for layer, k in zip(self.layers, keys, strict=False)))


def mlp(
    n_inputs: int,
    n_outputs: int,
    *,
    key: PRNGKeyArray,
    hidden_layer_sizes: Sequence[int] = (50,),
    activation: AbstractActivation | None = None,
    weights: WeightInit = GaussianWeights.init,
    joint: bool = False,
    bias: bool = True,
    input_noise: AbstractNoise | None = None,
    hidden_noise: AbstractNoise | None = None,
    weight_noise: AbstractNoise | None = None,
    bias_noise: AbstractNoise | None = None,
    propagation: str = "first-order",
) -> Sequential:
    """Build a multilayer perceptron of any depth.

    Parameters
    ----------
    n_inputs, n_outputs, key
        Sizes of the two ends, and a random key for the start of the weights.
    hidden_layer_sizes
        Units per hidden layer. The paper's network is ``(50,)``, for which propagation is exact;
        of deeper ones `varprop.check` says by how much it is off.
    activation
        The rectifier unless given.
    weights
        ``weights(key, shape)`` makes the distribution over one array of weights, for example
        ``GaussianWeights.init``, ``BernoulliWeights.init``, ``PointWeights.init``, or a
        `functools.partial` of one of them.
    joint
        Model the covariance between outputs (Co-FAWN).
    bias
        Whether layers have biases.
    input_noise, hidden_noise, weight_noise, bias_noise
        Noise processes on the inputs, on every hidden layer's units, on all weights, on all biases.
    propagation
        "first-order", "second-order" or "independent"; see `Sequential`.

    Examples
    --------
    >>> import jax
    >>> from varprop.nn import Dropout, Tanh
    >>> net = mlp(4, 2, key=jax.random.key(0), hidden_layer_sizes=(20, 20), activation=Tanh(),
    ...           hidden_noise=Dropout(0.1))
    >>> [type(layer).__name__ for layer in net.layers]
    ['Dense', 'Tanh', 'Dropout', 'Dense', 'Tanh', 'Dropout', 'Dense']
    """
    sizes = [n_inputs, *hidden_layer_sizes, n_outputs]
    for size in sizes:
        if not isinstance(size, numbers.Integral) or size < 1:
            raise ValueError(
                f"layer sizes must be whole numbers of at least 1, but one is {size!r}."
            )
    activation = ReLU() if activation is None else activation
    layers: list[AbstractLayer] = [] if input_noise is None else [input_noise]
    last = len(sizes) - 2
    for position, (n, m) in enumerate(itertools.pairwise(sizes)):
        key, weight_key, bias_key = jax.random.split(key, 3)
        kind = JointDense if joint and position == last else Dense
        layers.append(
            kind(
                weights(weight_key, (int(m), int(n))),
                weights(bias_key, (int(m),)) if bias else None,
                weight_noise=weight_noise,
                bias_noise=bias_noise if bias else None,
            )
        )
        if position < last:
            layers.append(activation)
            if hidden_noise is not None:
                layers.append(hidden_noise)
    return Sequential(layers, propagation)
