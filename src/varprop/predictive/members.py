"""The members of a mixture: how they are stored, their moments, choosing rows and outputs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import softmax

from varprop.predictive import mixtures
from varprop.predictive.checks import check_finite
from varprop.predictive.mixtures import Array, ArrayLike

M = TypeVar("M", bound="Members")

NOT_IDENTIFIED = (
    "Model and noise variance are not told apart here, since the objective (such as ROPD) sees "
    "only their sum, `var`: train with objective='vi' to have them apart."
)


@dataclass(frozen=True, eq=False, repr=False)
class Members:
    """All of `varprop.predictive.Predictive`, which documents it, but building and distribution."""

    member_mean: Array
    member_model: Array
    member_noise: Array
    weights: Array
    squeeze: bool = False
    unit: Array = field(default_factory=lambda: np.ones(1), kw_only=True)
    identified: bool = field(default=True, kw_only=True)

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
        model = self.member_model[:, rows]
        return replace(
            self, member_mean=mean, member_model=model, member_noise=noise, weights=weights
        )

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

    @property
    def shape(self) -> tuple[int, ...]:
        """The public shape: ``(n,)`` if the target was one-dimensional, else ``(n, d)``."""
        n, d = self.member_mean.shape[1:]
        return (n,) if self.squeeze else (n, d)

    def _public(self, values: Array) -> Array:
        """Return ``(..., n, d)`` with rows and outputs first, in the public shape."""
        values = np.moveaxis(values, (-2, -1), (0, 1))
        return values[:, 0] if self.squeeze else values

    def _internal(self, y: ArrayLike) -> Array:
        """Return ``y``, over the unit, as ``(..., n, d)``; a number serves rows and outputs."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 0:
            return np.broadcast_to(y / self.unit, self.member_mean.shape[1:])
        if y.shape[: len(self.shape)] != self.shape:
            raise ValueError(f"y has shape {y.shape} but the predictive has shape {self.shape}.")
        y = y[:, None] if self.squeeze else y
        return np.moveaxis(y, (0, 1), (-2, -1)) / self.unit

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

    def _identified(self, part: Array) -> Array:
        if not self.identified:
            # So that hasattr(prediction, "model_var") tells as well.
            raise AttributeError(NOT_IDENTIFIED)
        return part

    @property
    def var(self) -> Array:
        """Total variance; beyond about 1e±300 it is inf or 0 where `std` is still right."""
        return self._variance(self._model_var() + self._noise_var())

    @property
    def std(self) -> Array:
        """Total standard deviation, in the public shape."""
        return self._public(self.unit * np.sqrt(self._model_var() + self._noise_var()))

    @property
    def cov(self) -> Array:
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

    # ---- outputs ----------------------------------------------------------------------------

    def marginal(self: M, outputs: int | Iterable[int]) -> M:
        """Return the distribution of some outputs, whatever the others are.

        Parameters
        ----------
        outputs : int or iterable of distinct ints
            Which outputs; an int drops the output axis, an iterable keeps it.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([[1.0, 2.0, 3.0]], [[1.0, 1.0, 1.0]], 0.0)
        >>> p.marginal(2).mean.tolist(), p.marginal([2, 0]).mean.tolist()
        ([3.0], [[3.0, 1.0]])
        """
        squeeze = not isinstance(outputs, Iterable)
        index = self._output_index(outputs if isinstance(outputs, Iterable) else [outputs])
        model = self.member_model[..., index]
        if self.is_joint:
            model = model[:, :, index]
        return replace(
            self,
            member_mean=self.member_mean[..., index],
            member_model=model,
            member_noise=self.member_noise[..., index],
            squeeze=squeeze,
            unit=np.broadcast_to(self.unit, self.n_outputs)[index],
        )

    def conditional(self: M, given: Mapping[int, ArrayLike]) -> M:
        """Return the distribution of the other outputs once some outputs have been observed.

        What is observed includes the noise. The noise of the other outputs stays as it was; only
        the model part shrinks. In a mixture the members are reweighted, row by row, by how well
        they predicted the observed values.

        Parameters
        ----------
        given : mapping of output index to values
            Values are a number or an array of shape (n,), finite.

        Returns
        -------
        Predictive
            Of the other outputs in their order; keeps the output axis even if only one is left.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.joint([[0.0, 0.0]], [[[1.0, 0.8], [0.8, 1.0]]], 0.0)
        >>> q = p.conditional({0: 1.0})
        >>> q.mean.round(3).tolist(), q.var.round(3).tolist()
        ([[0.8]], [[0.36]])
        """
        seen = self._output_index(list(given))
        rest = [i for i in range(self.n_outputs) if i not in seen]
        if not rest:
            raise ValueError("All outputs are given, so none is left to predict.")
        values = np.empty((self.n_rows, len(seen)))
        for j, (i, v) in enumerate(zip(seen, given.values(), strict=True)):
            v = np.asarray(v, dtype=np.float64)
            if v.shape not in ((), (self.n_rows,)):
                raise ValueError(
                    f"The values of output {i} have shape {v.shape}, not ({self.n_rows},)."
                )
            values[:, j] = v
        check_finite(values, "given", outputs=seen)
        blank = np.argwhere(self._member_std()[..., seen] == 0)
        if len(blank):
            _, row, j = blank[0]
            raise ValueError(f"Output {seen[j]} has zero variance at row {row}: cannot condition.")
        other, observed = self.marginal(rest), self.marginal(seen)
        mean, model = other.member_mean, other.member_model
        values /= observed.unit
        if self.is_joint:
            mean, model = mean.copy(), model.copy()
        fit = np.empty((self.n_members, self.n_rows))
        for k in range(self.n_members):
            if not self.is_joint:
                fit[k] = observed._member_logpdf(k, values)
                continue
            sd, factor = mixtures.scaled_cholesky(observed._member_cov(k), "observed covariance")
            fit[k], u = mixtures.joint_log_normal(values - observed.member_mean[k], sd, factor)
            cross = self.member_model[k][:, rest][:, :, seen] / sd[:, None, :]
            gain = mixtures.forward_solve(factor[:, None], cross)
            mean[k] += np.einsum("nij,nj->ni", gain, u)
            model[k] -= gain @ gain.swapaxes(-1, -2)
            diagonal = np.einsum("nii->ni", model[k])
            np.maximum(diagonal, 0.0, out=diagonal)  # rounding may leave -1e-17
        weights = self.weights
        if self.n_members > 1:
            with mixtures.quiet():
                log_w = np.log(weights) + fit
            lost = ~np.isfinite(log_w.max(axis=0))
            if lost.any():
                raise ValueError(
                    f"The given values have zero density at row {int(np.argmax(lost))}."
                )
            weights = softmax(log_w, axis=0)
        return replace(other, member_mean=mean, member_model=model, weights=weights)

    def _output_index(self, outputs: Iterable[int]) -> list[int]:
        index: list[int] = []
        for i in outputs:
            i = operator.index(i)
            if not -self.n_outputs <= i < self.n_outputs:
                raise ValueError(f"Output {i} does not exist: there are {self.n_outputs} outputs.")
            index.append(i % self.n_outputs)
        if not index or len(set(index)) != len(index):
            raise ValueError(f"Outputs must be distinct and at least one, not {index}.")
        return index
