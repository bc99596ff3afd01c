"""Where an output's variance comes from, and what two rows of it share.

Both go the way of first-order propagation (`varprop.nn.propagation`): the budget adds the sources
of variance up by where they arise, and the covariance between rows takes, in place of a source's
variance, its covariance between two rows that one drawn network is applied to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.activations import AbstractActivation
from varprop.nn.contract import AbstractLayer
from varprop.nn.noise import AbstractNoise
from varprop.nn.propagation import traced


def variance_budget(
    layers: Sequence[AbstractLayer], x: Gaussian | JointGaussian
) -> Float[Array, "sources rows d"]:
    """Return the first-order variance of every output by where it arises.

    What an activation adds beside its line belongs to what made its input vary, in proportion; so
    does what correlated inputs add together.

    Parameters
    ----------
    layers
        Of a network, in order.
    x
        Rows, shape (rows, inputs).

    Returns
    -------
    array
        Sources are the inputs' errors, one each, then what is drawn in each layer (its weights, a
        noise process; nothing for an activation). They sum to the variance.

    Examples
    --------
    >>> import jax
    >>> from varprop import nn
    >>> net = nn.mlp(2, 1, key=jax.random.key(0))
    >>> x = Gaussian(jnp.ones((5, 2)), 0.1)
    >>> parts = variance_budget(net.layers, x)  # two inputs, dense, rectifier, dense
    >>> parts.shape, bool(jnp.allclose(parts.sum(axis=0), net.moments(x).var, rtol=1e-4))
    ((5, 5, 1), True)
    """
    trace = traced(layers, x)
    n, n_sources = x.shape[-1], x.shape[-1] + len(layers)
    skipped = len(layers) - len(trace.inputs)  # noise on correlated inputs, which counts with them
    # The variance of every unit by source, as if units were independent: (sources, units, rows).
    start = trace.inputs[0].variances()
    parts = jnp.zeros((n_sources, *start.shape), start.dtype)
    parts = parts.at[jnp.arange(n), jnp.arange(n)].set(start)
    outs = [*trace.inputs[1:], trace.out]
    shares = []  # of what comes into each layer
    for position, (layer, before, out) in enumerate(
        zip(layers[skipped:], trace.inputs, outs, strict=True), n + skipped
    ):
        share = _over(parts, parts.sum(axis=0))
        shares.append(share)
        if isinstance(layer, AbstractActivation):
            parts = share * out.variances()
        elif before.var is None:
            parts = jnp.zeros((n_sources, *out.shape), start.dtype)
            parts = parts.at[position].set(out.variances())
        else:
            step = layer.linearized(before)
            parts = step.carry(parts)
            arising = step.own
            if layer.correlates:  # from sources inside of it
                arising = jnp.maximum(step.out.variances() - parts.sum(axis=0), 0)
            parts = parts.at[position].add(arising)
    if not trace.steps:  # nothing random is mixed: units are what they are
        return parts.transpose(0, 2, 1)
    total = jnp.zeros((n_sources, *outs[-1].shape), start.dtype)
    adjoints = trace.adjoints()
    by_mixed = adjoints[-1].mean
    for position, step, above, below in zip(
        reversed(range(len(layers))), reversed(trace.steps), adjoints, adjoints[1:], strict=False
    ):
        found = _squared(step.own, above.mean)
        for source in below.sources:
            total = total.at[n + position].add(jnp.sum(_squared(*source), axis=0))
        if isinstance(layers[position], AbstractActivation):
            total = total + jnp.einsum("sur,udr->sdr", shares[position - skipped], found)
        else:
            total = total.at[n + position].add(jnp.sum(found, axis=0))
    found = _squared(*trace.root_source(by_mixed))
    if trace.made is None:
        total = total + jnp.einsum("sur,udr->sdr", shares[trace.root], found)
    else:
        alone = _squared(trace.inputs[0].variances(), by_mixed)
        total = total.at[:n].add(_over(alone, alone.sum(axis=0)) * found.sum(axis=0))
    return total.transpose(0, 2, 1)


def _squared(s: Array, g: Array | None) -> Array:
    """Return the variance sources give to outputs, (units, d, rows)."""
    if g is None:
        return jnp.eye(len(s), dtype=s.dtype)[..., None] * s[:, None]
    return s[:, None] * g * g


def _over(parts: Array, whole: Array) -> Array:
    """Return parts as shares of a whole that may be 0."""
    return jnp.where(whole > 0, parts / jnp.where(whole > 0, whole, 1.0), 0.0)


def layer_names(layers: Sequence[AbstractLayer]) -> dict[int, str]:
    """Return what to call what is drawn in each layer, by its place; activations draw nothing.

    Examples
    --------
    >>> import jax
    >>> from varprop import nn
    >>> layer_names(nn.mlp(2, 1, key=jax.random.key(0), hidden_noise=nn.Dropout(0.1)).layers)
    {0: 'weights of layer 1', 2: 'Dropout after layer 1', 3: 'weights of layer 2'}
    """
    names, n = {}, 0
    for place, layer in enumerate(layers):
        if isinstance(layer, AbstractNoise):
            where = f"after layer {n}" if n else "on the inputs"
            names[place] = f"{type(layer).__name__} {where}"
        elif not isinstance(layer, AbstractActivation):
            n += 1
            names[place] = f"weights of layer {n}"
    return names


def covariance_between_rows(
    layers: Sequence[AbstractLayer],
    x: Gaussian | JointGaussian,
    other: Gaussian | JointGaussian,
) -> Float[Array, "d a b"]:
    """Return the covariance of every output between the rows of two batches.

    One drawn network is applied to both; errors of their inputs are independent from row to row. It
    is exact for one hidden layer (up to the error of the series of `varprop.moments.pairs`) and of
    first order for more, and positive semidefinite.

    Parameters
    ----------
    layers
        Of a network, in order.
    x, other
        Shapes (a, inputs) and (b, inputs).

    Examples
    --------
    >>> import jax
    >>> from varprop import nn
    >>> net, x = nn.mlp(3, 1, key=jax.random.key(0)), jnp.eye(3)
    >>> cov = covariance_between_rows(net.layers, Gaussian(x), Gaussian(x))
    >>> cov.shape, bool(jnp.allclose(jnp.diag(cov[0]), net.moments(x).var[:, 0], rtol=1e-4))
    ((1, 3, 3), True)
    """
    a, b = traced(layers, x), traced(layers, other)
    layers = layers[len(layers) - len(a.inputs) :]  # noise on correlated inputs is theirs
    cov: Any = None
    mixed: Any = None
    own: list[Any] = []
    for position, layer in enumerate(layers):
        if position == a.root:
            mixed = cov
        cov, arising = layer.between_rows(a.inputs[position], b.inputs[position], cov)
        own.append(arising)
    shape = (len(a.out.mean), len(x.mean), len(other.mean))
    total = jnp.zeros(shape, x.dtype)
    if not a.steps:
        return total if cov is None else cov
    covs = [*reversed(own[a.root :]), mixed]
    for c, above, below in zip(covs, a.adjoints(), b.adjoints(), strict=True):
        g, h = above.mean, below.mean
        if c is None:
            continue
        if g is None or h is None:
            total = total + c
            continue
        total = total + jnp.stack([_between(c, g[:, k], h[:, k]) for k in range(shape[0])])
    return total


def _between(c: Array, g: Array, h: Array) -> Array:
    """Return sum_u g_ua c_uab h_ub; g and h may be the same for all rows, of length 1."""
    return jnp.sum(c * g[:, :, None] * h[:, None, :], axis=0)
