"""What the fitted estimators share besides their predictions: what they have seen, and files."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from varprop.data.domain import Domain, Outside
from varprop.data.fingerprints import Fingerprints, row_hashes
from varprop.data.source import AbstractSource
from varprop.data.statistics import Scaling
from varprop.estimators.inputs import check_exposure, check_inputs
from varprop.estimators.methods import PredictiveMethods
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.predictive.contract import AbstractNumeric
from varprop.training.schedule import Outcome

R = TypeVar("R", bound="AbstractEstimator")


class AbstractEstimator(BaseEstimator):
    """An estimator that knows where its training rows lie, and that files can hold."""

    n_outputs_: int
    target_names_: list[str] | None
    scaling_: Scaling
    n_seen_: int | None  # different training rows
    domain_: Domain | None
    fingerprints_: Fingerprints | None
    outcome_: str
    _y_ndim: int

    @property
    @abstractmethod
    def _kind(self) -> type[AbstractLikelihood]:
        """How targets are observed."""

    def _see(self, source: AbstractSource) -> None:
        """Remember where rows lie, and which they are, without keeping them."""
        blocks = range(len(source.block_rows))

        def pieces() -> Any:
            return (piece for block in blocks for piece in source.read(block))

        self.domain_ = Domain.of_blocks(piece.x for piece in pieces())
        self.fingerprints_ = Fingerprints.of_blocks(row_hashes(p.x, p.y) for p in pieces())

    def outside(self, X: Any) -> Outside:
        """Say where rows lie outside of what training has seen: a prediction there is a guess.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.

        Returns
        -------
        Outside
            ``rows``, of shape (n_rows,), is True where a value lies far beyond the training range
            (``beyond`` says which) or where the combination is unlike any seen (``far``).
        """
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        if self.domain_ is None:
            raise ValueError("the model does not know its training range: fit it, by `fit`, anew.")
        return self.domain_.outside(X)

    def share_seen(self, X: Any, y: Any, *, exposure: Any = None) -> float | None:
        """Return the share of rows, inputs and targets, that the model was trained on.

        Returns
        -------
        float or None
            An estimate if there were more than 65,536 training rows; None if it is not known.
        """
        if self.fingerprints_ is None:
            return None
        return self.fingerprints_.share_seen(self._hashes(X, y, exposure))

    def rows_seen(self, X: Any, y: Any, *, exposure: Any = None) -> np.ndarray | None:
        """Return which rows, inputs and targets, the model was trained on, shape (n_rows,).

        Returns
        -------
        ndarray or None
            None if it is not known.
        """
        if self.fingerprints_ is None:
            return None
        return self.fingerprints_.seen(self._hashes(X, y, exposure))

    def _hashes(self, X: Any, y: Any, exposure: Any) -> np.ndarray:
        return row_hashes(X, self._columns(y, exposure))

    def _columns(self, y: Any, exposure: Any) -> np.ndarray:
        """Return the columns that targets, and what is known of them besides, are trained on as."""
        given, y = self._kind.given, np.asarray(y, np.float64)
        return given.columns(y.reshape(len(y), -1), check_exposure(exposure, len(y), given))

    # ---- notebooks --------------------------------------------------------------------------

    @abstractmethod
    def _came_of_it(self) -> dict[str, dict[str, float | str]]:
        """Return a table of what came of the fit: columns by row."""

    def _fit_html(self) -> str:
        """Return how the fit ended, and its scores; nothing before it."""
        from varprop.report.notebook import fit_html

        if not hasattr(self, "outcome_"):
            return ""
        rows = "" if self.n_seen_ is None else f" on {self.n_seen_:,} different rows"
        ended = Outcome(self.outcome_).sentence
        return fit_html(f"Fitted{rows}: {ended}.", self._came_of_it())

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's own page, and what came of the fit."""
        return str(super()._repr_html_inner()) + self._fit_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return what a notebook shows: scikit-learn's own, and what came of the fit."""
        shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in shown:
            shown["text/html"] += self._fit_html()
        return shown

    # ---- files ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one ``.safetensors`` file, atomically.

        The file holds arrays and a JSON header, no code, and a model loaded from it predicts the
        same to the bit. The state of the optimizer is not kept: `partial_fit` of a loaded model
        starts with a new one.

        Parameters
        ----------
        path
            Where to.
        """
        from varprop.files.stack import save_estimator

        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(cls: type[R], path: str | os.PathLike[str]) -> R:
        """Read a model that `save` wrote; a damaged or foreign file is a `ModelFileError`.

        Parameters
        ----------
        path
            The file. Reading it runs no code, whoever made it.
        """
        from varprop.files.stack import load_estimator

        return load_estimator(cls, path)


class AbstractRegressor(PredictiveMethods, MultiOutputMixin, RegressorMixin, AbstractEstimator):
    """One whose targets are numbers."""

    def _exposed(self, dist: AbstractNumeric, exposure: Any) -> AbstractNumeric:
        """Return what is predicted at exposures other than 1."""
        kind, n_rows = self._kind, dist.n_rows
        checked = check_exposure(exposure, n_rows, kind.given)
        if checked is None:
            return dist
        columns = kind.given.columns(np.zeros((n_rows, self.n_outputs_)), checked)
        return kind.as_observed(dist, columns)[0]  # type: ignore[return-value]
