"""Predictive distributions of classes: probabilities, and what of their entropy is not chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import RandomState, as_float, as_weights, drawing
from varprop.predictive.columns import ENTROPY, ENTROPY_PARTS, as_frame, probability_names
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.mixtures import Array, ArrayLike

# Probabilities come from single-precision networks.
_ROUNDING = 1e-4


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Categories(AbstractPredictive):
    """Probabilities of ``c`` classes for ``n`` rows.

    Parameters
    ----------
    proba : array of shape (n, c)
        Not negative; each row is divided by its sum, which must be near 1.
    aleatoric : array of shape (n,), default=None
        Mean entropy of the class given the model: what would remain if the model were known. All of
        the entropy unless given.
    classes : array of shape (c,), default=None
        The classes' labels; 0, 1, ... unless given.
    ordered : bool, default=False
        Whether the classes have an order, which `crps` looks at.

    Examples
    --------
    >>> a = Categories([[0.9, 0.1]], classes=["no", "yes"])
    >>> b = Categories([[0.1, 0.9]], classes=["no", "yes"])
    >>> both = Categories.mixture([a, b])
    >>> print(both.proba, both.entropy().round(3), both.epistemic.round(3))
    [[0.5 0.5]] [0.693] [0.368]
    """

    proba: Array
    aleatoric: Array
    classes: np.ndarray
    ordered: bool
    squeeze = True

    def __init__(
        self,
        proba: ArrayLike,
        aleatoric: ArrayLike | None = None,
        *,
        classes: Any = None,
        ordered: bool = False,
    ):
        found = as_float(proba, "proba")
        if found.ndim != 2 or found.shape[1] < 1:
            raise ValueError(f"proba must have shape (n, c), not {found.shape}.")
        total = found.sum(axis=1, keepdims=True)
        if not (found >= 0).all() or not (np.abs(total - 1) < _ROUNDING).all():
            raise ValueError("proba must be probabilities: not negative, with sum 1 in each row.")
        found = found / total
        entropy = entropy_of(found)
        part = entropy if aleatoric is None else as_float(aleatoric, "aleatoric")
        if part.shape != entropy.shape or not (part >= 0).all():
            raise ValueError("aleatoric must be one number per row, not negative.")
        labels = np.arange(found.shape[1]) if classes is None else np.asarray(classes)
        if labels.shape != (found.shape[1],):
            raise ValueError(f"there are {found.shape[1]} classes, but labels {labels.shape}.")
        # Both are approximations that may cross by their errors.
        values = (found, np.minimum(part, entropy), labels, ordered)
        for field, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return len(self.proba)

    @property
    def n_classes(self) -> int:
        """Number of classes ``c``."""
        return self.proba.shape[1]

    @property
    def mode(self) -> np.ndarray:
        """The most probable class of each row, by its label."""
        return self.classes[self.proba.argmax(axis=1)]

    def entropy(self) -> Array:
        """Return how unsure each prediction is, in nats: `aleatoric` and `epistemic` together.

        Examples
        --------
        >>> Categories([[0.5, 0.5], [1.0, 0.0]]).entropy().round(4).tolist()
        [0.6931, 0.0]
        """
        return entropy_of(self.proba)

    @property
    def epistemic(self) -> Array:
        """What of the entropy is the model's doubt, and more rows could take away."""
        return np.maximum(self.entropy() - self.aleatoric, 0.0)

    def unsplit(self) -> Categories:
        """Return the same probabilities with all of the entropy as chance."""
        return Categories(self.proba, classes=self.classes, ordered=self.ordered)

    def labeled(self, classes: Any) -> Categories:
        """Return the same with labels.

        Examples
        --------
        >>> Categories([[0.2, 0.8]]).labeled(["a", "b"]).mode.tolist()
        ['b']
        """
        return Categories(self.proba, self.aleatoric, classes=classes, ordered=self.ordered)

    def __getitem__(self, rows: Any) -> Categories:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        rows = [rows] if isinstance(rows, int | np.integer) else rows
        return Categories(
            self.proba[rows], self.aleatoric[rows], classes=self.classes, ordered=self.ordered
        )

    @classmethod
    def mixture(cls, members: Sequence[Categories], weights: ArrayLike | None = None) -> Categories:
        """Return the mixture of predictions of the same rows.

        What members disagree in counts as epistemic. One that knows fewer classes, of those that
        are only numbered, gives the rest no probability.

        Parameters
        ----------
        members
            At least one.
        weights
            Shape (members,) or (members, n), not negative, normalized here; equal unless given.
        """
        if not members:
            raise ValueError("a mixture needs at least one member.")
        most = max(members, key=lambda member: member.n_classes)
        n, c = most.proba.shape
        shape = (len(members),)
        if any(member.n_rows != n for member in members):
            raise ValueError("the members of a mixture must predict the same rows.")
        if any((m.classes != most.classes[: m.n_classes]).any() for m in members):
            raise ValueError("the members of a mixture must have the same classes.")
        w = (
            np.ones(shape)
            if weights is None
            else as_weights(weights, "weights", shape, (*shape, n))
        )
        w = w / w.sum(axis=0)
        w = np.broadcast_to(w.reshape(len(members), -1), (len(members), n))
        proba = np.zeros((n, c))
        for share, member in zip(w, members, strict=True):
            proba[:, : member.n_classes] += share[:, None] * member.proba
        aleatoric = sum(share * member.aleatoric for share, member in zip(w, members, strict=True))
        return cls(proba, aleatoric, classes=most.classes, ordered=most.ordered)

    def codes(self, y: Any) -> np.ndarray:
        """Return the numbers of labels, shape (n,); one that is no class is a ValueError.

        Examples
        --------
        >>> Categories([[0.2, 0.8]]).labeled(["a", "b"]).codes(["b"]).tolist()
        [1]
        """
        found = codes_of(np.asarray(y), self.classes)
        if found.shape != (self.n_rows,):
            raise ValueError(
                f"y has shape {found.shape}, but the prediction has {self.n_rows} rows."
            )
        return found

    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log probability of each row's class, by its label.

        Examples
        --------
        >>> Categories([[0.2, 0.8]]).logpdf([1]).round(4).tolist()
        [-0.2231]
        """
        with mixtures.quiet():
            found: Array = np.log(self.proba[np.arange(self.n_rows), self.codes(y)])
        return found

    def crps(self, y: ArrayLike) -> Array:
        """Return a quadratic score of each row, lower is better.

        The Brier score ``sum_k (p_k - [y = k])^2``, or, where classes are ordered, the ranked
        probability score, the same sum of cumulative probabilities.

        Examples
        --------
        >>> Categories([[0.2, 0.8]]).crps([1]).round(4).tolist()
        [0.08]
        """
        error = self.proba - np.eye(self.n_classes)[self.codes(y)]
        if self.ordered:
            error = np.cumsum(error, axis=1)
        score: Array = np.sum(error**2, axis=1)
        return score

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> np.ndarray:
        """Draw labels, independent: array of shape ``(n, n_samples)``.

        Examples
        --------
        >>> Categories([[0.0, 1.0]]).sample(3, 0).tolist()
        [[1, 1, 1]]
        """
        n_samples, draw = drawing(n_samples, random_state)
        at = draw.uniform(size=(self.n_rows, n_samples))
        steps = np.cumsum(self.proba, axis=1)[:, :-1]  # the last is 1 up to rounding
        return self.classes[(at[:, :, None] >= steps[:, None, :]).sum(axis=2)]

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the predictions as a data frame: the columns that `varprop predict` writes.

        Parameters
        ----------
        library : {"pandas", "polars"}, default="pandas"
            Of the frame; it must be installed.

        Returns
        -------
        DataFrame
            ``predicted``, the most probable class; ``p_`` and a class for each of them;
            ``entropy`` in nats and, if any of it is the model's doubt, its parts.

        Examples
        --------
        >>> print(Categories([[0.25, 0.75]], classes=["no", "yes"]).to_frame().round(3))
          predicted  p_no  p_yes  entropy
        0       yes  0.25   0.75    0.562
        """
        names = [*probability_names(self.classes), ENTROPY]
        values = [*self.proba.T, self.entropy()]
        if self.epistemic.any():
            names += ENTROPY_PARTS
            values += [self.epistemic, self.aleatoric]
        columns = {"predicted": self.mode} | dict(zip(names, values, strict=True))
        return as_frame(columns, library)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first rows, and a strip for each."""
        from varprop.report.notebook import prediction_html

        return prediction_html(self)

    def __repr__(self) -> str:
        """Return sizes, not numbers."""
        return f"Categories({self.n_rows} rows, {self.n_classes} classes)"


def entropy_of(proba: Array) -> Array:
    """Return the entropy of probabilities along the last axis, in nats.

    Examples
    --------
    >>> entropy_of(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    total: Array = -(proba * np.log(np.maximum(proba, np.finfo(np.float64).tiny))).sum(axis=-1)
    return np.maximum(total, 0.0)


def codes_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the place of every label among sorted or unsorted classes.

    Raises
    ------
    ValueError
        Naming a label that is none of them.

    Examples
    --------
    >>> codes_of(np.array(["b", "a"]), np.array(["a", "b"])).tolist()
    [1, 0]
    """
    known = {label: code for code, label in enumerate(classes.tolist())}
    values, where = np.unique(y, return_inverse=True)
    try:
        codes = np.array([known[value] for value in values.tolist()], int)
    except KeyError as error:
        raise ValueError(
            f"y holds {error.args[0]!r}, which is none of the {len(known)} classes the model knows."
        ) from None
    return codes[where].reshape(y.shape)
