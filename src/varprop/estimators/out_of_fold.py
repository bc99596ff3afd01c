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
    hashes
        For every fold, of its rows.
    predictions
        For every fold, of these rows by each model, by its name; None where there is none.
    weights
        For every fold, of the models in their order.
    nll
        Mean negative log density of all rows.
    """

    hashes: tuple[np.ndarray, ...]
    predictions: tuple[Mapping[str, Any], ...]
    weights: tuple[np.ndarray, ...]
    nll: float

    @classmethod
    def of(cls, aside: SetAside, judged: Mapping[str, Judged], weights: np.ndarray) -> OutOfFold:
        """Weigh the models of every fold by the rows of the others.

        Parameters
        ----------
        aside
            The rows, by fold.
        judged
            What each model made of them, by its name.
        weights
            Of the stack.
        """
        parts, folds = list(judged.values()), range(len(aside.folds))
        others = [[k for k in folds if k != fold] for fold in folds]
        own = [trusted([p.only(rest) for p in parts]) if rest else weights for rest in others]
        each = [mixed([p.only([k]) for p in parts], own[k]) for k in folds]
        nll = np.average([found.nll for found in each], weights=[e.total_weight for e in each])
        return cls(
            tuple(row_hashes(f.held.x, f.held.y, f.held.x_var) for f in aside.folds),
            tuple({name: found.predictions[k] for name, found in judged.items()} for k in folds),
            tuple(own),
            float(nll),
        )

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
        for number, own in enumerate(self.hashes):
            known, first = np.unique(own, return_index=True)
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found = known[at] == hashes
            fold[found], place[found] = number, first[at[found]]
        if (fold < 0).any():
            raise ValueError(
                f"row {int(np.argmax(fold < 0))} was not set aside: predictions out of fold are "
                "of the rows given to `fit`, with the same targets, that it had in memory."
            )
        parts, shares = [], []
        for number in np.unique(fold):
            weights = {model: 1.0}
            if model is None:
                weights = dict(
                    zip(self.predictions[number], self.weights[number].tolist(), strict=True)
                )
            there = [
                (found, share)
                for name, share in weights.items()
                if (found := self.predictions[number][name]) is not None and share
            ]
            if not there:
                raise ValueError(f"model {model!r} has no prediction of fold {number}.")
            rows = np.where(fold == number, place, 0)  # of other folds any row: it has no weight
            parts.append(mixture([found[rows] for found, _ in there], [w for _, w in there]))
            shares.append((fold == number).astype(float))
        return mixture(parts, np.stack(shares))
