"""Recurrent cells, written once: plain arithmetic of one unit's gates' inputs and its state.

Drawn networks run it with arrays; moments run it with `Followed`, a variable that knows its mean,
its variance and, to first order, what it depends on. By that a product of two knows their
covariance, whether both are made of the same state or one gate is used twice.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from varprop.moments.gaussian import Gaussian
from varprop.moments.pairs import product
from varprop.nn.activations import AbstractActivation
from varprop.nn.integrators import GaussHermite

# Sixteen nodes make a far smaller program than `Sigmoid` and `Tanh`, which hold for any variance.
# At an input's standard deviation of 1 the variance of tanh is off by at most 3e-4, that of the
# sigmoid by 2e-8; at 2, which trained networks stay below, by 2e-2 and 8e-5.
_SIGMOID = GaussHermite(jax.nn.sigmoid, n_nodes=16)
_TANH = GaussHermite(jnp.tanh, n_nodes=16)


@dataclasses.dataclass
class Roots:
    """What the variables of one step are made of: covariances of roots, those of 0 left out."""

    cov: dict[tuple[int, int], Array]
    n: int

    def add(self, var: Array) -> int:
        """Return the number of a new root, independent of all others."""
        self.n += 1
        self.cov[self.n - 1, self.n - 1] = var
        return self.n - 1


@dataclasses.dataclass
class Followed:
    """A variable of every unit: its mean, its variance and its derivatives by its roots.

    Its variance is that of the linear part: whatever is not linear becomes a root of its own.
    """

    mean: Any
    var: Any
    line: dict[int, Any]
    roots: Roots

    def cov(self, other: Followed) -> Any:
        """Return the covariance of the two, to first order."""
        pairs = itertools.product(self.line.items(), other.line.items())
        known = self.roots.cov
        return sum(
            a * b * known[min(i, j), max(i, j)]
            for (i, a), (j, b) in pairs
            if (min(i, j), max(i, j)) in known
        )

    def _combined(self, other: Followed, a: Any, b: Any) -> dict[int, Any]:
        line = {i: a * slope for i, slope in self.line.items()}
        return line | {i: line.get(i, 0.0) + b * slope for i, slope in other.line.items()}

    def __add__(self, other: Followed, sign: float = 1.0) -> Followed:
        var = self.var + other.var + 2 * sign * self.cov(other)
        line = self._combined(other, 1.0, sign)
        # Of nearly equal variables rounding may put it below 0.
        return Followed(self.mean + sign * other.mean, jnp.maximum(var, 0), line, self.roots)

    def __sub__(self, other: Followed) -> Followed:
        return self.__add__(other, -1.0)

    def __mul__(self, other: Followed) -> Followed:
        cov = self.cov(other) + jnp.zeros_like(self.mean)
        out = product(Gaussian(self.mean, self.var), Gaussian(other.mean, other.var), cov)
        line = self._combined(other, other.mean, self.mean)
        line[self.roots.add(self.var * other.var + cov**2)] = 1.0
        return Followed(out.mean, out.var, line, self.roots)

    def through(self, activation: AbstractActivation) -> Followed:
        """Return the activation of it."""
        at, along = (self.mean, self.var), (jnp.ones_like(self.mean), jnp.zeros_like(self.mean))
        (mean, var), (slope, _) = jax.jvp(activation.uncertain_moments, at, along)
        line = {i: slope * part for i, part in self.line.items()}
        # The error of a quadrature may put it below 0.
        own = jnp.maximum(var - slope**2 * self.var, 0)
        line[self.roots.add(own)] = 1.0
        return Followed(mean, slope**2 * self.var + own, line, self.roots)

    def settled(self, kept: set[int], moved: Array) -> tuple[Followed, Array]:
        """Return it moved by so much, all but some roots made one; and the variance of that one."""
        own = sum(b**2 * self.roots.cov[i, i] for i, b in self.line.items() if i not in kept)
        own = own + jnp.zeros_like(self.mean)
        line = {i: slope for i, slope in self.line.items() if i in kept}
        kept.add(root := self.roots.add(own))
        return Followed(self.mean + moved, self.var, line | {root: 1.0}, self.roots), own


def _through(activation: AbstractActivation, value: Any) -> Any:
    return value.through(activation) if isinstance(value, Followed) else activation(value)


_sigmoid, _tanh = (functools.partial(_through, f) for f in (_SIGMOID, _TANH))
_Settle = Callable[[Any], Any]


def _simple(a: Any, state: Any, settle: _Settle) -> None:
    settle(_tanh(a[0]))


def _gru(a: Any, state: Any, settle: _Settle) -> None:
    new = _tanh(a[2] + _sigmoid(a[1]) * a[3])
    settle(new + _sigmoid(a[0]) * (state - new))


def _lstm(a: Any, memory: Any, settle: _Settle) -> None:
    memory = settle(_sigmoid(a[0]) * memory + _sigmoid(a[1]) * _tanh(a[2]))
    settle(_sigmoid(a[3]) * _tanh(memory))


class Cell(NamedTuple):
    """A cell of one unit: what it makes of its gates' inputs and of the first part of its state.

    It settles the parts of its new state, the last of which is its output. Each gate's input is the
    sum of one block, or none, of the affine maps of the step's input and of the output before it.
    """

    step: Callable[[Any, Any, _Settle], None]
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
    "rnn": Cell(_simple, (0,), (0,), 1),
    # As in Torch and cuDNN: the reset gate acts behind the affine map of the state.
    "gru": Cell(_gru, (0, 1, 2, None), (0, 1, None, 2), 3),
    "lstm": Cell(_lstm, (0, 1, 2, 3), (0, 1, 2, 3), 4, 2),
}
