"""The uncertainty budget: where the variance of every prediction comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varprop.predictive.members import Members
from varprop.predictive.mixtures import Array, quiet

#: Names of what is not an input's error or drawn in a layer.
MODEL, DISAGREE, NOISE = "model", "members disagree", "noise"
#: Of all that an objective does not tell apart: it sees the sum alone.
UNTOLD = "weights and noise, not told apart"
#: Of the smallest ones together, where there are many.
OTHER = "other sources"


@dataclass(frozen=True, eq=False, repr=False)
class Budget:
    """Variances by source, which sum to the predicted variance.

    Attributes
    ----------
    names
        Of the sources.
    variance
        Shape (n, sources), or (n, sources, d) if the target was two-dimensional.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> budget = Predictive.gaussian([0.0, 0.0], [1.0, 3.0], 1.0).budget()
    >>> budget
    Budget(n_rows=2, sources=['model', 'noise'])
    >>> budget.shares.tolist()
    [[0.5, 0.5], [0.75, 0.25]]
    """

    names: list[str]
    variance: Array

    @property
    def shares(self) -> Array:
        """The sources as shares of every row's variance, in the shape of `variance`."""
        whole = self.variance.sum(axis=1, keepdims=True)
        return self.variance / np.where(whole > 0, whole, 1.0)

    def of_output(self, index: int) -> Budget:
        """Return the budget of one of several outputs, by its number from 0."""
        if self.variance.ndim != 3:
            raise ValueError("This budget is of one output already.")
        return Budget(self.names, self.variance[..., index])

    def largest(self, count: int = 6) -> NDArray[np.intp]:
        """Return the rows of largest variance, of one output, the largest first."""
        return np.argsort(-self.variance.sum(axis=1), kind="stable")[:count]

    def brief(self, most: int) -> Budget:
        """Return the budget, of one output, with the source of the largest average share first.

        Of more than `most` sources the smallest are one, "other sources", which comes last.

        Examples
        --------
        >>> Budget(["a", "b", "c"], np.array([[1.0, 5.0, 2.0]])).brief(2).variance.tolist()
        [[5.0, 2.0, 1.0]]
        """
        order = np.argsort(-self.shares.mean(axis=0), kind="stable")
        names, variance = [self.names[i] for i in order], self.variance[:, order]
        if len(names) <= most:
            return Budget(names, variance)
        rest = variance[:, most:].sum(axis=1, keepdims=True)
        return Budget([*names[:most], OTHER], np.hstack([variance[:, :most], rest]))

    def __repr__(self) -> str:
        """Return sources, not values."""
        return f"Budget(n_rows={len(self.variance)}, sources={self.names})"


def budget_of(prediction: Members, feature_names: Sequence[str] | None = None) -> Budget:
    """Return the budget of a prediction; see `varprop.predictive.Predictive.budget`."""
    n, d = prediction.member_mean.shape[1:]
    weights = np.broadcast_to(prediction.weights, (prediction.n_members, n))[..., None]
    parts: dict[str, Array] = {}
    inputs: Array | None = None

    def add(name: str, values: Array) -> None:
        parts[name] = parts.get(name, np.zeros((n, d))) + values

    for k, (weight, var) in enumerate(zip(weights, prediction._member_model_var(), strict=True)):
        kernel = None if prediction.between is None else prediction.between[k]
        if kernel is None:
            add(MODEL, weight * var)
            continue
        found = kernel.chosen_shares()
        inputs = (0.0 if inputs is None else inputs) + weight * var * found.inputs
        for name, share in found.layers.items():
            add(name, weight * var * share)
    if prediction.n_members > 1:
        add(DISAGREE, (weights * prediction._apart() ** 2).sum(axis=0))
    noise = np.broadcast_to(prediction._noise_var(), (n, d))
    if not prediction.identified:
        untold = sum((parts.pop(name) for name in list(parts) if name != DISAGREE), noise)
        parts = {UNTOLD: untold} | parts
    else:
        add(NOISE, noise)
    parts = {name: part for name, part in parts.items() if part.any()}
    if inputs is not None and inputs.any():
        names = feature_names
        if names is None:
            names = [f"X[:, {i}]" for i in range(len(inputs))]
        erring = {f"error of {name}": part for name, part in zip(names, inputs, strict=True)}
        parts = {name: part for name, part in erring.items() if part.any()} | parts
    variance = np.stack(list(parts.values()), axis=1) if parts else np.zeros((n, 0, d))
    unit = prediction.unit
    with quiet():  # as `var`: it may overflow or vanish
        variance = unit * (unit * variance)
    return Budget(list(parts), variance[..., 0] if prediction.squeeze else variance)
