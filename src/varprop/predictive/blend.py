"""Mixtures of predictions of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from varprop.predictive import mixtures
from varprop.predictive.checks import RandomState, as_alpha, drawing, mixture_weights, row_index
from varprop.predictive.composed import AbstractComposed, total_moments
from varprop.predictive.contract import AbstractContinuous, AbstractPredictive
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import Array, ArrayLike
from varprop.predictive.warped import Warped
from varprop.predictive.warps import Moments

P = TypeVar("P", bound=AbstractPredictive)

_VALUES = 500_000  # in memory at once
_LARGEST = float(np.finfo(np.float64).max) / 4


def mixture(parts: Sequence[P], weights: ArrayLike | None = None) -> P:
    """Return the mixture of predictions of the same rows, as the simplest class that can hold it.

    Parameters
    ----------
    parts
        At least one; all of one kind, or all of real numbers.
    weights
        Shape (parts,) or (parts, n), normalized here; equal unless given.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> a, b = (Predictive.gaussian([m], [0.0], 1.0) for m in (-1.0, 1.0))
    >>> mixture([a, b]).var.tolist()
    [2.0]
    >>> from varprop.predictive.warps import Log
    >>> mixture([a, b, Warped(a, Log(1.0, 0.0))])
    Blend(n_rows=1, n_outputs=1, n_parts=2)
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, AbstractContinuous) for part in parts):
        blend = Blend.of(cast("Sequence[AbstractContinuous]", parts), weights)
        return cast("P", blend.parts[0] if len(blend.parts) == 1 else blend)
    kinds = {type(part) for part in parts}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"Predictions of different kinds of targets cannot be mixed: {names}.")
    return kinds.pop().mixture(parts, weights)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Blend(AbstractComposed, AbstractContinuous):
    """A mixture of predictions of real numbers of different kinds; `mixture` makes one.

    Parameters
    ----------
    parts
        Of the same rows and targets, at least one.
    weights
        Shape (parts, 1) or (parts, n), sum to 1 over the parts.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> from varprop.predictive.warps import Log
    >>> z = Predictive.gaussian([0.0], [0.0], 1.0)
    >>> p = mixture([z, Warped(z, Log(1.0, 0.0))])
    >>> p.cdf(0.0).tolist(), p.mean.round(3).tolist()
    ([0.25], [0.824])
    """

    parts: tuple[AbstractContinuous, ...]
    weights: Array
    squeeze: bool = field(init=False)
    identified: bool = field(init=False)

    def __post_init__(self) -> None:
        """Take over what is said of the parts."""
        object.__setattr__(self, "squeeze", self.parts[0].squeeze)
        object.__setattr__(self, "identified", all(part.identified for part in self.parts))

    @classmethod
    def of(cls, parts: Sequence[AbstractContinuous], weights: ArrayLike | None = None) -> Blend:
        """Return a mixture whose parts of one kind have become one.

        Parameters
        ----------
        parts
            At least one; those of parts that are mixtures themselves take their place.
        weights
            Shape (parts,) or (parts, n), normalized here; equal unless given.
        """
        shares = mixture_weights(weights, [part.shape for part in parts])
        groups: list[list[tuple[AbstractContinuous, Array]]] = []
        for part, share in zip(parts, shares, strict=True):
            inner = zip(part.parts, part.weights, strict=True) if isinstance(part, Blend) else None
            for one, weight in inner or [(part, np.ones(1))]:
                alike = next((group for group in groups if _alike(group[0][0], one)), None)
                if alike is None:
                    alike = []
                    groups.append(alike)
                alike.append((one, share * weight))
        found, totals = [], []
        for group in groups:
            members = [one for one, _ in group]
            inside = np.stack(np.broadcast_arrays(*[weight for _, weight in group]))
            totals.append(inside.sum(axis=0))
            # In rows where none of them counts they must still be something.
            inside = np.where(totals[-1] > 0, inside, 1.0)
            inside = inside[:, 0] if inside.shape[1] == 1 else inside
            found.append(type(members[0]).mixture(members, inside) if group[1:] else members[0])
        return cls(tuple(found), np.stack(np.broadcast_arrays(*totals)))

    @classmethod
    def mixture(cls, members: Sequence[Blend], weights: ArrayLike | None = None) -> Blend:
        """Mixture of mixtures; see `mixture` of this module, which takes any kind."""
        return cls.of(members, weights)

    @property
    def n_rows(self) -> int:
        """Number of rows ``n``."""
        return self.parts[0].n_rows

    @property
    def n_outputs(self) -> int:
        """Number of outputs ``d``."""
        return self.parts[0].n_outputs

    def __repr__(self) -> str:
        """Return sizes, not values."""
        sizes = f"n_rows={self.n_rows}, n_outputs={self.n_outputs}"
        return f"Blend({sizes}, n_parts={len(self.parts)})"

    def __getitem__(self, rows: Any) -> Blend:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""
        rows = row_index(rows, self.n_rows)
        weights = self.weights if self.weights.shape[1] == 1 else self.weights[:, rows]
        return replace(self, parts=tuple(part[rows] for part in self.parts), weights=weights)

    def unsplit(self) -> Blend:
        """Return the same distribution as one whose model and noise part are not told apart."""
        return replace(self, parts=tuple(part.unsplit() for part in self.parts))

    def marginal(self, outputs: int | Iterable[int]) -> Blend:
        """Return the distribution of some outputs, whatever the others are."""
        outputs = list(outputs) if isinstance(outputs, Iterable) else outputs
        return replace(self, parts=tuple(part.marginal(outputs) for part in self.parts))

    def second_order(self) -> Predictive:
        """Return the mixture of Gaussians with the same members' means and covariances of rows."""
        weights = self.weights[:, 0] if self.weights.shape[1] == 1 else self.weights
        found = Predictive.mixture([part.second_order() for part in self.parts], weights)
        return found if self.identified else found.unsplit()

    def _moments(self) -> Moments:
        def columns(values: Array) -> Array:
            return values.reshape(self.n_rows, self.n_outputs)

        each = []
        for part in self.parts:
            first, second = (
                (part.model_var, part.noise_var) if part.identified else (part.var, None)
            )
            noise = np.zeros_like(first) if second is None else second
            each.append((columns(part.mean), columns(first), columns(noise)))
        mean, model, noise = (np.stack(values) for values in zip(*each, strict=True))
        return total_moments(self.weights, (mean, model, noise))

    def _average(self, values: Sequence[Array]) -> Array:
        """Return the weighted mean of numbers (*public, ...), one array for each part."""
        total = np.zeros(values[0].shape)
        for weight, value in zip(self.weights, values, strict=True):
            w = weight.reshape(-1, *[1] * (value.ndim - 1))
            total += np.where(w > 0, w * value, 0.0)
        return np.minimum(total, 1.0)  # the weights sum to one only up to rounding

    def cdf(self, y: ArrayLike, *, left: bool = False) -> Array:
        """Return ``P(Y <= y)``, or ``P(Y < y)`` if `left`, of each output by itself.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
        left : bool, default False
            The two differ at point masses only.
        """
        return self._average([part.cdf(y, left=left) for part in self.parts])

    def survival(self, y: ArrayLike) -> Array:
        """Return ``P(Y > y)``, exact also where it is tiny; see `cdf` for shapes."""
        return self._average([part.survival(y) for part in self.parts])

    def quantile(self, alpha: ArrayLike) -> Array:
        """Return the smallest value whose cdf reaches `alpha`, for each output by itself.

        By safeguarded root finding between the parts' quantiles, to the last digits. Where the cdf
        is flat to the last digit (between parts that are far apart) any number there may come out.

        Parameters
        ----------
        alpha : float or array
            Probabilities strictly between 0 and 1.

        Returns
        -------
        array of shape ``(*public, *alpha.shape)``
        """
        alpha = as_alpha(alpha)
        ends = np.stack([part.quantile(alpha) for part in self.parts])
        ends = ends.reshape(*ends.shape[: 1 + len(self.shape)], alpha.size)
        live = (self.weights > 0).reshape(len(ends), -1, *[1] * (ends.ndim - 2))
        low, high = (
            np.where(live, ends, np.inf).min(axis=0),
            np.where(live, ends, -np.inf).max(axis=0),
        )
        found = [self._solve(a, low[..., i], high[..., i]) for i, a in enumerate(alpha.flat)]
        return np.stack(found, axis=-1).reshape(self.shape + alpha.shape)

    def _solve(self, alpha: float, low: Array, high: Array) -> Array:
        """Return the quantile that lies between two others, in the public shape."""
        from scipy.optimize import elementwise  # slow to import

        def excess(x: Array) -> Array:
            # The smaller tail: its digits are exact.
            return self.cdf(x) - alpha if alpha < 0.5 else (1.0 - alpha) - self.survival(x)

        low, high = (np.clip(end, -_LARGEST, _LARGEST) for end in (low, high))
        reach = 1e-8 * (high - low) + 1e-300  # at the ends the sign would be one of rounding
        low, high = np.nextafter(low - reach, -np.inf), np.nextafter(high + reach, np.inf)
        out, done = high.copy(), excess(low) >= 0
        out[done] = low[done]  # -inf, in effect: more than alpha lies below the smallest number
        out[out >= _LARGEST], out[out <= -_LARGEST] = np.inf, -np.inf
        todo = np.flatnonzero((~done & (excess(high) >= 0)).ravel())
        if not len(todo):
            return out

        def at(x: Array, where: NDArray[np.intp]) -> Array:
            # All rows at once: a part cannot be asked about single numbers.
            everywhere = low.ravel().copy()
            everywhere[where.ravel()] = x.ravel()
            return excess(everywhere.reshape(low.shape)).ravel()[where.ravel()].reshape(x.shape)

        exact = {"xatol": 0.0, "xrtol": 2 * np.finfo(np.float64).eps, "fatol": 0.0, "frtol": 0.0}
        ends = low.ravel()[todo], high.ravel()[todo]
        found = elementwise.find_root(at, ends, args=(todo,), tolerances=exact)
        x, right = found.x, np.where(found.f_bracket[0] >= 0, *found.bracket)
        x = np.where(found.f_x >= 0, x, right)
        for _ in range(8):  # onto the point mass itself, if that is what was found
            before = np.nextafter(x, -np.inf)
            x = np.where(at(before, todo) >= 0, before, x)
        out.ravel()[todo] = x
        return out

    def _mixed(self, logs: Sequence[Array]) -> Array:
        """Return log densities (n, ...) of the mixture."""
        with mixtures.quiet():
            log_w = np.log(self.weights)
        terms = [w.reshape(-1, *[1] * (a.ndim - 1)) + a for w, a in zip(log_w, logs, strict=True)]
        return mixtures.log_sum_exp(np.stack(terms))

    def marginal_logpdf(self, y: ArrayLike) -> Array:
        """Log density of each output by itself, of the shape of `y`; see `cdf` for `y`."""
        return self._mixed([part.marginal_logpdf(y) for part in self.parts])

    def logpdf(self, y: ArrayLike) -> Array:
        """Joint log density of all outputs of a row, shape (n, ...); see `Predictive.logpdf`."""
        return self._mixed([part.logpdf(y) for part in self.parts])

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw independent rows: array of shape ``(*public, n_samples)``."""
        n_samples, rng = drawing(n_samples, random_state)
        chosen = mixtures.chosen(self.weights, rng.uniform(size=(n_samples, self.n_rows))).T
        chosen = chosen.reshape(self.n_rows, *[1] * (len(self.shape) - 1), n_samples)
        out = np.empty((*self.shape, n_samples))
        for k, part in enumerate(self.parts):
            np.copyto(out, part.sample(n_samples, rng), where=chosen == k)
        return out

    def knots(self) -> tuple[Array, Array]:
        """Return numbers at which to cut integrals of the cdf, and how far apart they must be."""
        at, apart = zip(*(part.knots() for part in self.parts), strict=True)
        return np.concatenate(at), np.concatenate(apart)

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of each row and output, in the target's units.

        By quadrature of the cdf in panels at the parts' own quantiles.

        Parameters
        ----------
        y : array of the public shape
        """
        y = self._arranged(y)
        out = np.empty(y.shape)
        width = self[:1].knots()[0].size
        for rows in mixtures.blocks_of(self.n_rows, max(1, _VALUES // width)):
            out[rows] = self[rows]._crps(y[rows])
        return self._public(out)

    def _crps(self, y: Array) -> Array:
        edges = mixtures.panels(*self.knots())

        def cdf(x: Array) -> Array:
            return self._arranged(self.cdf(self._public(x)))

        end = np.clip(y, edges[0], edges[-1])
        return mixtures.panel_crps(y, edges, cdf, np.ones_like) + np.abs(y - end)


def _alike(a: AbstractContinuous, b: AbstractContinuous) -> bool:
    """Return whether two parts can become one."""
    if isinstance(a, Warped) and isinstance(b, Warped):
        return a.warp.same(b.warp)
    return isinstance(a, Predictive) and isinstance(b, Predictive)
