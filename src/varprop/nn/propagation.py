"""How a Gaussian is pushed through layers whose units are correlated: three ways, by name.

Units of a layer share the random units below them. Independent propagation, the paper's, ignores
that. First order follows every independent source of variance n (a random input, a layer's own
weights, what is not linear in an activation's input) to output k by the adjoint of the moments:

    V[f_k] = sum_n s_n (d E[f_k] / d E[n])^2,      Cov[f_k, f_l] likewise,

one backward pass. By Stein's lemma the derivative is the slope of f_k's best line in n. It is the
total one: a unit below moves the *variance* of all units above it, through the variance of their
weights, and with it their means. Where weights are far from certain, as in trained deep networks,
units go together by this even if no covariance does. It needs only moment rules, is never negative,
and is exact where units are independent. Second order carries the covariance of all units of a
layer, by the series of `varprop.moments.pairs`, and knows nothing of what moves variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.contract import AbstractElementwise, AbstractLayer, Adjoint, Linearized
from varprop.nn.noise import AbstractAdditive, AbstractMultiplicative

#: What `Sequential` can be told.
PROPAGATIONS = ("first-order", "second-order", "independent")
#: Outputs up to which their covariance is computed pair by pair, with rows as columns: half the
#: time of a training step with two outputs (noise that depends on the input).
FEW_OUTPUTS = 4


def checked_propagation(name: str) -> str:
    """Return a way of propagating, or say which there are."""
    if name not in PROPAGATIONS:
        known = ", ".join(map(repr, PROPAGATIONS))
        raise ValueError(f"propagation must be one of {known}, but is {name!r}.")
    return name


def pushed_through(
    layers: Sequence[AbstractLayer], x: Gaussian | JointGaussian, propagation: str
) -> Gaussian | JointGaussian:
    """Return the output of layers one after the other.

    Parameters
    ----------
    layers
        In order; only the last may give a `JointGaussian`.
    x
        The input, shape (..., inputs); joint if its errors are correlated.
    propagation
        One of `PROPAGATIONS`.
    """
    checked_propagation(propagation)  # a model file may say anything
    for position, layer in enumerate(layers[:-1]):
        if layer.joint:
            raise _joint_too_early(layers, position)
    if not layers:
        return x
    batch = x.shape[:-1]
    x = _with_batch(x, (math.prod(batch),))
    if propagation == "second-order":
        return _with_batch(_second_order(layers, x), batch)
    if isinstance(x, JointGaussian):
        if propagation == "independent":
            raise ValueError("correlated input errors need propagation='first-order'.")
        return _with_batch(_first_order(layers, x), batch)
    # A batch goes through as columns, (units, rows): on the CPU elementwise kernels then run over
    # long rows of the batch instead of short ones of the units, which made a training step 1.6
    # times as fast. The barrier keeps XLA from turning the arrays round again.
    out: Any = jax.lax.optimization_barrier(x.T)
    n_mixed = 0
    for position, layer in enumerate(layers):
        if isinstance(out, JointGaussian):  # of a layer that had not said so
            raise _joint_too_early(layers, position - 1)
        n_mixed += layer.mixes and out.var is not None
        follow = n_mixed == 2 or layer.correlates  # what was mixed first were independent units
        if follow and propagation == "first-order":
            return _with_batch(_first_order(layers, x), batch)
        out = layer.moments_of_columns(out)
    return _with_batch(out.T if isinstance(out, Gaussian) else out, batch)


def _joint_too_early(layers: Sequence[AbstractLayer], position: int) -> ValueError:
    return ValueError(
        f"layers[{position}], {type(layers[position]).__name__}, gives a JointGaussian, but only "
        "the last layer may."
    )


def _with_batch(x: Any, batch: tuple[int, ...]) -> Any:
    """Return the same with other axes before the last (two)."""
    n = x.shape[-1:]
    if isinstance(x, Gaussian):
        var = None if x.var is None else x.var.reshape(batch + n)
        return Gaussian(x.mean.reshape(batch + n), var)
    if x.shape[:-1] == batch:
        return x
    return JointGaussian(x.mean.reshape(batch + n), x.dense_cov().reshape(batch + n + n))


# ---- first order --------------------------------------------------------------------------------


class Trace(NamedTuple):
    """What a forward pass keeps for the backward one, rows as columns.

    Attributes
    ----------
    inputs
        What came into every layer, shape (units, rows).
    out
        What came out of the last, its units' correlation left out.
    root
        The first layer that mixes random units; what it mixes is independent, or made of
        independent parts by `made`.
    made
        Root of the covariance of correlated inputs, shape (rows, n, n); None for independent ones.
    steps
        The layers from the root on, at their inputs.
    """

    inputs: list[Gaussian]
    out: Gaussian
    root: int
    made: Float[Array, "rows n n"] | None
    steps: list[Linearized]

    def adjoints(self) -> list[Adjoint]:
        """Return derivatives of the outputs' means by the moments of what came out of the layers.

        From the last layer to the root, then by what the root mixes. The first is the identity, for
        whose mean None stands; the last axis may have length 1, where all rows have the same.
        """
        found = [Adjoint()]
        for step in reversed(self.steps):
            found.append(step.pull(found[-1]))
        return found

    def root_source(self, g: Array) -> tuple[Float[Array, "units rows"], Array]:
        """Return independent parts of what the root mixes, and the derivatives by them."""
        mixed = self.inputs[self.root]
        if self.made is None:
            return mixed.variances(), g
        return jnp.ones_like(mixed.mean), _of_parts(self.made, g)


def _of_parts(made: Array, g: Array) -> Array:
    """Turn derivatives by correlated inputs, (n, k, rows or 1), into those by their parts."""
    g = jnp.broadcast_to(g, (*g.shape[:2], len(made)))
    return jnp.einsum("rnz,nkr->zkr", made, g)


def traced(layers: Sequence[AbstractLayer], x: Gaussian | JointGaussian) -> Trace:
    """Push rows (rows, inputs) through, keeping what the backward pass needs."""
    made = None
    if isinstance(x, JointGaussian):
        x, layers = _before_mixing(layers, x)
        values, vectors = jnp.linalg.eigh(x.dense_cov())
        made, x = vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None], x.marginals()
    out: Any = jax.lax.optimization_barrier(x.T)
    inputs: list[Gaussian] = []
    steps: list[Linearized] = []
    for layer in layers:
        inputs.append(out)
        if not steps and not (layer.mixes and (out.var is not None or layer.correlates)):
            out = layer.moments_of_columns(out)
            continue
        step = layer.linearized(out)
        if not steps and made is not None:
            by_part = _of_parts(made, step.pull(Adjoint()).mean)
            out = Gaussian(step.out.mean, step.own + jnp.sum(by_part**2, axis=0))
            step = step._replace(out=out)
        steps.append(step)
        out = step.out
    out = out if isinstance(out, Gaussian) else out.marginals().T
    return Trace(inputs, out, len(inputs) - len(steps), made, steps)


def _before_mixing(
    layers: Sequence[AbstractLayer], x: JointGaussian
) -> tuple[JointGaussian, Sequence[AbstractLayer]]:
    """Push correlated inputs through noise on them; the layers left begin with one that mixes."""
    for position, layer in enumerate(layers):
        if layer.mixes and not layer.correlates:
            return x, layers[position:]
        if not isinstance(layer, AbstractAdditive | AbstractMultiplicative):
            break
        x = layer.moments(x)
    raise TypeError("correlated input errors need a first layer that is dense, or noise before it.")


def _first_order(
    layers: Sequence[AbstractLayer], x: Gaussian | JointGaussian
) -> Gaussian | JointGaussian:
    trace = traced(layers, x)
    adjoints = trace.adjoints()
    own, *others = (step.own for step in reversed(trace.steps))
    between = [at.mean for at in adjoints[1:-1]]
    sources: list[Any] = [*zip(others, between, strict=True)]
    sources += [trace.root_source(adjoints[-1].mean), *(s for at in adjoints for s in at.sources)]
    if not layers[-1].joint:
        return Gaussian(trace.out.mean, sum((_summed(s, g * g) for s, g in sources), own)).T
    if len(own) <= FEW_OUTPUTS:
        return by_pairs(trace.out.mean, own, sources)
    rows = trace.out.shape[1]
    weight = jnp.concatenate([jnp.broadcast_to(s, (len(s), rows)) for s, _ in sources])
    shape = (len(trace.out.mean), weight.shape[-1])
    factor = jnp.concatenate([jnp.broadcast_to(g, (len(g), *shape)) for _, g in sources])
    cov = DiagonalPlusLowRank(own.T, weight.T, factor.transpose(2, 0, 1))
    return JointGaussian(trace.out.mean.T, cov)


def by_pairs(
    mean: Array, own: Array | None, sources: Sequence[tuple[Array, Array]]
) -> JointGaussian:
    """Return outputs whose covariance is their own variance and sum_n s_n g_nk g_nl.

    Parameters
    ----------
    mean, own
        Shape (k, rows).
    sources
        s of shape (n, rows or 1) and g of shape (n, k, rows or 1), not both of 1.
    """
    k = len(mean)
    cov = jnp.zeros((k * k, mean.shape[-1]), mean.dtype)
    for s, g in sources:
        cov = cov + _summed(s, (g[:, :, None] * g[:, None]).reshape(len(g), k * k, g.shape[-1]))
    if own is not None:  # by a product too: gathered entries are put back one by one
        place = np.eye(k).repeat(k, axis=0) * np.tile(np.eye(k), (k, 1))
        cov = cov + jnp.asarray(place, own.dtype) @ own
    return JointGaussian(mean.T, cov.T.reshape(-1, k, k))


def _summed(s: Array, g: Array) -> Array:
    """Return sum_n s_n g_nk of shape (k, rows)."""
    if g.shape[-1] == 1:
        return g[..., 0].T @ s
    # A product of matrices too: XLA would pull all that makes s and g into the loop of a sum, where
    # nothing runs side by side, and the whole step took half as long again.
    each = (s[:, None] * g).reshape(len(g), math.prod(g.shape[1:]))
    return (jnp.ones((1, len(g)), each.dtype) @ each).reshape(g.shape[1:])


# ---- second order -------------------------------------------------------------------------------


def _second_order(
    layers: Sequence[AbstractLayer], x: Gaussian | JointGaussian
) -> Gaussian | JointGaussian:
    cov: Any = None  # (rows, units, units)
    if isinstance(x, JointGaussian):
        cov = x.dense_cov()
        x = x.marginals()
    out = x.T
    for layer in layers:
        before, known = out, out.var is None
        if not known and cov is None:
            cov = _diagonal(out.variances())
        if layer.mixes and (layer.correlates or not known):
            step = layer.linearized(out)
            at = step.pull(Adjoint())
            weight = jnp.broadcast_to(at.mean, (*at.mean.shape[:2], out.shape[1]))
            through = 0.0 if cov is None else jnp.einsum("njr,rnm,mkr->rjk", weight, cov, weight)
            cov = through + _diagonal(step.own)
            for s, g in at.sources:
                cov = cov + jnp.einsum("nr,njr,nkr->rjk", jnp.broadcast_to(s, g[:, 0].shape), g, g)
            out = Gaussian(step.out.mean, jnp.maximum(jnp.diagonal(cov, axis1=1, axis2=2).T, 0))
            continue
        after: Any = layer.moments_of_columns(out)
        out = after if isinstance(after, Gaussian) else after.marginals().T
        if not known:
            assert isinstance(layer, AbstractElementwise)
            a, b = _at(before, (..., None)), _at(before, (slice(None), None))
            cov = layer.covariance(a, b, cov, same=False)
            exact = jnp.eye(cov.shape[-1], dtype=bool)
            cov = jnp.where(exact, _diagonal(out.variances()), 0.5 * (cov + cov.mT))
    if not layers[-1].joint:
        return out.T
    return JointGaussian(out.mean.T, _diagonal(out.variances()) if cov is None else cov)


def _diagonal(var: Array) -> Array:
    """Return variances (units, rows) as covariances (rows, units, units)."""
    return jax.vmap(jnp.diag, in_axes=1)(var)


def _at(x: Gaussian, axes: tuple) -> Gaussian:
    """Return (units, rows) as (rows, units) with one more axis."""
    return Gaussian(x.mean.T[axes], x.variances().T[axes])
