"""What likelihoods of classes share; y is one column of codes 0, 1, ...

Each gives the probability of a class with the network's (Gaussian) output
averaged over, for ROPD, and the average of its logarithm, for VI. What comes out is `Categories`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.data.statistics import Scaling
from varprop.learning.likelihoods.contract import AbstractLikelihood, Output
from varprop.moments.numerics import hermite_nodes, square_root
from varprop.predictive.categories import Categories
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.kernels import AbstractRowKernel

# Nodes of the quadrature of E log Phi, which is smooth.
_NODES = 16
# Equal steps of the trapezoidal rule, and how far it goes: spectrally accurate, and by its many
# points also where the output's standard deviation is 20 times the link's.
_STEPS, _ENDS = 128, 5.5


class Probabilities(NamedTuple):
    """What a network says of each row.

    Attributes
    ----------
    probability
        Of every class, shape (rows, classes).
    aleatoric
        Mean entropy given the network's output, shape (rows, 1).
    """

    probability: Float[Array, "..."]
    aleatoric: Float[Array, "..."]


class AbstractClasses(AbstractLikelihood):
    """What likelihoods of classes share: one column of codes that is not standardized."""

    column_scaling: ClassVar[tuple[bool, ...]] = (False,)
    wants_joint: ClassVar[bool] = False
    ordered: ClassVar[bool] = False

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def probability(self, f: Output) -> Float[Array, "*batch c"]:
        """Return the probability of every class, averaged over the distribution of f."""

    @abstractmethod
    def aleatoric(self, f: Output) -> Float[Array, "*batch"]:
        """Return the mean over f of the entropy of the class given f."""

    @classmethod
    @abstractmethod
    def of_frequencies(cls, frequencies: Any) -> AbstractClasses:
        """Return where learning starts: a network that says 0 gives the classes these frequencies.

        Parameters
        ----------
        frequencies
            Shape (classes,), positive, with sum 1.
        """

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> AbstractClasses:
        """Return the start at the frequencies of the codes in y, or of two equal classes.

        A class that the rows lack is not known then: `of_frequencies` says how many there are.
        """
        if n_targets != 1:
            raise ValueError(f"classes are one target, but there are {n_targets}.")
        return cls.of_frequencies(np.full(2, 0.5) if y is None else class_frequencies(y[:, 0]))

    @property
    def n_targets(self) -> int:
        """One: the class."""
        return 1

    @property
    def noise_var(self) -> None:
        """None: classes have no variance."""
        return None

    def floored(self, floor: np.ndarray | None) -> AbstractClasses:
        """Return the same: probabilities have a bound of their own."""
        return self

    def predictive(self, f: Output) -> tuple[Probabilities, ...]:
        """Return the probabilities and the mean entropy."""
        return (Probabilities(self.probability(f), self.aleatoric(f)[..., None]),)

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> Categories:
        """Return the probabilities of the codes."""
        (part,) = parts
        return Categories(part.probability, part.aleatoric[:, 0], ordered=self.ordered)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return the classes' frequencies."""
        return class_frequencies(y[:, 0], weight)

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> Categories:
        """Return the classes' frequencies as a prediction; all of it is chance."""
        return Categories(numbers[None], ordered=cls.ordered)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return both as they are."""
        return prediction, y


def class_frequencies(
    codes: np.ndarray, weight: np.ndarray | None = None, n_classes: int | None = None
) -> np.ndarray:
    """Return the classes' shares, with one row more that is equally of all.

    Parameters
    ----------
    codes
        Shape (rows,): 0, 1, ...
    weight
        Shape (rows,), or None.
    n_classes
        As many as the codes say unless given.

    Examples
    --------
    >>> class_frequencies(np.array([0, 0, 1])).tolist()
    [0.625, 0.375]
    """
    n = max(int(codes.max()) + 1, 2) if n_classes is None else n_classes
    count = np.bincount(codes.astype(int), weight, minlength=n)
    return (count + 1 / n) / (count.sum() + 1)


def checked_frequencies(frequencies: Any, n: int | None = None) -> np.ndarray:
    """Return frequencies with sum 1, of `n` classes or of any number from two on."""
    found = np.asarray(frequencies, np.float64)
    if found.ndim != 1 or len(found) < 2 or not (found > 0).all() or n not in (None, len(found)):
        raise ValueError(
            f"frequencies must be positive, one for each of {n or 'at least two'} classes."
        )
    return found / found.sum()


def in_float(values: Any) -> np.ndarray:
    """Return numbers in JAX's float type of now."""
    return np.asarray(values, jnp.result_type(float))


def entropy_of(log_probability: Array) -> Array:
    """Return the entropy of classes, along the last axis."""
    return -jnp.sum(jnp.exp(log_probability) * log_probability, axis=-1)


def by_quadrature(function: Any, mean: Array, var: Array) -> Array:
    """Average a function of one output over its distribution by Gauss-Hermite quadrature."""
    spread = square_root(var)
    nodes = zip(*hermite_nodes(_NODES), strict=True)
    return sum(float(w) * function(mean + float(z) * spread) for z, w in nodes)


def by_trapezoid(function: Any, mean: Array, var: Array) -> Array:
    """Average a function of one output by the trapezoidal rule: for predictions, any variance."""
    z = np.linspace(-_ENDS, _ENDS, _STEPS)
    w = np.exp(-0.5 * z**2)
    at = mean[..., None] + square_root(var)[..., None] * jnp.asarray(z, mean.dtype)
    return function(at) @ jnp.asarray(w / w.sum(), mean.dtype)
