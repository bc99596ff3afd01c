"""What the fitted estimators share besides their predictions: what they have seen, and files."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from varprop.data.domain import Domain, Outside
from varprop.data.fingerprints import Fingerprints, row_hashes
from varprop.data.source import AbstractSource, Rows
from varprop.data.statistics import Scaling
from varprop.estimators.inputs import check_inputs
from varprop.estimators.methods import PredictiveMethods

R = TypeVar("R", bound="AbstractRegressor")


class AbstractRegressor(PredictiveMethods, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor that knows where its training rows lie, and that files can hold."""

    n_outputs_: int
    target_names_: list[str] | None
    scaling_: Scaling
    n_seen_: int | None  # different training rows
    domain_: Domain | None
    fingerprints_: Fingerprints | None
    _y_ndim: int

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

    def share_seen(self, X: Any, y: Any) -> float | None:
        """Return the share of rows, inputs and targets, that the model was trained on.

        Returns
        -------
        float or None
            An estimate if there were more than 65,536 training rows; None if it is not known.
        """
        if self.fingerprints_ is None:
            return None
        rows = Rows(X, y.reshape(len(X), -1))
        return self.fingerprints_.share_seen(row_hashes(rows.x, rows.y))

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

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an ONNX graph that runs without Python; needs ``varprop[onnx]``.

        The graph takes ``X``, double of shape (rows, n_features) in the units of the training data,
        and gives ``mean`` and ``std``, double of shape (rows, n_outputs), and ``cov`` of shape
        (rows, n_outputs, n_outputs) if the covariance between outputs is modeled. A mixture gives
        its moments.

        Parameters
        ----------
        path
            Where to.
        """
        from varprop.files.onnx import export_onnx

        check_is_fitted(self)
        export_onnx(self, path)
