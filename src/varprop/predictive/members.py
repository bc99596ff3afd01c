"""The members of a mixture: how they are stored, their moments, choosing rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import row_index
from varprop.predictive.contract import AbstractContinuous
from varprop.predictive.kernels import AbstractRowKernel
from varprop.predictive.mixtures import Array, ArrayLike

M = TypeVar("M", bound="Members")


@dataclass(frozen=True, eq=False, repr=False)
class Members(AbstractContinuous):
    """All of `varprop.predictive.Predictive`, which documents it, but building and distribution."""

    member_mean: Array
    member_model: Array
    member_noise: Array
    weights: Array
    squeeze: bool = False
    unit: Array = field(default_factory=lambda: np.ones(1), kw_only=True)
    identified: bool = field(default=True, kw_only=True)
    between: tuple[AbstractRowKernel | None, ...] | None = field(default=None, kw_only=True)

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

    def __repr__(self) -> str:
        """Return sizes, not values."""
        joint = ", joint=True" if self.is_joint else ""
        return (
            f"Predictive(n_rows={self.n_rows}, n_outputs={self.n_outputs}, "
            f"n_members={self.n_members}{joint})"
        )

    def __getitem__(self: M, rows: Any) -> M:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        rows = row_index(rows, self.n_rows)
        noise, weights = (
            a if a.shape[1] == 1 else a[:, rows] for a in (self.member_noise, self.weights)
        )
        return replace(
            self,
            member_mean=self.member_mean[:, rows],
            member_model=self.member_model[:, rows],
            member_noise=noise,
            weights=weights,
            between=self._kernels(lambda kernel: kernel.take(rows)),
        )

    def _kernels(
        self, change: Callable[[AbstractRowKernel], AbstractRowKernel]
    ) -> tuple[AbstractRowKernel | None, ...] | None:
        """Return what rows have in common, changed along with the rest."""
        if self.between is None:
            return None
        return tuple(None if kernel is None else change(kernel) for kernel in self.between)

    def unsplit(self: M) -> M:
        """Return the same distribution as one whose model and noise part are not told apart.

        `model_var` and `noise_var` then refuse; all else is the same.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([1.0], [0.5], 0.5).unsplit()
        >>> p.var.tolist(), p.identified, hasattr(p, "model_var")
        ([1.0], False, False)
        """
        return replace(self, identified=False)

    def times(self: M, unit: ArrayLike) -> M:
        """Return the distribution of the targets multiplied by `unit`, positive, () or (d,).

        Variances stay as they are stored, and so neither overflow nor vanish.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([1.0], [4.0], 0.0).times(1e200)
        >>> p.mean.tolist(), p.std.tolist(), p.var.tolist()
        ([1e+200], [2e+200], [inf])
        """
        unit = np.asarray(unit, np.float64)
        if not (np.isfinite(unit) & (unit > 0)).all() or unit.shape not in ((), (self.n_outputs,)):
            raise ValueError(f"unit must be positive, a number or one per output, not {unit}.")
        return replace(self, unit=self.unit * unit)

    def narrowed(self: M, factor: ArrayLike) -> M:
        """Return the same means with all members' standard deviations times `factor`, () or (d,).

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([1.0], [3.0], 1.0).narrowed(0.5).std.tolist()
        [1.0]
        """
        by = np.broadcast_to(np.asarray(factor, np.float64), self.n_outputs)
        return replace(
            self,
            member_model=self.member_model * (by[:, None] * by if self.is_joint else by**2),
            member_noise=self.member_noise * by**2,
            between=None,
        )

    def _in_unit(self: M, unit: Array) -> M:
        """Return the same distribution, stored in multiples of another unit of shape (d,)."""
        r = self.unit / unit
        return replace(
            self,
            member_mean=r * self.member_mean,
            member_model=(r[:, None] * r if self.is_joint else r**2) * self.member_model,
            member_noise=r**2 * self.member_noise,
            unit=unit,
        )

    def _log_volume(self) -> float:
        """Return what the units of a row's outputs take off its log density."""
        return float(np.log(np.broadcast_to(self.unit, self.n_outputs)).sum())

    def _internal(self, y: ArrayLike) -> Array:
        """Return ``y``, over the unit, as ``(..., n, d)``; a number serves rows and outputs."""
        return self._arranged(y) / self.unit

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

    def _apart(self) -> Array:
        """Return the distances of the members' means from the mean, ``(K, n, d)``."""
        return self.member_mean - self._mean()

    def _model_var(self) -> Array:
        within = self._average(self._member_model_var())
        with mixtures.quiet():
            return within if self.n_members == 1 else within + self._average(self._apart() ** 2)

    def _noise_var(self) -> Array:
        return np.broadcast_to(self._average(self.member_noise), self.member_mean.shape[1:])

    def _variance(self, values: Array) -> Array:
        """Return variances in the targets' units, public; they may overflow or vanish there."""
        with mixtures.quiet():
            return self._public(self.unit * (self.unit * values))

    @property
    def mean(self) -> Array:
        """Mean, in the public shape."""
        return self._public(self.unit * self._mean())

    @property
    def model_var(self) -> Array:
        """Model (epistemic) variance: mean within members plus variance between their means."""
        return self._variance(self._identified(self._model_var()))

    @property
    def model_std(self) -> Array:
        """Root of `model_var`."""
        return self._public(self.unit * np.sqrt(self._identified(self._model_var())))

    @property
    def noise_var(self) -> Array:
        """Noise (aleatoric) variance: the mean over the members."""
        return self._variance(self._identified(self._noise_var()))

    @property
    def noise_std(self) -> Array:
        """Root of `noise_var`."""
        return self._public(self.unit * np.sqrt(self._identified(self._noise_var())))

    @property
    def var(self) -> Array:
        """Total variance; beyond about 1e±300 it is inf or 0 where `std` is still right."""
        return self._variance(self._model_var() + self._noise_var())

    @property
    def std(self) -> Array:
        """Total standard deviation, in the public shape."""
        return self._public(self.unit * np.sqrt(self._model_var() + self._noise_var()))

    @property
    def output_cov(self) -> Array:
        """Total covariance of the outputs, always of shape ``(n, d, d)``; see `var` for limits."""
        eye = np.eye(self.n_outputs)
        model = self._average(self.member_model)
        cov = model if self.is_joint else model[..., None] * eye
        cov = cov + self._noise_var()[..., None] * eye
        if self.n_members > 1:
            for w, apart in zip(self.weights, self._apart(), strict=True):
                cov += w[:, None, None] * apart[:, :, None] * apart[:, None, :]
        with mixtures.quiet():
            return self.unit[:, None] * (self.unit * cov)

    def member_moments(self) -> tuple[Array, Array]:
        """Return the members' means and standard deviations, each of shape (K, n, d)."""
        return self.unit * self.member_mean, self.unit * self._member_std()

    # ---- members ----------------------------------------------------------------------------

    def _cdf(self, y: Array, *, left: bool = False) -> Array:
        """Return the cdf of ``(..., n, d)``, over the unit."""
        weights = self.weights[..., None]
        return mixtures.mixture_cdf(y, weights, self.member_mean, self._member_std(), left=left)

    def survival(self, y: ArrayLike) -> Array:
        """Return ``P(Y > y)``, exact also where it is tiny; see `cdf` for shapes.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> print(Predictive.gaussian([0.0], [1.0], 0.0).survival(10.0))
        [7.61985302e-24]
        """
        mirrored = self.weights[..., None], -self.member_mean, self._member_std()
        return self._public(mixtures.mixture_cdf(-self._internal(y), *mirrored, left=True))

    def knots(self) -> tuple[Array, Array]:
        """Return numbers at which to cut integrals of the cdf, and how far apart they must be.

        Of every member, one and a half standard deviations apart, out to nine; both (m, n, d).

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> at, apart = Predictive.gaussian([0.0], [4.0], 0.0).knots()
        >>> at[:3, 0, 0].tolist(), apart[0, 0, 0].tolist()
        ([-18.0, -15.0, -12.0], 3.0)
        """
        mean, std = self.member_moments()
        at = mean + mixtures.KNOTS[:, None, None, None] * std
        apart = np.broadcast_to((mixtures.KNOTS[1] - mixtures.KNOTS[0]) * std, at.shape)
        return at.reshape(-1, *mean.shape[1:]), apart.reshape(-1, *mean.shape[1:])

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
