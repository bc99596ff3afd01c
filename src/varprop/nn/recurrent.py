"""Recurrent layers: a sequence in, the state after its last step out; and `rnn`, a whole network.

A cell is written once, as plain arithmetic of its gates' inputs and its state: drawn networks run
it with arrays, and moments with `_Followed`, a variable that knows its mean, its variance and, to
first order, what it depends on. By that a product of two knows their covariance, whether it comes
from a state that both are made of or from a gate that is used twice.

The variance of the last state adds up the independent sources along the way, squared derivative by
squared derivative (`varprop.nn.propagation`): errors of the inputs, weights, and at every step what
is not linear in the gates' inputs. The derivatives are those of the recursion of means *and*
variances, by reverse differentiation through `jax.lax.scan`. Weights drawn once are one source
each, so that their copies at all steps add up before they are squared:

    sum_ij s_ij (sum_t d_i(t) E[x_j(t)] + 2 E[w_ij] sum_t b_i(t) V[x_j(t)])^2

with d and b the derivatives by mean and variance of gate input i. Not followed: what a weight drawn
once has in common with the state it multiplies, in the mean; its products with errors, which count
as drawn at each step; and, along the way, the covariance between different units of the state.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.gaussian import Gaussian, as_gaussian
from varprop.moments.pairs import product
from varprop.nn.activations import AbstractActivation
from varprop.nn.contract import AbstractLayer, Adjoint, Linearized
from varprop.nn.integrators import GaussHermite
from varprop.nn.layers import Dense, JointDense, Sequential, WeightInit, linear_moments
from varprop.nn.noise import AbstractNoise
from varprop.nn.plain import Affine
from varprop.nn.propagation import pushed_through
from varprop.nn.registry import register
from varprop.nn.weights import GaussianWeights

WEIGHTS_DRAWN = ("once", "each-step")
# Sixteen nodes make a far smaller program than `Sigmoid` and `Tanh`, which hold for any variance.
# At an input's standard deviation of 1 the variance of tanh is off by at most 3e-4, that of the
# sigmoid by 2e-8; at 2, which trained networks stay below, by 2e-2 and 8e-5.
_SIGMOID = GaussHermite(jax.nn.sigmoid, n_nodes=16)
_TANH = GaussHermite(jnp.tanh, n_nodes=16)


@dataclasses.dataclass
class _Roots:
    """What the variables of one step are made of: covariances of roots, those of 0 left out."""

    cov: dict[tuple[int, int], Array]
    n: int

    def add(self, var: Array) -> int:
        """Return the number of a new root, independent of all others."""
        self.n += 1
        self.cov[self.n - 1, self.n - 1] = var
        return self.n - 1


@dataclasses.dataclass
class _Followed:
    """A variable of every unit: its mean, its variance and its derivatives by its roots.

    Its variance is that of the linear part: whatever is not linear becomes a root of its own.
    """

    mean: Any
    var: Any
    line: dict[int, Any]
    roots: _Roots

    def cov(self, other: _Followed) -> Any:
        pairs = itertools.product(self.line.items(), other.line.items())
        known = self.roots.cov
        return sum(
            a * b * known[min(i, j), max(i, j)]
            for (i, a), (j, b) in pairs
            if (min(i, j), max(i, j)) in known
        )

    def _combined(self, other: _Followed, a: Any, b: Any) -> dict[int, Any]:
        line = {i: a * slope for i, slope in self.line.items()}
        return line | {i: line.get(i, 0.0) + b * slope for i, slope in other.line.items()}

    def __add__(self, other: _Followed, sign: float = 1.0) -> _Followed:
        var = self.var + other.var + 2 * sign * self.cov(other)
        line = self._combined(other, 1.0, sign)
        # Of nearly equal variables rounding may put it below 0.
        return _Followed(self.mean + sign * other.mean, jnp.maximum(var, 0), line, self.roots)

    def __sub__(self, other: _Followed) -> _Followed:
        return self.__add__(other, -1.0)

    def __mul__(self, other: _Followed) -> _Followed:
        cov = self.cov(other) + jnp.zeros_like(self.mean)
        out = product(Gaussian(self.mean, self.var), Gaussian(other.mean, other.var), cov)
        line = self._combined(other, other.mean, self.mean)
        line[self.roots.add(self.var * other.var + cov**2)] = 1.0
        return _Followed(out.mean, out.var, line, self.roots)

    def through(self, activation: AbstractActivation) -> _Followed:
        """Return the activation of it."""
        at, along = (self.mean, self.var), (jnp.ones_like(self.mean), jnp.zeros_like(self.mean))
        (mean, var), (slope, _) = jax.jvp(activation.uncertain_moments, at, along)
        line = {i: slope * part for i, part in self.line.items()}
        # The error of a quadrature may put it below 0.
        own = jnp.maximum(var - slope**2 * self.var, 0)
        line[self.roots.add(own)] = 1.0
        return _Followed(mean, slope**2 * self.var + own, line, self.roots)

    def settled(self, kept: set[int], moved: Array) -> tuple[_Followed, Array]:
        """Return it moved by so much, all but some roots made one; and the variance of that one."""
        own = sum(b**2 * self.roots.cov[i, i] for i, b in self.line.items() if i not in kept)
        own = own + jnp.zeros_like(self.mean)
        line = {i: slope for i, slope in self.line.items() if i in kept}
        kept.add(root := self.roots.add(own))
        return _Followed(self.mean + moved, self.var, line | {root: 1.0}, self.roots), own


def _through(activation: AbstractActivation, value: Any) -> Any:
    return value.through(activation) if isinstance(value, _Followed) else activation(value)


_sigmoid, _tanh = (functools.partial(_through, f) for f in (_SIGMOID, _TANH))
_Settle = Callable[[Any], Any]


def _simple(a: Sequence[Any], state: Any, settle: _Settle) -> None:
    settle(_tanh(a[0]))


def _gru(a: Sequence[Any], state: Any, settle: _Settle) -> None:
    new = _tanh(a[2] + _sigmoid(a[1]) * a[3])
    settle(new + _sigmoid(a[0]) * (state - new))


def _lstm(a: Sequence[Any], memory: Any, settle: _Settle) -> None:
    memory = settle(_sigmoid(a[0]) * memory + _sigmoid(a[1]) * _tanh(a[2]))
    settle(_sigmoid(a[3]) * _tanh(memory))


class _Cell(NamedTuple):
    """A cell of one unit: what it makes of its gates' inputs and of the first part of its state.

    It settles the parts of its new state, the last of which is its output. Each gate's input is the
    sum of one block, or none, of the affine maps of the step's input and of the output before it.
    """

    step: Callable[[Sequence[Any], Any, _Settle], None]
    of_input: tuple[int | None, ...]
    of_state: tuple[int | None, ...]
    n_blocks: int
    n_parts: int = 1

    def by_gate(self, which: Sequence[int | None], values: Array) -> Array:
        """Return values of (blocks * units, ...) as those of each gate, (gates, units, ...)."""
        blocks = values.reshape(self.n_blocks, -1, *values.shape[1:])
        none = jnp.zeros_like(blocks[0])
        return jnp.stack([none if block is None else blocks[block] for block in which])


CELLS = {
    "rnn": _Cell(_simple, (0,), (0,), 1),
    # As in Torch and cuDNN: the reset gate acts behind the affine map of the state.
    "gru": _Cell(_gru, (0, 1, 2, None), (0, 1, None, 2), 3),
    "lstm": _Cell(_lstm, (0, 1, 2, 3), (0, 1, 2, 3), 4, 2),
}


class _Moves(NamedTuple):
    """What the recursion is differentiated by: zeros added to what arises at every step."""

    mean: Array  # of the gates' inputs, (steps, gates, units, rows)
    var: Array | None
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
    def _cell(self) -> _Cell:
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
            bias = sum((b for _, b in parts if b is not None), jnp.zeros_like(weight[..., 0]))
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
            mean, own = linear_moments(at, weight, bias, columns=True, own=True)
            mean, own = (part.reshape(n, units, -1) for part in (mean, own))
            roots = _Roots(dict(zip(pairs, products @ at.var, strict=True)), n + 1)
            roots.cov[n, n] = variances[0]
            for i in range(n):
                var = roots.cov[i, i] + own[i]
                roots.cov[i, i] = var if move.var is None else var + move.var[i]
                if self.gate_covariance:
                    roots.cov[i, n] = to_itself[i] * with_output
            mean = mean + move.mean
            gates = [_Followed(mean[i], roots.cov[i, i], {i: 1.0}, roots) for i in range(n)]
            kept, settled, arising = set(range(n + 1)), [], []

            def settle(value: _Followed) -> _Followed:
                value, source = value.settled(kept, move.parts[len(settled)])
                settled.append(value)
                arising.append(source)
                return value

            cell.step(gates, _Followed(means[0], variances[0], {n: 1.0}, roots), settle)
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
        of_mean, of_var = (g.reshape(self.n_steps, outputs, *g.shape[3:]) for g in by[:2])
        total = jnp.einsum("tikr,tjr->ijkr", of_mean, at.mean)
        through = jnp.einsum("tikr,tjr->ijkr", of_var, at.var)
        total = total + 2 * weight.mean[..., None, None] * through
        return [
            (weight.var.reshape(-1, 1), total.reshape(outputs * n, *total.shape[2:])),
            (bias.var[:, None], of_mean.sum(axis=0)),
            _listed(jnp.einsum("ij,tjr->tir", weight.var, at.var), of_mean),
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
            cell.step(gates, before[0], lambda value: after.append(value) or value)
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
    outputs = units * (CELLS[cell].n_blocks if cell in CELLS else 1)
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
