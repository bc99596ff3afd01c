"""Targets that are Gaussian on another scale: positive ones, skewed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import RandomState, mixture_weights
from varprop.predictive.composed import AbstractComposed, total_moments
from varprop.predictive.contract import AbstractContinuous
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel, Indices, Shares
from varprop.predictive.mixtures import Array, ArrayLike
from varprop.predictive.warps import AbstractWarp, Moments, hermite_coefficients

# The cdf of a skewed target needs more panels on the target's scale than on the latent one.
_KNOTS = np.arange(-9.0, 9.1, 0.5)
_VALUES = 500_000  # in memory at once


@final
@dataclass(frozen=True, eq=False, repr=False)
class Warped(AbstractComposed, AbstractContinuous):
    """Targets ``warp.inverse(z)`` of a Gaussian, or mixture of Gaussians, z.

    Densities, cdf, quantiles and intervals are exact, by change of variables. Mean and variances
    are in closed form for `Log`, and by quadrature else (`warps.hermite_moments` says how well).
    Model and noise part follow from the law of total variance, on the scale of the targets.

    Parameters
    ----------
    latent
        Distribution of z.
    warp
        From targets to z, of each output by itself.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> from varprop.predictive.warps import Log
    >>> p = Warped(Predictive.gaussian([0.0], [0.5], 0.5), Log(1.0, 0.0))
    >>> p.quantile(0.5).tolist(), p.mean.round(3).tolist()
    ([1.0], [1.649])
    >>> p.cdf(-1.0).tolist(), p.logpdf(-1.0).tolist()
    ([0.0], [-inf])
    """

    latent: Predictive
    warp: AbstractWarp
    squeeze: bool = field(init=False)
    identified: bool = field(init=False)

    def __post_init__(self) -> None:
        """Take over what is said of the latent distribution."""
        object.__setattr__(self, "squeeze", self.latent.squeeze)
        object.__setattr__(self, "identified", self.latent.identified)

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return self.latent.n_rows

    @property
    def n_outputs(self) -> int:
        """Number of outputs ``d``."""
        return self.latent.n_outputs

    def __getitem__(self, rows: Any) -> Warped:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        return replace(self, latent=self.latent[rows])

    def unsplit(self) -> Warped:
        """Return the same distribution as one whose model and noise part are not told apart."""
        return replace(self, latent=self.latent.unsplit())

    def marginal(self, outputs: int | Iterable[int]) -> Warped:
        """Return the distribution of some outputs, whatever the others are."""
        outputs = list(outputs) if isinstance(outputs, Iterable) else outputs
        latent = self.latent.marginal(outputs)
        return Warped(latent, self.warp.take(outputs if isinstance(outputs, list) else [outputs]))

    @classmethod
    def mixture(cls, members: Sequence[Warped], weights: ArrayLike | None = None) -> Warped:
        """Mixture of predictions of the same rows on the same scale; see `blend.mixture` for more.

        Parameters
        ----------
        members
            At least one, all with the same warp.
        weights
            Shape (members,) or (members, n), normalized here; equal unless given.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> from varprop.predictive.warps import Log
        >>> a, b = (Warped(Predictive.gaussian([m], [0.0], 1.0), Log(1.0, 0.0)) for m in (-1, 1))
        >>> Warped.mixture([a, b]).quantile(0.5).round(12).tolist()
        [1.0]
        """
        mixture_weights(weights, [member.shape for member in members])
        if not all(member.warp.same(members[0].warp) for member in members):
            raise ValueError(
                "Members on different scales are mixed by `varprop.predictive.mixture`."
            )
        latent = Predictive.mixture([member.latent for member in members], weights)
        return cls(latent, members[0].warp)

    def _member_moments(self) -> Moments:
        """Return mean, model and noise variance of every member, shape (K, n, d)."""
        z, unit = self.latent, self.latent.unit
        noise = np.broadcast_to(z.member_noise, z.member_mean.shape)
        parts = zip(z.member_mean, z._member_model_var(), noise, strict=True)
        each = [self.warp.moments(unit * m, unit**2 * v, unit**2 * u) for m, v, u in parts]
        mean, model, noise = (np.stack(part) for part in zip(*each, strict=True))
        return mean, model, noise

    def _moments(self) -> Moments:
        return total_moments(self.latent.weights, self._member_moments())

    def second_order(self) -> Predictive:
        """Return the mixture of Gaussians with the same members' means and covariances of rows.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> from varprop.predictive.warps import Log
        >>> p = Warped(Predictive.gaussian([0.0, 0.0], [0.0, 0.0], 1.0), Log(1.0, 0.0))
        >>> p.total().mean.round(3).tolist(), p.total().var.round(3).tolist()
        ([3.297], [9.342])
        """
        z, kernels = self.latent, list[AbstractRowKernel | None]()
        for k, kernel in enumerate(z.between or ()):
            if kernel is not None:
                mean, unit = z.unit * z.member_mean[k], np.broadcast_to(z.unit, self.n_outputs)
                model = unit**2 * z._member_model_var()[k]
                var = model + unit**2 * z.member_noise[k]
                with mixtures.quiet():
                    _, found, _ = hermite_coefficients(self.warp.inverse, mean, var)
                    share = np.where(var > 0, model / np.where(var > 0, var, 1.0), 0.0)
                kernel = WarpedKernel(kernel.x, kernel.x_var, None, kernel, found[1:], share)
            kernels.append(kernel)
        return Predictive(
            *self._member_moments(),
            z.weights,
            z.squeeze,
            identified=z.identified,
            between=None if z.between is None else tuple(kernels),
        )

    def cdf(self, y: ArrayLike, *, left: bool = False) -> Array:
        """Return ``P(Y <= y)``, or ``P(Y < y)`` if `left`, of each output by itself.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
        left : bool, default False
            The two differ at point masses only.
        """
        return self.latent.cdf(self._public(self.warp.forward(self._arranged(y))), left=left)

    def survival(self, y: ArrayLike) -> Array:
        """Return ``P(Y > y)``, exact also where it is tiny; see `cdf` for shapes."""
        return self.latent.survival(self._public(self.warp.forward(self._arranged(y))))

    def quantile(self, alpha: ArrayLike) -> Array:
        """Return the smallest value whose cdf reaches `alpha`: ``(*public, *alpha.shape)``."""
        return self._targets(self.latent.quantile(alpha))

    def _targets(self, z: Array) -> Array:
        """Return the targets of latent values, in the public shape."""
        return self._public(self.warp.inverse(self._arranged(z)))

    def _slopes(self, y: ArrayLike) -> tuple[Array, Array]:
        """Return latent values in the public shape, and log slopes (..., n, d); see `AbstractWarp`.

        Outside the domain, where there is no density, the first is any number.
        """
        y = self._arranged(y)
        slope = self.warp.log_slope(y)
        return self._public(np.where(slope == -np.inf, 0.0, self.warp.forward(y))), slope

    def marginal_logpdf(self, y: ArrayLike) -> Array:
        """Log density of each output by itself, of the shape of `y`; see `cdf` for `y`."""
        z, slope = self._slopes(y)
        return np.where(
            (outside := self._public(slope)) == -np.inf,
            -np.inf,
            self.latent.marginal_logpdf(z) + outside,
        )

    def logpdf(self, y: ArrayLike) -> Array:
        """Joint log density of all outputs of a row, shape (n, ...); see `Predictive.logpdf`."""
        z, slope = self._slopes(y)
        total = np.moveaxis(slope.sum(axis=-1), -1, 0)
        return np.where(total == -np.inf, -np.inf, self.latent.logpdf(z) + total)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw independent rows: array of shape ``(*public, n_samples)``."""
        return self._targets(self.latent.sample(n_samples, random_state))

    def knots(self) -> tuple[Array, Array]:
        """Return numbers at which to cut integrals of the cdf, and how far apart they must be."""
        mean, std = self.latent.member_moments()
        at = self.warp.inverse(mean + _KNOTS[:, None, None, None] * std)
        with mixtures.quiet():
            between = np.diff(at, axis=0)
        apart = np.minimum(between[[0, *range(len(between))]], between[[*range(len(between)), -1]])
        return at.reshape(-1, *mean.shape[1:]), apart.reshape(-1, *mean.shape[1:])

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of each row and output, in the target's units.

        By quadrature on the latent scale, to a relative error of 1e-8.

        Parameters
        ----------
        y : array of the public shape

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> from varprop.predictive.warps import Log
        >>> p = Warped(Predictive.gaussian([0.0], [0.0], 1.0), Log(1.0, 0.0))
        >>> p.crps([1.0]).round(4).tolist()
        [0.2674]
        """
        y = self._arranged(y)
        out = np.empty(y.shape)
        width = len(mixtures.KNOTS) * self.latent.n_members * self.n_outputs
        for rows in mixtures.blocks_of(self.n_rows, max(1, _VALUES // width)):
            out[rows] = self[rows]._crps(y[rows])
        return self._public(out)

    def _crps(self, y: Array) -> Array:
        at, unit = self.warp.forward(y), self.latent.unit
        edges = mixtures.panels(*self.latent.knots())

        def slope(z: Array) -> Array:
            return np.exp(-self.warp.log_slope(self.warp.inverse(z)))

        found = mixtures.panel_crps(at, edges, lambda z: self.latent._cdf(z / unit), slope)
        end = np.clip(at, edges[0], edges[-1])
        return found + np.where(end == at, 0.0, np.abs(y - self.warp.inverse(end)))


@final
@dataclass(frozen=True, eq=False)
class WarpedKernel(AbstractRowKernel):
    """What rows have in common behind a warp: by Mehler's series, positive semidefinite.

    Attributes
    ----------
    latent
        What they have in common on the scale on which they are Gaussian.
    coefficients
        Of the inverse warp in Hermite polynomials from the first on, shape (terms, n, d).
    share
        The model's of the latent variance, shape (n, d).
    """

    latent: AbstractRowKernel
    coefficients: Array
    share: Array

    def correlate(self, rows: slice, others: slice) -> Array:
        """Return the correlation of what targets are on the average, given the model."""
        (own, own_std), (other, other_std) = map(self._terms, (rows, others))
        rho = self.latent.correlation(rows, others)
        total = np.zeros_like(rho)
        for a, b in zip(own[::-1], other[::-1], strict=True):
            total = rho * (total + a[:, :, None] * b[:, None, :])
        return total / (own_std[:, :, None] * other_std[:, None, :])

    def _terms(self, rows: slice) -> tuple[Array, Array]:
        """Return the coefficients that the model part has, (terms, d, a), and its spread."""
        powers = np.arange(1, len(self.coefficients) + 1)[:, None, None]
        terms = self.coefficients[:, rows] * self.share[rows] ** (0.5 * powers)
        terms = np.moveaxis(terms, -1, 1)
        size = np.sqrt((terms**2).sum(axis=0))
        return terms, np.where(size > 0, size, 1.0)

    def shares(self) -> Shares:
        """Return those of the latent scale, which to first order are the same."""
        return self.latent.chosen_shares()

    def take(self, rows: Indices | slice) -> WarpedKernel:
        """Return the kernel of some of the rows."""
        x_var = None if self.x_var is None else self.x_var[rows]
        return replace(
            self,
            x=self.x[rows],
            x_var=x_var,
            latent=self.latent.take(rows),
            coefficients=self.coefficients[:, rows],
            share=self.share[rows],
        )
