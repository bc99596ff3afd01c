"""Draws, of rows one by one or all together; sums, means and differences of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.budget import Budget, budget_of
from varprop.predictive.checks import RandomState, as_float, drawing
from varprop.predictive.kernels import blocks
from varprop.predictive.mixtures import Array, ArrayLike
from varprop.predictive.outputs import Outputs

C = TypeVar("C", bound="Combinations")


@dataclass(frozen=True, eq=False, repr=False)
class Combinations(Outputs):
    """What `varprop.predictive.Predictive` says of several rows together."""

    def second_order(self: C) -> C:
        """Return the prediction itself."""
        return self

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw independent rows: model and noise, correlated across outputs as the model says.

        Parameters
        ----------
        n_samples : int, default 1
            Number of draws of every row.
        random_state : int, Generator, RandomState or None
            Seed or source of randomness.

        Returns
        -------
        array of shape ``(*public, n_samples)``

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([0.0, 9.0], [1.0, 1.0], 0.0).sample(4, random_state=0).shape
        (2, 4)
        """
        n_samples, rng = drawing(n_samples, random_state)
        z = rng.standard_normal((n_samples, self.n_rows, self.n_outputs))
        if self.n_members == 1:
            return self._public(self.unit * self._member_draw(0, z))
        chosen = mixtures.chosen(self.weights, rng.uniform(size=(n_samples, self.n_rows)))
        out = np.empty_like(z)
        for k in range(self.n_members):
            np.copyto(out, self._member_draw(k, z), where=(chosen == k)[..., None])
        return self._public(self.unit * out)

    def combine(self: C, weights: ArrayLike) -> C:
        """Return the distribution of linear combinations of rows.

        What the model is unsure of is correlated between rows, since all have the same weights; the
        noise is independent. A mixture stays one: a member is right, or not, for all rows.

        Parameters
        ----------
        weights : array of shape (n,) or (m, n)
            One combination, or several; rows of weight 0 cost nothing.

        Returns
        -------
        Predictive
            Of m rows, one for each combination, every output by itself.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], 1.0)
        >>> q = p.combine([[1, 1, 1], [-1, 0, 1]])
        >>> q.mean.tolist(), q.var.tolist()
        ([7.0, 3.0], [3.0, 2.0])
        """
        by = as_float(weights, "weights")
        if by.shape != (self.n_rows,) and (by.ndim != 2 or by.shape[1] != self.n_rows):
            raise ValueError(
                f"weights has shape {by.shape}, but there are {self.n_rows} rows to combine: it "
                f"needs ({self.n_rows},) or (m, {self.n_rows})."
            )
        if not np.isfinite(by).all():
            raise ValueError("weights holds a number that is infinite or missing.")
        self._check_one_mixture()
        by = np.atleast_2d(by)
        noise = np.broadcast_to(self.member_noise, self.member_mean.shape)
        model = np.empty((self.n_members, len(by), self.n_outputs))
        for one, row in enumerate(by):
            rows = np.flatnonzero(row)
            if not len(rows):
                model[:, one] = 0.0
                continue
            part = self if len(rows) == self.n_rows else self[rows]
            for k in range(self.n_members):
                model[k, one] = part._spread_of(k, row[rows])
        return replace(
            self,
            member_mean=np.einsum("mn,knd->kmd", by, self.member_mean),
            member_model=model,
            member_noise=np.einsum("mn,knd->kmd", by**2, noise),
            weights=self.weights[:, :1],
            between=None,
        )

    def total(self: C) -> C:
        """Return the distribution of the sum over all rows, as a `Predictive` of one row.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 1.0).total().mean.tolist()
        [3.0]
        """
        return self.combine(np.ones(self.n_rows))

    def average(self: C) -> C:
        """Return the distribution of the mean over all rows, as a `Predictive` of one row."""
        return self.combine(np.full(self.n_rows, 1 / self.n_rows))

    def budget(self, feature_names: Sequence[str] | None = None) -> Budget:
        """Return where the variance of every row comes from; the parts sum to `var`.

        The error of each input, what is drawn in each layer of the networks, the distance of the
        members' means, and the noise. What an objective does not tell apart is one part.

        Parameters
        ----------
        feature_names : sequence of str, optional
            Of the inputs.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([0.0], [1.0], 3.0).budget().variance.tolist()
        [[1.0, 3.0]]
        """
        return budget_of(self, feature_names)

    def rows_cov(self) -> Array:
        """Return the covariance between rows, with the noise on its diagonal.

        Returns
        -------
        array of shape (n, n), or (n, n, d) if the target was two-dimensional
            What scikit-learn's Gaussian process gives for ``return_cov=True``.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 1.0).rows_cov().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        self._check_one_mixture()
        n, d = self.member_mean.shape[1:]
        _check_memory(n, 2 * d)
        cov = np.zeros((d, n, n))
        apart = self._apart()
        shares = self.weights[:, 0]
        for k, weight in enumerate(shares):
            for i, j, block in self._model_blocks(k):
                cov[:, i, j] += weight * block
        for i in blocks(n):  # of two blocks only one was filled, and the distance between means
            for j in blocks(n):
                if j.start >= i.start:
                    cov[:, i, j] += np.einsum("k,kid,kjd->dij", shares, apart[:, i], apart[:, j])
                    if i == j:  # symmetric but for rounding
                        cov[:, i, i] = 0.5 * (cov[:, i, i] + cov[:, i, i].swapaxes(1, 2))
                    cov[:, j, i] = cov[:, i, j].swapaxes(1, 2)
        diagonal = np.arange(n)
        cov[:, diagonal, diagonal] = (self._model_var() + self._noise_var()).T
        unit = np.broadcast_to(self.unit, d)[:, None, None]
        with mixtures.quiet():
            for _ in range(2):  # in place: a copy is as large as all the rest
                cov *= unit
        return cov[0] if self.squeeze else np.moveaxis(cov, 0, -1)

    def sample_functions(
        self, n_samples: int = 1, random_state: RandomState = None, *, noise: bool = False
    ) -> Array:
        """Draw all rows together, as a drawn network would give them.

        Parameters
        ----------
        n_samples : int, default 1
            Number of draws.
        random_state : int, Generator, RandomState or None
            Seed or source of randomness.
        noise : bool, default False
            Whether to add the noise, which is independent from row to row.

        Returns
        -------
        array of shape ``(*public, n_samples)``
            Outputs are drawn one by one, without the covariance between them.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([0.0, 9.0], [1.0, 1.0], 0.0)
        >>> p.sample_functions(4, random_state=0).shape
        (2, 4)
        """
        n_samples, rng = drawing(n_samples, random_state)
        self._check_one_mixture()
        n, d = self.member_mean.shape[1:]
        _check_memory(n, 3 * d)
        shares = self.weights[:, 0] / self.weights[:, 0].sum()
        counts = np.bincount(
            rng.choice(self.n_members, size=n_samples, p=shares), minlength=self.n_members
        )
        drawn = []
        for k in map(int, np.flatnonzero(counts)):
            cov = np.zeros((d, n, n))
            for i, j, block in self._model_blocks(k):
                cov[:, i, j] = block
                cov[:, j, i] = block.swapaxes(1, 2)
            root = mixtures.covariance_root(cov)
            z = rng.standard_normal((counts[k], d, n))
            drawn.append(self.member_mean[k] + np.einsum("dij,sdj->sid", root, z))
            if noise:
                z = rng.standard_normal((counts[k], n, d))
                drawn[-1] = drawn[-1] + np.sqrt(self.member_noise[k]) * z
        values = rng.permutation(np.concatenate(drawn))
        return self._public(self.unit * values)

    def model_column(self, row: int) -> Array:
        """Return the covariance of every member's model part between all rows and one.

        One column of what `rows_cov` has of each member, for those who choose rows one by one and
        need no matrix.

        Parameters
        ----------
        row : int
            From 0.

        Returns
        -------
        array of shape (K, n, d)
            In the targets' units squared; a row's own variance where it meets itself.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([1.0, 2.0], [4.0, 9.0], 1.0).model_column(1).ravel().tolist()
        [0.0, 9.0]
        """
        std = self.unit * np.sqrt(self._member_model_var())
        out = np.zeros_like(std)
        one = slice(row, row + 1)
        for k, kernel in enumerate(self.between or (None,) * self.n_members):
            if kernel is None:
                out[k, row] = std[k, row] ** 2
                continue
            found = [kernel.correlation(part, one)[..., 0] for part in blocks(self.n_rows)]
            out[k] = np.concatenate(found, axis=1).T * std[k] * std[k, row]
        return out

    def _check_one_mixture(self) -> None:
        if self.weights.shape[1] > 1 and (self.weights != self.weights[:, :1]).any():
            raise ValueError(
                "Rows whose mixtures have weights of their own cannot be taken together: which "
                "member is right in one row says nothing of another."
            )

    def _model_blocks(self, k: int) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the covariance of a member's model part, (d, a, b), block by block, j after i."""
        std = np.sqrt(self._member_model_var()[k]).T  # (d, n)
        kernel = None if self.between is None else self.between[k]
        n = self.n_rows
        if kernel is None:
            for i in blocks(n):
                yield i, i, np.eye(i.stop - i.start) * std[:, i, None] ** 2
            return
        for i in blocks(n):
            for j in blocks(n):
                if j.start >= i.start:
                    yield i, j, kernel.correlation(i, j) * std[:, i, None] * std[:, None, j]

    def _spread_of(self, k: int, by: Array) -> Array:
        """Return the variance of a member's model part in one combination of all rows, (d,)."""
        total = np.zeros(self.n_outputs)
        for i, j, block in self._model_blocks(k):
            found = np.einsum("i,dij,j->d", by[i], block, by[j])
            total += found if i == j else 2 * found
        return np.maximum(total, 0.0)


def _check_memory(n: int, n_matrices: int) -> None:
    """Raise MemoryError if matrices of n x n float64 would not fit into what is free."""
    needed = 8.0 * n * n * n_matrices
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        free = 2**33
    if needed > free:
        raise MemoryError(
            f"The covariance between {n:,} rows needs {needed / 2**30:,.1f} GiB, but "
            f"{free / 2**30:,.1f} GiB are free: take fewer rows, or `combine` them, which needs "
            "no matrix."
        )
