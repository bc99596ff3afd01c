"""Assumed-density filtering of a network's weights: the maths of probabilistic backpropagation.

Every weight has a Gaussian belief; the noise's precision and the precision of the weights' prior
have gamma beliefs. A row of data multiplies the beliefs by its likelihood, and the product is
replaced by the beliefs of the same form with its moments (Hernández-Lobato & Adams 2015). For
Gaussian beliefs these moments follow from derivatives of the log-evidence, that is, of the rules by
which mean and variance pass a network; for gamma beliefs they are ratios of evidences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import normal_log_density, rectifier_moments
from varprop.nn.layers import linear_moments

#: Shape and rate of the gamma priors of both precisions.
HYPER_SHAPE, HYPER_RATE = 6.0, 6.0

#: Above this variance the cavity of a prior factor says nothing, and the factor stays as it is.
MAX_CAVITY_VAR = 1e6


class Layer(NamedTuple):
    """Beliefs about the weights (outputs, inputs) and the biases (outputs,) of one layer."""

    weight: Gaussian
    bias: Gaussian


Network = tuple[Layer, ...]


def _is_gaussian(node: object) -> bool:
    return isinstance(node, Gaussian)


class Gamma(NamedTuple):
    """A gamma belief about a precision, by shape and rate; the shape is above 1."""

    shape: Float[Array, "*n"]
    rate: Float[Array, "*n"]

    def expected_var(self) -> Float[Array, "*n"]:
        """E[1 / precision], the variance that stands for a Student t of this belief."""
        return self.rate / (self.shape - 1)


class Factors(NamedTuple):
    """What the prior adds to the belief of each weight and to that of the prior's precision.

    Precision of the weight (about 0), shape and rate of the prior's precision.
    """

    precision: Float[Array, "*n"]
    shape: Float[Array, "*n"]
    rate: Float[Array, "*n"]


class Beliefs(NamedTuple):
    """All that is learned."""

    network: Network
    noise: Gamma
    prior: Gamma
    factors: Factors


def first_beliefs(sizes: Sequence[int], rng: np.random.RandomState) -> Beliefs:
    """Return what is believed before any data, but for random means that tell the units apart.

    Parameters
    ----------
    sizes
        Numbers of inputs, of the units of every hidden layer, and of outputs.
    rng
        Draws the means, with standard deviation 1 / sqrt(number of inputs, bias included).

    Examples
    --------
    >>> beliefs = first_beliefs([3, 50, 1], np.random.RandomState(0))
    >>> [layer.weight.shape for layer in beliefs.network], beliefs.factors.precision.shape
    ([(50, 3), (1, 50)], (251,))
    """
    var = HYPER_RATE / (HYPER_SHAPE - 1)
    layers = []
    for n, m in itertools.pairwise(sizes):
        mean = rng.standard_normal((n + 1, m)).T / math.sqrt(n + 1)
        weight = Gaussian(mean[:, :-1], np.full((m, n), var))
        layers.append(Layer(weight, Gaussian(mean[:, -1], np.full(m, var))))
    n_weights = sum((n + 1) * m for n, m in itertools.pairwise(sizes))
    # From NumPy arrays, which JAX takes over without compiling anything.
    nothing = jnp.asarray(np.zeros(n_weights))
    factors = Factors(jnp.asarray(np.full(n_weights, 1 / var)), nothing, nothing)
    precision = Gamma(jnp.asarray(np.float64(HYPER_SHAPE)), jnp.asarray(np.float64(HYPER_RATE)))
    return Beliefs(tuple(layers), precision, precision, factors)


def network_moments(network: Network, x: Gaussian) -> Gaussian:
    """Mean and variance of a rectifier network's output, whose hidden units count as independent.

    What comes into a unit is divided by the square root of its number of inputs, bias included.

    Examples
    --------
    >>> layer = Layer(Gaussian(jnp.ones((1, 3)), 1.0), Gaussian(jnp.ones(1), 1.0))
    >>> out = network_moments((layer,), Gaussian(jnp.ones(3)))
    >>> out.mean.tolist(), out.var.tolist()
    ([2.0], [1.0])
    """
    for index, (weight, bias) in enumerate(network):
        if index:
            x = Gaussian(*rectifier_moments(x.mean, x.variances()))
        x = Gaussian(*linear_moments(x, weight, bias)) * (weight.shape[1] + 1) ** -0.5
    return x


def log_evidence(
    network: Network, noise_var: Float[Array, ""], x: Float[Array, " n"], y: Float[Array, ""]
) -> tuple[Float[Array, ""], Gaussian]:
    """Log-density of one target under the beliefs, as a Gaussian; and the network's output.

    Examples
    --------
    >>> layer = Layer(Gaussian(jnp.ones((1, 3)), 1.0), Gaussian(jnp.ones(1), 1.0))
    >>> log_z, _ = log_evidence((layer,), jnp.array(3.0), jnp.ones(3), jnp.array(2.0))
    >>> print(f"{log_z:.4f}")  # of N(2, 1 + 3) at 2
    -1.6121
    """
    out = network_moments(network, Gaussian(x))
    return normal_log_density(y - out.mean[0], out.variances()[0] + noise_var), out


def matched_gamma(belief: Gamma, error: Float[Array, "*n"], var: Float[Array, "*n"]) -> Gamma:
    """Return the gamma belief after seeing that a value of this variance plus noise is `error`.

    The belief is about the noise's precision. With Z(s) the density of the error when the noise is
    Student t of shape s, the new mean and second moment of the precision are a Z(a + 1) / (b Z(a))
    and a (a + 1) Z(a + 2) / (b² Z(a)), and each Student t is replaced by the Gaussian of its
    variance. After many rows the evidences differ by little (first differences of log Z are of the
    order 1/a, second ones 1/a²), so the differences are worked out on paper, not subtracted.

    A belief with a shape of at most 1, whose variance would be infinite, is not accepted: the old
    one stays.

    Examples
    --------
    >>> new = matched_gamma(Gamma(jnp.array(100.0), jnp.array(100.0)), jnp.ones(()), jnp.zeros(()))
    >>> print(f"{new.shape:.1f} {new.rate:.1f}")  # half a count and half a squared error more
    100.5 100.5
    """
    a, b = belief
    plain = b / a
    # The variances of the error for shapes a, a + 1 and a + 2.
    first, second, third = var + b / (a - 1), var + plain, var + b / (a + 1)
    gap = plain / (a - 1)  # first - second
    wide = plain / (a * a - 1)
    square = error * error
    # log Z(a + 1) - log Z(a), and log Z(a + 2) - 2 log Z(a + 1) + log Z(a).
    slope = -0.5 * (jnp.log1p(-gap / first) + square / first * (gap / second))
    log_bend = jnp.log1p(wide / second * ((2 * var + plain) / second))
    bend = square / first * (var / second) * (wide / third) - 0.5 * log_bend
    shrink = 1 + (a + 1) * jnp.expm1(bend)
    new = Gamma(a / shrink, b / shrink * jnp.exp(-slope))
    fine = (shrink > 0) & (new.shape > 1) & (new.rate > 0) & jnp.isfinite(new.shape + new.rate)
    return Gamma(jnp.where(fine, new.shape, a), jnp.where(fine, new.rate, b))


def updated_gaussian(belief: Gaussian, slope: Gaussian) -> Gaussian:
    """Return the Gaussian belief with the moments of belief times likelihood.

    `slope` holds the derivatives of the log-evidence by the belief's mean and variance. Where the
    new variance is not positive (the approximations allow it) or anything is not finite, the old
    belief stays, weight by weight.
    """
    mean, var = belief.mean, belief.variances()
    by_mean, by_var = slope.mean, slope.variances()
    new_mean = mean + var * by_mean
    new_var = var - var * var * (by_mean * by_mean - 2 * by_var)
    fine = (new_var > 0) & jnp.isfinite(new_mean + new_var)
    return Gaussian(jnp.where(fine, new_mean, mean), jnp.where(fine, new_var, var))


def see_row(
    network: Network, noise: Gamma, x: Float[Array, " n"], y: Float[Array, ""]
) -> tuple[Network, Gamma]:
    """Return the beliefs after one row of data."""
    slopes, out = jax.grad(log_evidence, has_aux=True)(network, noise.expected_var(), x, y)
    noise = matched_gamma(noise, y - out.mean[0], out.variances()[0])
    return jax.tree.map(updated_gaussian, network, slopes, is_leaf=_is_gaussian), noise


def refined(belief: Gaussian, prior: Gamma, factor: Factors) -> tuple[Gaussian, Gamma, Factors]:
    """Take one weight's prior factor out of the beliefs, and put it back with new moments.

    Where what remains without the factor is no distribution, or nearly flat, nothing changes.
    """
    var = belief.variances()
    precision = 1 / var - factor.precision
    cavity = Gamma(prior.shape - factor.shape, prior.rate - factor.rate)
    fine = (precision * MAX_CAVITY_VAR > 1) & (cavity.shape > 1) & (cavity.rate > 0)
    # Something harmless where the results are not used.
    precision = jnp.where(fine, precision, 1.0)
    cavity = Gamma(jnp.where(fine, cavity.shape, 2.0), jnp.where(fine, cavity.rate, 1.0))

    cavity_mean = belief.mean / var / precision
    new_prior = matched_gamma(cavity, cavity_mean, 1 / precision)
    # The product of N(cavity) and N(0, 1 / added) has the precisions' sum and the same
    # precision times mean.
    added = 1 / cavity.expected_var()
    new_var = 1 / (precision + added)
    new_mean = cavity_mean * precision * new_var
    new_factor = Factors(added, new_prior.shape - cavity.shape, new_prior.rate - cavity.rate)
    new = (new_mean, new_var, new_prior, new_factor)
    old = (belief.mean, var, prior, factor)
    mean, var, prior, factor = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, old)
    return Gaussian(mean, var), prior, factor


def refine_prior(beliefs: Beliefs) -> Beliefs:
    """Refine the prior's factors weight after weight: one sweep of expectation propagation."""
    parts, structure = jax.tree.flatten(beliefs.network, is_leaf=_is_gaussian)
    means = jnp.concatenate([jnp.ravel(part.mean) for part in parts])
    variances = jnp.concatenate([jnp.ravel(part.variances()) for part in parts])

    def one_weight(prior, inputs):
        mean, var, factor = inputs
        belief, prior, factor = refined(Gaussian(mean, var), prior, factor)
        return prior, (belief.mean, belief.variances(), factor)

    prior, (means, variances, factors) = jax.lax.scan(
        one_weight, beliefs.prior, (means, variances, beliefs.factors)
    )
    ends = np.cumsum([math.prod(part.shape) for part in parts])[:-1].tolist()
    new = [
        Gaussian(mean.reshape(part.shape), var.reshape(part.shape))
        for part, mean, var in zip(
            parts, jnp.split(means, ends), jnp.split(variances, ends), strict=True
        )
    ]
    return Beliefs(jax.tree.unflatten(structure, new), beliefs.noise, prior, factors)


def one_pass(
    beliefs: Beliefs,
    x: Float[Array, "rows n"],
    y: Float[Array, " rows"],
    order: Int[Array, " rows"],
    n_rows: Int[Array, ""],
) -> Beliefs:
    """Take in the first `n_rows` rows of `order` one by one, then refine the prior once."""

    def one_row(index, carry):
        network, noise = carry
        row = order[index]
        return see_row(network, noise, x[row], y[row])

    # The number of rows is traced: padded data of any number of rows shares a compiled program.
    network, noise = jax.lax.fori_loop(0, n_rows, one_row, (beliefs.network, beliefs.noise))
    return refine_prior(beliefs._replace(network=network, noise=noise))
