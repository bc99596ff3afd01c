"""What a run of training gives, and what it makes of the rows that were set aside."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np

from varprop.data.parts import gather
from varprop.estimators.validation import Fold, SetAside, in_memory
from varprop.predictive.blend import mixture
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.distribution import Predictive
from varprop.training.result import Fit, propagate

# Rows by which the spreads of members and judges are compared.
_MOST_COMPARED = 2000


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run gives.

    Attributes
    ----------
    fits
        One per member.
    shares
        Of the members in their mixture.
    aside
        What was set aside, if anything was.
    judges
        For every fold the fits that have not seen its rows; none if they failed.
    aside_seed
        Of the choice of these rows.
    interrupted
        Whether it was.
    """

    fits: list[Fit]
    shares: np.ndarray
    aside: SetAside | None
    judges: tuple[tuple[Fit, ...], ...]
    aside_seed: int
    interrupted: bool

    def held(self, *, squeeze: bool) -> list[AbstractPredictive | None]:
        """Predict the rows of every fold by networks that have not seen them.

        Where these are not among the members, they are made as sure as the members are: two runs
        may end in different optima, of which one is far too sure and the other is not.
        """
        found: list[AbstractPredictive | None] = []
        for fold, fits in zip(self.aside.folds if self.aside else (), self.judges, strict=True):
            x, x_var = fold.held.x, fold.held.x_var
            parts = []
            for fit in fits:
                # What precision cannot hold is as bad as no prediction.
                with contextlib.suppress(ValueError):
                    parts.append(
                        propagate(fit.model, x, x_var=x_var, scaling=fit.scaling, squeeze=squeeze)
                    )
            prediction = mixture(parts) if parts else None
            if isinstance(prediction, Predictive) and not any(
                fit is one for fit in fits for one in self.fits
            ):
                prediction = prediction.narrowed(self._narrower(fold, fits, squeeze=squeeze))
            found.append(prediction)
        return found

    def _narrower(self, fold: Fold, judges: Sequence[Fit], *, squeeze: bool) -> np.ndarray:
        """Return how much less spread members state than judges, on rows that both have seen.

        One number per output, at most 1.
        """
        assert self.aside is not None
        assert fold.rows is not None
        rows = gather(in_memory(self.aside.source).take(fold.rows), most=_MOST_COMPARED)
        spreads = []
        for fits, shares in ((self.fits, self.shares), (judges, None)):
            with contextlib.suppress(ValueError):
                parts = [
                    propagate(
                        fit.model, rows.x, x_var=rows.x_var, scaling=fit.scaling, squeeze=squeeze
                    )
                    for fit in fits
                ]
                spreads.append(mixture(parts, shares).std.reshape(len(rows.y), -1))
        if len(spreads) < 2:
            return np.ones(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.median(spreads[0] / spreads[1], axis=0)
        return np.where(ratio < 1, ratio, 1.0)
