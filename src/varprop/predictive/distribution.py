"""What a model says about new rows: a Gaussian, or a mixture of Gaussians, for every row.

NumPy and SciPy only, float64, in the user's units; nothing here knows of JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import (
    as_alpha,
    as_columns,
    as_float,
    check_covariance,
    check_noise,
    check_variances,
    mixture_weights,
)
from varprop.predictive.combinations import Combinations
from varprop.predictive.kernels import AbstractRowKernel
from varprop.predictive.mixtures import Array, ArrayLike

__all__ = ["Predictive"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Predictive(Combinations):
    """The predictive distributions of ``n`` rows with ``d`` outputs.

    Every row is a mixture of ``K`` Gaussians (``K = 1``: a plain Gaussian). A member's variance
    has two parts: that of the *model* (the spread of its weights), which more data would lower,
    and that of the *noise*, which is independent from output to output. An objective that sees
    only their sum (`ROPD`) does not tell them apart: `identified` is then False, and `model_var`
    and `noise_var` are refused.

    Build one with `gaussian`, `joint` or `mixture`; the constructor itself checks nothing and
    float64 arrays are not copied.

    *Shapes.* "Public shape" is ``(n,)`` if the target was one-dimensional and ``(n, d)`` if not.
    Rows and outputs come first, all other axes after them: `sample` gives
    ``(*public, n_samples)``, `quantile` gives ``(*public, *alpha.shape)``, and methods of ``y``
    take a number or an array ``(*public, ...)``. So ``p.logpdf(p.sample(100))`` has shape
    ``(n, 100)``.

    *Point masses.* A total variance of zero is allowed: cdf is right-continuous, the density is
    infinite at the mean and zero elsewhere, and the entropy is -inf.

    Parameters
    ----------
    member_mean : array of shape (K, n, d)
        Means of the members.
    member_model : array of shape (K, n, d) or (K, n, d, d)
        Model variances, or model covariances of the outputs.
    member_noise : array of shape (K, 1, d) or (K, n, d)
        Noise variances.
    weights : array of shape (K, 1) or (K, n)
        Weights of the members, summing to one over the first axis.
    squeeze : bool
        Whether results drop the output axis.
    unit : array of shape (d,) or (1,), optional
        What all of the above is stored in multiples of; 1 by default. It lets targets be so large
        or small that their variances have no float64.
    identified : bool, default True
        Whether model and noise part are told apart.
    between : tuple of AbstractRowKernel or None, optional
        Of every member, what its rows have in common; None where rows are independent.

    Examples
    --------
    >>> from varprop.predictive.distribution import Predictive
    >>> p = Predictive.gaussian([0.0, 10.0], [0.36, 0.0], 0.64)
    >>> p
    Predictive(n_rows=2, n_outputs=1, n_members=1)
    >>> p.std.round(3).tolist()
    [1.0, 0.8]
    >>> lower, upper = p.interval(0.9)
    >>> upper.round(3).tolist()
    [1.645, 11.316]
    """

    # ---- construction -----------------------------------------------------------------------

    @classmethod
    def gaussian(cls, mean: ArrayLike, model_var: ArrayLike, noise_var: ArrayLike) -> Predictive:
        """Gaussians whose outputs are independent.

        Parameters
        ----------
        mean : array of shape (n,) or (n, d)
            Means; the shape decides the public shape.
        model_var : array of the shape of `mean`
            Model variances.
        noise_var : float or array of shape (d,), or of the shape of `mean`
            Noise variances.

        Examples
        --------
        >>> Predictive.gaussian([[1.0, 2.0]], [[0.1, 0.1]], [0.3, 0.8]).var.round(3).tolist()
        [[0.4, 0.9]]
        """
        shape, mean = np.shape(mean), as_columns(mean, "mean")
        model = as_float(model_var, "model_var")
        if model.shape != shape:
            raise ValueError(f"model_var has shape {model.shape} but mean has shape {shape}.")
        model = model.reshape(mean.shape)
        check_variances(model, "model_var")
        noise = check_noise(noise_var, shape)
        return cls(mean[None], model[None], noise[None], np.ones((1, 1)), len(shape) == 1)

    @classmethod
    def joint(cls, mean: ArrayLike, model_cov: ArrayLike, noise_var: ArrayLike) -> Predictive:
        """Gaussians whose outputs are correlated through the model.

        Parameters
        ----------
        mean : array of shape (n, d)
            Means.
        model_cov : array of shape (n, d, d)
            Model covariances of the outputs; symmetric and positive semi-definite up to the
            rounding of single precision.
        noise_var : float or array of shape (d,) or (n, d)
            Noise variances.

        Examples
        --------
        >>> p = Predictive.joint([[0.0, 0.0]], [[[1.0, 0.8], [0.8, 1.0]]], 0.5)
        >>> p.output_cov.tolist()
        [[[1.5, 0.8], [0.8, 1.5]]]
        """
        if np.ndim(mean) != 2:
            raise ValueError(f"joint needs a mean of shape (n, d), not {np.shape(mean)}.")
        mean = as_columns(mean, "mean")
        cov = check_covariance(as_float(model_cov, "model_cov"), mean.shape)
        noise = check_noise(noise_var, mean.shape)
        return cls(mean[None], cov[None], noise[None], np.ones((1, 1)), False)

    @classmethod
    def mixture(cls, members: Sequence[Predictive], weights: ArrayLike | None = None) -> Predictive:
        """Mixture of predictives of the same rows; a member may itself be a mixture.

        Parameters
        ----------
        members : sequence of Predictive
            At least one, all of the same public shape.
        weights : array of shape (len(members),) or (len(members), n), optional
            Non-negative weights, normalized here; equal by default.

        Examples
        --------
        >>> a = Predictive.gaussian([-1.0], [0.0], 1.0)
        >>> b = Predictive.gaussian([+1.0], [0.0], 1.0)
        >>> p = Predictive.mixture([a, b])
        >>> float(p.model_var[0]), float(p.noise_var[0])
        (1.0, 1.0)
        """
        members = list(members)
        outer = mixture_weights(weights, [member.shape for member in members])
        first = members[0]
        n, d = first.n_rows, first.n_outputs
        units = np.stack([np.broadcast_to(p.unit, d) for p in members])
        # The one farthest from 1: what needs it would be lost in any other.
        unit = units[np.abs(np.log(units)).argmax(axis=0), np.arange(d)]
        members = [p._in_unit(unit) for p in members]
        model = [p.member_model for p in members]
        if any(p.is_joint for p in members):
            model = [a if a.ndim == 4 else a[..., None] * np.eye(d) for a in model]
        inner = [w * p.weights for w, p in zip(outer, members, strict=True)]
        return cls(
            np.concatenate([p.member_mean for p in members]),
            np.concatenate(model),
            _joined([p.member_noise for p in members], n),
            _joined(inner, n),
            first.squeeze,
            unit=unit,
            identified=all(p.identified for p in members),
            between=_kernels(members),
        )

    # ---- distribution -----------------------------------------------------------------------

    def cdf(self, y: ArrayLike, *, left: bool = False) -> Array:
        """Return ``P(Y <= y)``, or ``P(Y < y)`` if `left`, of each output by itself.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
        left : bool, default False
            The two differ at point masses only.

        Returns
        -------
        array of the shape of `y` (the public shape for a number)

        Examples
        --------
        >>> Predictive.gaussian([0.0, 1.0], [1.0, 1.0], 0.0).cdf(1.0).round(4).tolist()
        [0.8413, 0.5]
        """
        return self._public(self._cdf(self._internal(y), left=left))

    def quantile(self, alpha: ArrayLike) -> Array:
        """Return the smallest value whose cdf reaches `alpha`, for each output by itself.

        Mixtures are solved by safeguarded root finding, as sharp as float64 allows where the cdf is
        flat (between members that are far apart).

        Parameters
        ----------
        alpha : float or array
            Probabilities strictly between 0 and 1.

        Returns
        -------
        array of shape ``(*public, *alpha.shape)``

        Examples
        --------
        >>> p = Predictive.gaussian([0.0, 5.0], [1.0, 1.0], 0.0)
        >>> p.quantile([0.025, 0.5]).round(2).tolist()
        [[-1.96, 0.0], [3.04, 5.0]]
        """
        alpha = as_alpha(alpha)
        shape = self.member_mean.shape
        w = np.broadcast_to(self.weights[..., None], shape).reshape(len(self.weights), -1)
        m, s = self.member_mean.reshape(w.shape), self._member_std().reshape(w.shape)
        out = np.empty((alpha.size, m.shape[1]))
        for i, a in enumerate(alpha.flat):
            out[i] = mixtures.mixture_quantile(float(a), w, m, s)
        return self._public(self.unit * out.reshape(alpha.shape + shape[1:]))

    def marginal_logpdf(self, y: ArrayLike) -> Array:
        """Log density of each output by itself, of the shape of `y`; see `cdf` for `y`.

        Examples
        --------
        >>> p = Predictive.gaussian([[0.0, 0.0]], [[1.0, 1.0]], 0.0)
        >>> p.marginal_logpdf([[0.0, 1.0]]).round(4).tolist()
        [[-0.9189, -1.4189]]
        """
        y = self._internal(y)
        parts = zip(self.weights, self.member_mean, self._member_std(), strict=True)
        with mixtures.quiet():
            terms = [np.log(w)[:, None] + mixtures.log_normal(y, m, s) for w, m, s in parts]
        return self._public(mixtures.log_sum_exp(np.stack(terms)) - np.log(self.unit))

    def logpdf(self, y: ArrayLike) -> Array:
        """Joint log density of all outputs of a row.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``

        Returns
        -------
        array of shape (n, ...)
            With a one-dimensional target this is `marginal_logpdf`.

        Raises
        ------
        ValueError
            If a joint covariance is singular: no density exists there.

        Examples
        --------
        >>> p = Predictive.joint([[0.0, 0.0]], [[[1.0, 0.9], [0.9, 1.0]]], 0.1)
        >>> p.logpdf([[1.0, 1.0]]).round(3).tolist()
        [-1.88]
        """
        y = self._internal(y)
        terms = np.stack([self._member_logpdf(k, y) for k in range(self.n_members)])
        with mixtures.quiet():
            log_w = np.log(self.weights)
        total = mixtures.log_sum_exp(log_w.reshape(len(log_w), *[1] * (y.ndim - 2), -1) + terms)
        return np.moveaxis(total, -1, 0) - self._log_volume()

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of each row and output, in the target's units.

        Exact: the closed form for a Gaussian, the double sum over members for a mixture.

        Parameters
        ----------
        y : array of the public shape

        Returns
        -------
        array of the public shape

        Examples
        --------
        >>> Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0).crps([0.0, 2.0]).round(4).tolist()
        [0.2337, 1.4528]
        """
        members = self.weights[..., None], self.member_mean, self._member_std()
        return self._public(self.unit * mixtures.mixture_crps(self._internal(y), *members))

    def entropy(self) -> Array:
        """Joint differential entropy of each row, in nats.

        Closed form for one member; a mixture of one output is integrated to 1e-6 or better. For a
        mixture of several outputs neither exists at a bearable cost: it is refused, and
        ``-p.logpdf(p.sample(1000)).mean(axis=1)`` is an unbiased estimate.

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> Predictive.gaussian([0.0], [1.0], 0.0).entropy().round(4).tolist()
        [1.4189]
        """
        if self.n_members > 1 and self.n_outputs > 1:
            raise ValueError(
                "The entropy of a mixture of several outputs has no closed form; estimate it by "
                "-p.logpdf(p.sample(1000)).mean(axis=1), or use p.marginal(i).entropy()."
            )
        std = self._member_std()
        if self.n_members > 1:
            weights = np.broadcast_to(self.weights, std.shape[:2])
            entropy = mixtures.mixture_entropy(weights, self.member_mean[..., 0], std[..., 0])
            return entropy + self._log_volume()
        with mixtures.quiet():
            entropy = 0.5 * self.n_outputs * (1.0 + mixtures.LOG_2PI) + np.log(std[0]).sum(axis=-1)
        if self.is_joint:
            _, factor = mixtures.scaled_cholesky(self._member_cov(0), "total covariance")
            entropy += np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        return entropy + self._log_volume()


def _kernels(members: Sequence[Predictive]) -> tuple[AbstractRowKernel | None, ...] | None:
    """Return what rows have in common, for all members of members."""
    if all(p.between is None for p in members):
        return None
    nothing = [(None,) * p.n_members if p.between is None else p.between for p in members]
    return tuple(itertools.chain(*nothing))


def _joined(parts: list[Array], n: int) -> Array:
    """Concatenate arrays of members, ``(K, n, ...)`` or, the same for all rows, ``(K, 1, ...)``."""
    if any(a.shape[1] != 1 for a in parts):
        parts = [np.broadcast_to(a, (len(a), n, *a.shape[2:])) for a in parts]
    return np.concatenate(parts)
