"""Recurrent layers: a sequence in, the state after its last step out; and `rnn`, a whole network.

Moments go through the cells (`varprop.nn.cells`) step by step. The variance of the last output adds
up the independent sources along the way, squared derivative by squared derivative, as in
`varprop.nn.propagation`: errors of the inputs, weights, and at every step what is not linear in the
gates' inputs. The derivatives are those of the recursion of means *and* variances, by reverse
differentiation through `jax.lax.scan`. Weights drawn once are one source each, so that what they
do at all steps adds up before it is squared:

    sum_ij s_ij (sum_t d_i(t) E[x_j(t)] + 2 E[w_ij] sum_t b_i(t) V[x_j(t)])^2

with d and b the derivatives by mean and variance of gate input i. Not followed: what a weight drawn
once has in common with the state it multiplies, in the mean, and what it changes through the
covariance of gates; its products with errors, which count as drawn at each step; and, along the
way, the covariance between different units of the state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.gaussian import Gaussian, as_gaussian
from varprop.nn.cells import CELLS, Cell, Followed, Roots
from varprop.nn.contract import AbstractLayer, Adjoint, Linearized
from varprop.nn.layers import Dense, JointDense, Sequential, WeightInit, linear_moments
from varprop.nn.noise import AbstractNoise
from varprop.nn.plain import Affine
from varprop.nn.propagation import pushed_through
from varprop.nn.registry import register
from varprop.nn.weights import GaussianWeights

WEIGHTS_DRAWN = ("once", "each-step")


class _Moves(NamedTuple):
    """What the recursion is differentiated by: zeros added to what arises at every step."""

    mean: Array  # of the gates' inputs, (steps, gates, units, rows)
    var: Any  # the same; None where nobody asks
    parts: Array  # of the state, (steps, parts, units, rows)


class _Passed(NamedTuple):
    """Of every step: variances of the sources, as in `_Moves`, and what the affine map is of."""

    own: Array
    parts: Array
    at: Gaussian


@register()
class Recurrent(AbstractLayer):
    """A recurrent cell, scanned over the steps of a sequence; its output after the last comes out.

    A row holds a sequence, step after step: shape (..., n_steps * inputs), and, if `masked`, as
    many more columns as steps: where one is 0 (below 1/2), the state stays as it is.

    Parameters
    ----------
    from_input, from_state
        `Dense` layers to the gates: weights of shape (blocks * units, inputs) and (blocks * units,
        units), where blocks is 1 for "rnn", 3 for "gru" (update, reset, new) and 4 for "lstm"
        (forget, input, new, output).
    n_steps
        Steps of a sequence.
    cell
        "rnn" (tanh), "gru" or "lstm".
    weights_drawn
        "once" for the whole sequence, as Bayesian weights are, or "each-step", a noise process.
    gate_covariance
        Follow, to first order, the covariance of a unit's gates with each other and with its state,
        which the same inputs and states cause. False takes them as independent.
    masked
        Whether rows end with a mask.

    Examples
    --------
    >>> net = rnn(2, 1, n_steps=5, key=jax.random.key(0), cell="lstm", units=4)
    >>> type(net.layers[0]).__name__, net.moments(jnp.ones((3, 10))).var.shape
    ('Recurrent', (3, 1))
    """

    from_input: Dense
    from_state: Dense
    n_steps: int = eqx.field(static=True)
    cell: str = eqx.field(static=True, default="gru", kw_only=True)
    weights_drawn: str = eqx.field(static=True, default="once", kw_only=True)
    gate_covariance: bool = eqx.field(static=True, default=True, kw_only=True)
    masked: bool = eqx.field(static=True, default=False, kw_only=True)
    correlates: ClassVar[bool] = True

    def __check_init__(self):
        outputs = self._cell.n_blocks * self.units
        for name, part in (("from_input", self.from_input), ("from_state", self.from_state)):
            if part.weight.shape[0] != outputs:
                raise ValueError(
                    f"{name} has weights of shape {part.weight.shape}, but {self.units} units of "
                    f"the cell {self.cell!r} need {outputs} outputs."
                )

    @property
    def _cell(self) -> Cell:
        # Looked at whenever it is used: a model file may say anything.
        for name, known in (("cell", CELLS), ("weights_drawn", WEIGHTS_DRAWN)):
            if (value := getattr(self, name)) not in known:
                listed = ", ".join(map(repr, known))
                raise ValueError(f"{name} must be one of {listed}, but is {value!r}.")
        return CELLS[self.cell]

    @property
    def units(self) -> int:
        """Length of the state."""
        return self.from_state.weight.shape[1]

    @property
    def n_inputs(self) -> int:
        """Length of a row."""
        return self.n_steps * (self.from_input.weight.shape[1] + self.masked)

    def _in_steps(self, x: Array) -> tuple[Array, Array | None]:
        """Turn rows as columns into (steps, inputs, rows), and which steps there are, if masked."""
        if len(x) != self.n_inputs:
            shape = x.shape[::-1]
            raise ValueError(f"x has shape {shape}, but this layer needs (..., {self.n_inputs}).")
        steps = x[: len(x) - self.n_steps] if self.masked else x
        valid = x[len(steps) :] > 0.5 if self.masked else None
        return steps.reshape(self.n_steps, -1, x.shape[1]), valid

    def _to_gates(self) -> tuple[Gaussian, Gaussian]:
        """Return weights and biases from inputs and outputs to gates, (gates * units, ...)."""
        cell, both = self._cell, (self.from_input.noisy_weights(), self.from_state.noisy_weights())

        def joined(values: Callable[[Gaussian], Array]) -> tuple[Array, Array]:
            which = zip((cell.of_input, cell.of_state), both, strict=True)
            parts = [
                (cell.by_gate(gates, values(w)), b and cell.by_gate(gates, values(b)))
                for gates, (w, b) in which
            ]
            weight = jnp.concatenate([w for w, _ in parts], axis=-1)
            bias: Any = sum(b for _, b in parts if b is not None)
            bias = jnp.zeros_like(weight[..., 0]) + bias
            return weight.reshape(-1, weight.shape[-1]), bias.ravel()

        (mean, bias), (var, bias_var) = joined(lambda g: g.mean), joined(lambda g: g.variances())
        return Gaussian(mean, var), Gaussian(bias, bias_var)

    def moments(self, x: Gaussian | Float[Array, "*batch n"]) -> Gaussian:
        """Return mean and variance of the last output, shape (..., units), to first order."""
        return pushed_through((self,), as_gaussian(x), "first-order")  # type: ignore[return-value]

    def _forward(self, mean: Array, var: Array | None, moves: _Moves) -> tuple[Any, _Passed]:
        """Return mean and variance of the output, its units as independent; and what was passed."""
        cell, n, units = self._cell, len(self._cell.of_input), self.units
        weight, bias = self._to_gates()
        by_gate = weight.mean.reshape(n, units, -1)
        pairs = [(i, j) for j in range(n) for i in range(j + 1) if i == j or self.gate_covariance]
        products = jnp.stack([by_gate[i] * by_gate[j] for i, j in pairs])
        to_itself = jnp.diagonal(by_gate[..., -units:], axis1=1, axis2=2)[..., None]
        steps, valid = self._in_steps(mean)
        steps_var = jnp.zeros_like(steps) if var is None else self._in_steps(var)[0]

        def step(before: Any, now: Any) -> tuple[Any, _Passed]:
            (means, variances, with_output), (given, given_var, valid, move) = before, now
            at = Gaussian(
                jnp.concatenate([given, means[-1]]), jnp.concatenate([given_var, variances[-1]])
            )
            both: Any = linear_moments(at, weight, bias, columns=True, own=True)
            mean, own = (part.reshape(n, units, -1) for part in both)
            roots = Roots(dict(zip(pairs, products @ at.variances(), strict=True)), n + 1)
            roots.cov[n, n] = variances[0]
            for i in range(n):
                var = roots.cov[i, i] + own[i]
                roots.cov[i, i] = var if move.var is None else var + move.var[i]
                if self.gate_covariance:
                    roots.cov[i, n] = to_itself[i] * with_output
            mean = mean + move.mean
            gates = [Followed(mean[i], roots.cov[i, i], {i: 1.0}, roots) for i in range(n)]
            kept, settled, arising = set(range(n + 1)), list[Followed](), list[Array]()

            def settle(value: Followed) -> Followed:
                value, source = value.settled(kept, move.parts[len(settled)])
                settled.append(value)
                arising.append(source)
                return value

            cell.step(gates, Followed(means[0], variances[0], {n: 1.0}, roots), settle)
            first, last = settled[0], settled[-1]
            after = (
                jnp.stack([part.mean for part in settled]),
                jnp.stack([part.var for part in settled]),
                first.var if first is last else first.cov(last),
            )
            if valid is not None:
                after = jax.tree.map(functools.partial(jnp.where, valid), after, before)
            return after, _Passed(own, jnp.stack(arising), at)

        none = jnp.zeros((cell.n_parts, units, mean.shape[1]), mean.dtype)
        last, passed = jax.lax.scan(step, (none, none, none[0]), (steps, steps_var, valid, moves))
        return (last[0][-1], last[1][-1]), passed

    def linearized(self, x: Gaussian) -> Linearized:
        """Return the last output; the sources along the way come with what `pull` returns."""
        shape = (self.n_steps, len(self._cell.of_input), self.units, x.shape[1])
        of_gates, of_parts = jnp.zeros(shape, x.dtype), (shape[0], self._cell.n_parts, *shape[2:])
        once = self.weights_drawn == "once"
        moves = _Moves(of_gates, of_gates if once else None, jnp.zeros(of_parts, x.dtype))
        (mean, var), back, passed = jax.vjp(self._forward, x.mean, x.var, moves, has_aux=True)

        def pull(at: Adjoint) -> Adjoint:
            g = jnp.eye(self.units, dtype=x.dtype)[..., None] if at.mean is None else at.mean
            both = (g, jnp.zeros_like(g) if at.var is None else at.var)
            wanted = (g.shape[1], *mean.shape)
            given = tuple(jnp.broadcast_to(part.swapaxes(0, 1), wanted) for part in both)
            by_mean, by_var, by = jax.vmap(back, out_axes=-2)(given)
            sources = [_listed(passed.parts, by.parts)]
            if once:
                sources += self._drawn_once(passed.at, by)
            else:
                sources.append(_listed(passed.own, by.mean))
            return Adjoint(by_mean, by_var, sources)

        def carry(variances: Any) -> Any:
            return jnp.einsum("nkr,...nr->...kr", pull(Adjoint()).mean ** 2, variances)

        return Linearized(Gaussian(mean, var), jnp.zeros_like(mean), pull, carry)

    def _drawn_once(self, at: Gaussian, by: _Moves) -> list[tuple[Array, Array]]:
        """Return weights as sources, and what their products with errors add at every step."""
        weight, bias = self._to_gates()
        outputs, n = weight.shape
        flat = (self.n_steps, outputs, *by.mean.shape[3:])
        of_mean, of_var = by.mean.reshape(flat), by.var.reshape(flat)
        total = jnp.einsum("tikr,tjr->ijkr", of_mean, at.mean)
        through = jnp.einsum("tikr,tjr->ijkr", of_var, at.variances())
        total = total + 2 * weight.mean[..., None, None] * through
        return [
            (weight.variances().reshape(-1, 1), total.reshape(outputs * n, *total.shape[2:])),
            (bias.variances()[:, None], of_mean.sum(axis=0)),
            _listed(jnp.einsum("ij,tjr->tir", weight.variances(), at.variances()), of_mean),
        ]

    def sample(self, key: PRNGKeyArray) -> Unrolled:
        """Draw the weights, once or for every step."""
        parts, keys = (self.from_input, self.from_state), jax.random.split(key)
        if self.weights_drawn == "once":
            return Unrolled(
                self, *(part.sample(one) for part, one in zip(parts, keys, strict=True))
            )
        each = [jax.random.split(one, self.n_steps) for one in keys]
        return Unrolled(
            self, *(eqx.filter_vmap(p.sample)(k) for p, k in zip(parts, each, strict=True))
        )


def _listed(s: Array, g: Array) -> tuple[Array, Array]:
    """Return variances (..., rows) and derivatives (..., k, rows) with one axis of sources."""
    return s.reshape(-1, s.shape[-1]), g.reshape(-1, *g.shape[-2:])


class Unrolled(eqx.Module):
    """One draw of a `Recurrent` layer: a plain recurrent cell, or one for every step."""

    layer: Recurrent
    from_input: Affine
    from_state: Affine

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch units"]:
        """Return the output after the last step."""
        cell = self.layer._cell
        steps, valid = self.layer._in_steps(x.reshape(-1, x.shape[-1]).T)
        drawn, once = (self.from_input, self.from_state), self.layer.weights_drawn == "once"

        def step(before: Array, now: Any) -> tuple[Array, None]:
            given, valid, each = now
            of_input, of_state = each or drawn
            gates = cell.by_gate(cell.of_input, of_input(given.T).T)
            gates = gates + cell.by_gate(cell.of_state, of_state(before[-1].T).T)
            after: list[Array] = []

            def settle(value: Array) -> Array:
                after.append(value)
                return value

            cell.step(gates, before[0], settle)
            new = jnp.stack(after)
            return new if valid is None else jnp.where(valid, new, before), None

        start = jnp.zeros((cell.n_parts, self.layer.units, steps.shape[2]), x.dtype)
        last, _ = jax.lax.scan(step, start, (steps, valid, None if once else drawn))
        return last[-1].T.reshape(*x.shape[:-1], self.layer.units)


def rnn(
    n_inputs: int,
    n_outputs: int,
    *,
    n_steps: int,
    key: PRNGKeyArray,
    cell: str = "gru",
    units: int = 20,
    weights: WeightInit = GaussianWeights.init,
    weights_drawn: str = "once",
    gate_covariance: bool = True,
    masked: bool = False,
    joint: bool = False,
    hidden_noise: AbstractNoise | None = None,
    propagation: str = "first-order",
) -> Sequential:
    """Build a network from sequences to outputs: a recurrent layer, and a dense one on its output.

    Parameters
    ----------
    n_inputs, n_outputs, key
        Inputs per step, outputs, and a random key for the start of the weights.
    n_steps, cell, weights_drawn, gate_covariance, masked
        As in `Recurrent`.
    units
        Length of the state.
    weights, joint, hidden_noise, propagation
        As in `mlp`; noise is on the last state.

    Examples
    --------
    >>> net = rnn(1, 2, n_steps=3, key=jax.random.key(0), masked=True)
    >>> values, mask = jnp.ones((4, 3)), jnp.array([[1.0, 1.0, 0.0]] * 4)
    >>> net.moments(jnp.concatenate([values, mask], axis=1)).mean.shape
    (4, 2)
    """
    outputs = units * (CELLS[cell].n_blocks if cell in CELLS else 1)  # the layer says which are
    shapes = [(outputs, n_inputs), (outputs,), (outputs, units), (n_outputs, units), (n_outputs,)]
    keys = jax.random.split(key, len(shapes))
    w_in, b_in, w_state, w_out, b_out = map(weights, keys, shapes)
    recurrent = Recurrent(
        Dense(w_in, b_in),
        Dense(w_state),
        n_steps,
        cell=cell,
        weights_drawn=weights_drawn,
        gate_covariance=gate_covariance,
        masked=masked,
    )
    noise = [] if hidden_noise is None else [hidden_noise]
    last = (JointDense if joint else Dense)(w_out, b_out)
    return Sequential([recurrent, *noise, last], propagation)
