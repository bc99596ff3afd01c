"""The members of a predictive mixture: how they are stored, their shapes and moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.mixtures import Array, ArrayLike

M = TypeVar("M", bound="Members")


@dataclass(frozen=True, eq=False, repr=False)
class Members:
    """Storage, shapes and moments of `varprop.predictive.Predictive`, which documents them."""

    member_mean: Array
    member_model: Array
    member_noise: Array
    weights: Array
    squeeze: bool = False

    @property
    def n_members(self) -> int:
        """Number of members ``K``."""
        return int(self.member_mean.shape[0])

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return int(self.member_mean.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of outputs ``d``."""
        return int(self.member_mean.shape[2])

    @property
    def is_joint(self) -> bool:
        """Whether the members' outputs may be correlated."""
        return self.member_model.ndim == 4

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def __repr__(self) -> str:
        """Return sizes, not values."""
        joint = ", joint=True" if self.is_joint else ""
        return (
            f"Predictive(n_rows={self.n_rows}, n_outputs={self.n_outputs}, "
            f"n_members={self.n_members}{joint})"
        )

    def __getitem__(self: M, rows: Any) -> M:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        rows = np.arange(self.n_rows)[rows] if not isinstance(rows, slice) else rows
        if not isinstance(rows, slice) and rows.ndim != 1:
            if rows.ndim != 0:
                raise IndexError("A Predictive is indexed by rows only.")
            rows = rows[None]
        mean = self.member_mean[:, rows]
        if mean.shape[1] == 0:
            raise ValueError("The selection holds no rows.")
        noise, weights = (
            a if a.shape[1] == 1 else a[:, rows] for a in (self.member_noise, self.weights)
        )
        return type(self)(mean, self.member_model[:, rows], noise, weights, self.squeeze)

    @property
    def _public_shape(self) -> tuple[int, ...]:
        shape = self.member_mean.shape[1:]
        return shape[:1] if self.squeeze else shape

    def _public(self, values: Array) -> Array:
        return values[..., 0] if self.squeeze else values

    def _internal(self, y: ArrayLike) -> Array:
        """Return ``y`` as float64 of shape ``(..., n, d)``; numbers serve every row and output."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 0:
            return np.broadcast_to(y, self.member_mean.shape[1:])
        public = self._public_shape
        if y.shape[-len(public) :] != public:
            raise ValueError(f"y has shape {y.shape} but the predictive has shape {public}.")
        return y[..., None] if self.squeeze else y

    # ---- moments ----------------------------------------------------------------------------

    def _member_model_var(self) -> Array:
        if self.is_joint:
            return np.diagonal(self.member_model, axis1=-2, axis2=-1)
        return self.member_model

    def _member_std(self) -> Array:
        return np.sqrt(self._member_model_var() + self.member_noise)

    def _average(self, values: Array) -> Array:
        """Weighted mean over members of ``(K, n | 1, ...)``."""
        weights = self.weights.reshape(self.weights.shape + (1,) * (values.ndim - 2))
        return values[0] if self.n_members == 1 else (weights * values).sum(axis=0)

    def _mean(self) -> Array:
        # Averaging differences keeps a mixture of equal means exactly equal to them.
        base = self.member_mean[0]
        return base if self.n_members == 1 else base + self._average(self.member_mean - base)

    def _model_var(self) -> Array:
        within = self._average(self._member_model_var())
        if self.n_members == 1:
            return within
        with mixtures.quiet():
            return within + self._average((self.member_mean - self._mean()) ** 2)

    def _noise_var(self) -> Array:
        return np.broadcast_to(self._average(self.member_noise), self.member_mean.shape[1:])

    @property
    def mean(self) -> Array:
        """Mean, in the public shape."""
        return self._public(self._mean()).copy()

    @property
    def model_var(self) -> Array:
        """Model (epistemic) variance: mean within members plus variance between their means."""
        return self._public(self._model_var()).copy()

    @property
    def noise_var(self) -> Array:
        """Noise (aleatoric) variance: the mean over the members."""
        return self._public(self._noise_var()).copy()

    @property
    def var(self) -> Array:
        """Total variance: `model_var` plus `noise_var`."""
        return self._public(self._model_var() + self._noise_var())

    @property
    def std(self) -> Array:
        """Total standard deviation, in the public shape."""
        return np.sqrt(self.var)

    @property
    def cov(self) -> Array:
        """Total covariance of the outputs, always of shape ``(n, d, d)``."""
        eye = np.eye(self.n_outputs)
        model = self._average(self.member_model)
        cov = model if self.is_joint else model[..., None] * eye
        cov = cov + self._noise_var()[..., None] * eye
        if self.n_members > 1:
            apart = self.member_mean - self._mean()
            for k, a in enumerate(apart):
                cov += self.weights[k][:, None, None] * a[:, :, None] * a[:, None, :]
        return cov

    # ---- members ----------------------------------------------------------------------------

    def _cdf(self, y: Array, *, left: bool = False) -> Array:
        weights = self.weights[..., None]
        return mixtures.mixture_cdf(y, weights, self.member_mean, self._member_std(), left=left)

    def _member_cov(self, k: int) -> Array:
        return self.member_model[k] + self.member_noise[k][..., None] * np.eye(self.n_outputs)

    def _member_logpdf(self, k: int, y: Array) -> Array:
        if self.is_joint:
            sd, factor = mixtures.scaled_cholesky(self._member_cov(k), "total covariance")
            return mixtures.joint_log_normal(y - self.member_mean[k], sd, factor)[0]
        std = np.sqrt(self.member_model[k] + self.member_noise[k])
        each = mixtures.log_normal(y, self.member_mean[k], std)
        with mixtures.quiet():
            # A point mass that is missed in one output rules out the row: -inf wins over inf.
            return np.where((each == -np.inf).any(axis=-1), -np.inf, each.sum(axis=-1))

    def _member_draw(self, k: int, z: Array) -> Array:
        if self.is_joint:
            root = mixtures.covariance_root(self._member_cov(k))
            return self.member_mean[k] + np.einsum("nij,snj->sni", root, z)
        return self.member_mean[k] + np.sqrt(self.member_model[k] + self.member_noise[k]) * z
