"""What a stack made of its own training rows, each by networks that had not seen it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from varprop.data.fingerprints import row_hashes
from varprop.estimators.validation import Judged, SetAside, mixed, trusted
from varprop.predictive.blend import mixture


@dataclasses.dataclass(frozen=True)
class OutOfFold:
    """Predictions of rows set aside, found again by what stands in a row.

    The weights of models in a fold are those that the rows of the other folds ask for, so that no
    row had a say in its own prediction: neither in the networks, nor in how they are mixed. Where
    rows were set aside once, for good, there are no others, and the weights are those of the stack.

    Attributes
    ----------
    aside
        The rows, by fold.
    judged
        What each model made of them, by its name.
    weights
        For every fold, of the models in their order.
    """

    aside: SetAside
    judged: Mapping[str, Judged]
    weights: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, aside: SetAside, judged: Mapping[str, Judged], weights: np.ndarray) -> OutOfFold:
        """Weigh the models of every fold by the rows of the others.

        Parameters
        ----------
        aside, judged
            As above.
        weights
            Of the stack.
        """
        n_folds = len(aside.folds)
        if n_folds == 1:
            return cls(aside, judged, (weights,))
        others = [[k for k in range(n_folds) if k != fold] for fold in range(n_folds)]
        parts = list(judged.values())
        found = [trusted([part.only(rest) for part in parts]) for rest in others]
        return cls(aside, judged, tuple(found))

    @property
    def nll(self) -> float:
        """Mean negative log density of the rows."""
        parts, scores, shares = list(self.judged.values()), [], []
        for fold, weights in enumerate(self.weights):
            own = mixed([part.only([fold]) for part in parts], weights)
            scores.append(own.nll)
            shares.append(own.total_weight)
        return float(np.average(scores, weights=shares))

    def predict(self, hashes: np.ndarray, model: str | None = None) -> Any:
        """Return the predictions of rows, by their `row_hashes`.

        Parameters
        ----------
        hashes
            Of the rows' inputs, targets, and the inputs' errors, as they were trained on.
        model
            One of the models alone; their mixture unless given.

        Raises
        ------
        ValueError
            If a row was not set aside, or not by that model.
        """
        fold, place = np.full(len(hashes), -1), np.zeros(len(hashes), int)
        for number, own in enumerate(self.aside.folds):
            known, first = np.unique(
                row_hashes(own.held.x, own.held.y, own.held.x_var), return_index=True
            )
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found = known[at] == hashes
            fold[found], place[found] = number, first[at[found]]
        if (fold < 0).any():
            raise ValueError(
                f"row {int(np.argmax(fold < 0))} was not set aside: predictions out of fold are "
                "of the rows given to `fit`, with the same targets, that it had in memory."
            )
        parts, shares = [], []
        for number, weights in enumerate(self.weights):
            own = fold == number
            if not own.any():
                continue
            shares_of = (
                dict(zip(self.judged, weights, strict=True)) if model is None else {model: 1.0}
            )
            there = [
                (found, share)
                for name, share in shares_of.items()
                if (found := self.judged[name].predictions[number]) is not None and share
            ]
            if not there:
                raise ValueError(f"model {model!r} has no prediction of fold {number}.")
            rows = np.where(own, place, 0)  # of other folds any row: it gets no weight
            parts.append(mixture([found[rows] for found, _ in there], [w for _, w in there]))
            shares.append(own.astype(float))
        return mixture(parts, np.stack(shares))
