"""Outputs chosen and outputs observed: marginal and conditional distributions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import check_finite
from varprop.predictive.kernels import UnknownKernel
from varprop.predictive.members import Members
from varprop.predictive.mixtures import ArrayLike

P = TypeVar("P", bound="Outputs")


@dataclass(frozen=True, eq=False, repr=False)
class Outputs(Members):
    """What `varprop.predictive.Predictive` says of some outputs, and of others given them."""

    def marginal(self: P, outputs: int | Iterable[int]) -> P:
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
            between=self._kernels(lambda kernel: kernel.marginal(np.asarray(index))),
        )

    def conditional(self: P, given: Mapping[int, ArrayLike]) -> P:
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
            weights = np.exp(log_w - mixtures.log_sum_exp(log_w))
        return replace(
            other,
            member_mean=mean,
            member_model=model,
            weights=weights,
            between=other._kernels(lambda kernel: UnknownKernel(kernel.x, None, None)),
        )

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
