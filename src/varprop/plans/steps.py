"""What a plan is made of: flat steps with plain arrays and numbers, no code.

Everything a step says has a name and is an array, a number or a text, so that it can be written out
in any language. Rows come first: a step takes (rows, n) to (rows, m).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import final

import numpy as np

#: What the result of an operation is made of: a number, or the position of an earlier value.
Operand = float | int


class PlanError(ValueError):
    """A model, or a part of it, that has no plan; the message says which part."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """W x + b with independent random entries.

    Attributes
    ----------
    weight, weight_var
        Mean and variance of W, shape (m, n); no variance if it is exactly known.
    bias, bias_var
        Those of b, shape (m,); None for none.
    joint
        Whether the covariance between outputs is wanted; of the last step only.
    """

    weight: np.ndarray
    weight_var: np.ndarray | None
    bias: np.ndarray | None
    bias_var: np.ndarray | None
    joint: bool


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Noise:
    """x a + b with random a and b, independent for each entry: dropout, additive noise.

    Attributes
    ----------
    factor, factor_var
        Mean and variance of a, shape () or (n,).
    shift, shift_var
        Those of b.
    """

    factor: np.ndarray
    factor_var: np.ndarray
    shift: np.ndarray
    shift_var: np.ndarray


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Activation:
    """A function of each entry, by its name in `plans.rules.RULES`, and its numbers."""

    name: str
    numbers: Mapping[str, float]


@final
@dataclasses.dataclass(frozen=True)
class Program:
    """Operations on numbers one after the other; results are told by position.

    Attributes
    ----------
    operations
        Each a name in `plans.rules.OPERATIONS` and its operands. An operand that is a whole number
        is a position, first of all those of what is given, then of what operations have made; any
        other is a number.
    results
        Positions or numbers.
    """

    operations: tuple[tuple[str, tuple[Operand, ...]], ...]
    results: tuple[Operand, ...]


@final
@dataclasses.dataclass(frozen=True)
class Traced:
    """A user's own function of each entry, written down.

    Attributes
    ----------
    known
        Of an exactly known x: its value, or mean and variance if the function is random.
    uncertain
        Of mean and variance of x: `plans.rules.Partials`.
    """

    known: Program
    uncertain: Program


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Quadrature:
    """A user's own function of each entry, whose moments are sums over nodes.

    Attributes
    ----------
    function
        Of x: its value and its derivative.
    nodes, weights
        For the standard normal, shape (k,).
    """

    function: Program
    nodes: np.ndarray
    weights: np.ndarray


Elementwise = Activation | Traced | Quadrature
Step = Dense | Noise | Elementwise


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """One trained network, in standardized units.

    Attributes
    ----------
    steps
        In order.
    propagation
        "first-order", "second-order" or "independent"; see `varprop.nn.Sequential`.
    likelihood
        What is made of the outputs, by its name in `plans.ends.ENDS`.
    numbers
        Of the likelihood, by name.
    share
        Of the network in its part of the plan.
    """

    steps: tuple[Step, ...]
    propagation: str
    likelihood: str
    numbers: Mapping[str, np.ndarray]
    share: float = 1.0
