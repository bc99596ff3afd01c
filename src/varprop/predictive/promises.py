"""What was stated of every row, and whether it held: to compare rows of now with those of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from varprop.data.sketch import Sketch
from varprop.predictive.bounds import Bounded
from varprop.predictive.categories import Categories
from varprop.predictive.contract import AbstractNumeric, AbstractPredictive
from varprop.predictive.metrics import held, jump
from varprop.predictive.past import COUNTED, LEVELS, Past
from varprop.predictive.scorecard import row_losses


@dataclasses.dataclass(frozen=True)
class Promises:
    """What was stated of every row, and whether it held.

    Attributes
    ----------
    losses
        Negative log density of what was observed, shape (rows,).
    pits
        Stated probability of less than that, shape (rows, targets); no targets where there is no
        such number, of classes and of what is known up to bounds.
    counts
        By the names of `COUNTED`, of which rows something is true, shape (rows, targets): whether
        the interval of that probability held the target, whether it was below the stated median,
        or whether the class was the most probable one. Of counts it may be true in part.

    Examples
    --------
    >>> from varprop.predictive.distribution import Predictive
    >>> found = Promises.of(np.array([0.0, 3.0]), Predictive.gaussian([1.0, 1.0], [0.0, 0.0], 1.0))
    >>> found.pits[:, 0].round(3).tolist(), found.counts["90 %"][:, 0].tolist()
    ([0.159, 0.977], [1.0, 0.0])
    """

    losses: np.ndarray
    pits: np.ndarray
    counts: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, y: np.ndarray, prediction: AbstractPredictive) -> Promises:
        """Judge a prediction row by row, of targets of its public shape."""
        losses, none = row_losses(y, prediction), np.empty((len(y), 0))
        if isinstance(prediction, Categories):
            right = (prediction.mode == y)[:, None].astype(np.float64)
            return cls(losses, none, {"right": right})
        if isinstance(prediction, Bounded):
            return cls(losses, none, {})
        assert isinstance(prediction, AbstractNumeric)
        y = y.reshape(len(y), -1)
        below, at = jump(y, prediction)
        inside = held(y, prediction, np.array(LEVELS))
        counts = dict(zip(COUNTED, inside, strict=False))
        size = at - below  # what lies on the median of a count lies below it in part
        part = np.clip(0.5 - below, 0.0, size) / np.where(size > 0, size, 1.0)
        counts["below"] = np.where(size > 0, part, below < 0.5)
        return cls(losses, (below + at) / 2, counts)

    def part(self, rows: np.ndarray) -> Promises:
        """Return those of some rows."""
        counts = {name: values[rows] for name, values in self.counts.items()}
        return Promises(self.losses[rows], self.pits[rows], counts)

    def summary(self) -> Past:
        """Return what a model file keeps of them."""
        return Past(
            len(self.losses),
            float(self.losses.mean()),
            float(self.losses.std()),
            Sketch.of(self.losses),
            tuple(map(Sketch.of, self.pits.T)),
            {name: tuple(map(round, v.sum(axis=0).tolist())) for name, v in self.counts.items()},
        )
