"""Monotone maps from a target to the scale on which it is Gaussian. NumPy only."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, final

import numpy as np

from varprop.predictive.mixtures import Array, ArrayLike, quiet

W = TypeVar("W", bound="AbstractWarp")
Moments = tuple[Array, Array, Array]

_BLOCK = 8_192  # rows worked on at once


class AbstractWarp(ABC):
    """An increasing map from targets y to a latent scale z, of every output by itself.

    A final class is a frozen dataclass whose fields are float64 arrays of shape (d,), and takes
    arrays of shape (..., d). Outside its domain `log_slope` is -inf: there is no density.
    """

    @abstractmethod
    def forward(self, y: Array) -> Array:
        """Return z; -inf below the domain."""

    @abstractmethod
    def inverse(self, z: Array) -> Array:
        """Return y; infinite where no target reaches z."""

    @abstractmethod
    def log_slope(self, y: Array) -> Array:
        """Return ``log dz/dy``; -inf outside the domain."""

    @abstractmethod
    def moments(self, mean: Array, model: Array, noise: Array) -> Moments:
        """Return moments of targets whose latent z is Gaussian.

        Parameters
        ----------
        mean, model, noise
            Mean and the variances of the two parts of z, shapes that broadcast to (n, d).

        Returns
        -------
        mean, model, noise
            Of y: its mean, the variance of what its mean is given the model part, and on the
            average the variance that is left.
        """

    def take(self: W, outputs: Sequence[int]) -> W:
        """Return the map of some outputs."""
        return type(self)(**{f.name: getattr(self, f.name)[list(outputs)] for f in fields(self)})  # type: ignore[arg-type]

    def same(self, other: AbstractWarp) -> bool:
        """Return whether the other is the same map."""
        return type(self) is type(other) and all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)  # type: ignore[arg-type]
        )


def _settle(warp: AbstractWarp) -> None:
    """Make a dataclass's fields arrays of one shape (d,), refusing what is not finite."""
    names = [f.name for f in fields(warp)]  # type: ignore[arg-type]
    values = np.broadcast_arrays(
        *[np.atleast_1d(np.asarray(getattr(warp, name), np.float64)) for name in names]
    )
    for name, value in zip(names, values, strict=True):
        if value.ndim != 1 or not np.isfinite(value).all():
            raise ValueError(f"{name} must be a finite number, or one for each output.")
        if name == "scale" and not (value > 0).all():
            raise ValueError(f"scale must be positive, not {value.tolist()}.")
        object.__setattr__(warp, name, value)


@final
@dataclass(frozen=True, eq=False)
class YeoJohnson(AbstractWarp):
    """The power transform of Yeo and Johnson, of targets of either sign.

    With ``u = (y - shift) / scale`` it is ``((1 + u)^p - 1) / p`` for positive u and minus the same
    of -u with 2 - p for negative ones: p = 1 changes nothing, smaller ones shorten a tail to the
    right, larger ones one to the left. With a power outside [0, 2] z has an end on one side:
    `inverse` is infinite beyond, and so are the quantiles of a Gaussian that goes on, and moments.

    Parameters
    ----------
    power, shift, scale
        Shape (d,), or numbers.

    Examples
    --------
    >>> warp = YeoJohnson(0.0, 0.0, 1.0)
    >>> y = np.array([[-1.0], [0.0], [np.e - 1]])
    >>> warp.forward(y).ravel().tolist()
    [-1.5, 0.0, 1.0]
    >>> warp.inverse(warp.forward(y)).round(12).ravel().tolist()
    [-1.0, 0.0, 1.718281828459]
    """

    power: Any  # arrays, once made
    shift: Any
    scale: Any

    def __post_init__(self) -> None:
        """Settle shapes."""
        _settle(self)

    def _side(self, positive: Array) -> Array:
        """Return the power in force on a side."""
        return np.where(positive >= 0, self.power, 2.0 - self.power)

    def forward(self, y: Array) -> Array:
        """Return z, accurate for any power and size of y."""
        with quiet():
            u = (y - self.shift) / self.scale
            log = np.log1p(np.abs(u))
            x = self._side(u) * log
            # (exp(x) - 1) / x has no trouble but at 0 itself.
            ratio = np.where(x == 0, 1.0, np.expm1(x) / np.where(x == 0, 1.0, x))
            return np.copysign(log * ratio, u)

    def inverse(self, z: Array) -> Array:
        """Return y; infinite beyond the range of z, which a power outside [0, 2] has."""
        with quiet():
            size = np.abs(z)
            x = self._side(z) * size
            # log1p(x) / x has no trouble but at 0 itself.
            ratio = np.where(x == 0, 1.0, np.log1p(np.maximum(x, -1.0)) / np.where(x == 0, 1.0, x))
            u = np.where(x <= -1.0, np.inf, np.expm1(size * ratio))
            return self.shift + self.scale * np.copysign(u, z)

    def log_slope(self, y: Array) -> Array:
        """Return ``log dz/dy``."""
        with quiet():
            u = (y - self.shift) / self.scale
            slope = (self._side(u) - 1.0) * np.log1p(np.abs(u)) - np.log(self.scale)
        return np.where(np.isinf(u), -np.inf, slope)

    def moments(self, mean: Array, model: Array, noise: Array) -> Moments:
        """Return moments by quadrature, see `hermite_moments`."""
        return hermite_moments(self.inverse, mean, model, noise)


@final
@dataclass(frozen=True, eq=False)
class Log(AbstractWarp):
    """The logarithm, of positive targets: ``z = (log(y) - shift) / scale``.

    Parameters
    ----------
    scale, shift
        Shape (d,), or numbers.

    Examples
    --------
    >>> warp = Log(2.0, 0.0)
    >>> warp.inverse(np.array([[0.0], [1.0]])).round(3).ravel().tolist()
    [1.0, 7.389]
    """

    scale: Any  # arrays, once made
    shift: Any

    def __post_init__(self) -> None:
        """Settle shapes."""
        _settle(self)

    def forward(self, y: Array) -> Array:
        """Return z; -inf for targets that are not positive."""
        with quiet():
            return (np.log(np.maximum(y, 0.0)) - self.shift) / self.scale

    def inverse(self, z: Array) -> Array:
        """Return y."""
        with quiet():
            return np.exp(self.shift + self.scale * z)

    def log_slope(self, y: Array) -> Array:
        """Return ``log dz/dy``."""
        with quiet():
            slope = -np.log(np.maximum(y, 0.0)) - np.log(self.scale)
        return np.where(np.isposinf(slope), -np.inf, slope)

    def moments(self, mean: Array, model: Array, noise: Array) -> Moments:
        """Return moments of a log-normal variable, in closed form."""
        with quiet():
            model, noise = self.scale**2 * model, self.scale**2 * noise
            first = np.exp(self.shift + self.scale * mean + 0.5 * (model + noise))
            square = first**2
            # Zero times infinity: a part that is not there stays out of it.
            parts = square * np.expm1(model), square * np.exp(model) * np.expm1(noise)
        within = [np.where(v > 0, part, 0.0) for v, part in zip((model, noise), parts, strict=True)]
        return first, within[0], within[1]


@functools.cache
def _hermite(n: int) -> tuple[Array, Array, Array]:
    """Return nodes, roots of weights, and orthonormal Hermite polynomials times them, (n, n)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    root = np.sqrt(weights / weights.sum())
    rows = [root, nodes * root]
    for j in range(1, n - 1):
        rows.append((nodes * rows[j] - np.sqrt(j) * rows[j - 1]) / np.sqrt(j + 1))
    return nodes, root, np.stack(rows)


def hermite_coefficients(
    function: Callable[[Array], Array], mean: Array, var: Array, n_nodes: int = 64
) -> tuple[Array, Array, Array]:
    """Return a function's coefficients in orthonormal Hermite polynomials of a Gaussian variable.

    Two such variables of correlation r have functions of covariance sum over j > 0 of r^j c_j c'_j.

    Parameters
    ----------
    function
        Of arrays (..., n, d).
    mean, var
        Of the variable, shape (n, d).
    n_nodes
        Of the Gauss-Hermite rule.

    Returns
    -------
    base, coefficients, endless
        The function at the mean; the coefficients of what it is beyond that, shape (nodes, n, d);
        and the sum of its values where one of them is infinite, 0 elsewhere.

    Examples
    --------
    >>> _, c, _ = hermite_coefficients(np.square, np.zeros((1, 1)), np.ones((1, 1)))
    >>> (c[:4, 0, 0] ** 2).round(12).tolist()
    [1.0, 0.0, 2.0, 0.0]
    """
    nodes, root, polynomials = _hermite(n_nodes)
    base = function(mean)
    away = function(mean + np.sqrt(var) * nodes[:, None, None]) - base
    coefficients = np.tensordot(polynomials, root[:, None, None] * away, 1)
    return base, coefficients, np.where(np.isinf(away).any(axis=0), away.sum(axis=0), 0.0)


def hermite_moments(
    function: Callable[[Array], Array],
    mean: ArrayLike,
    model: ArrayLike,
    noise: ArrayLike,
    n_nodes: int = 64,
) -> Moments:
    """Return moments of a function of a Gaussian variable, its variance in two parts.

    One Gauss-Hermite rule gives all three: with coefficients c_j in orthonormal Hermite polynomials
    the variance is the sum of c_j^2 over j > 0, and that of the mean given the model part the sum
    of r^j c_j^2, r the model part's share of the variance. Exact for polynomials up to degree 63;
    for Yeo-Johnson's inverse, whose third derivative jumps at 0, the error is below 1e-4 of the
    standard deviation, and of the variances, for latent standard deviations up to 2.

    Parameters
    ----------
    function
        Of arrays (..., n, d).
    mean, model, noise
        Shapes that broadcast to (n, d).
    n_nodes
        Of the rule.

    Returns
    -------
    mean, model, noise
        Shape (n, d); infinite where the function is.

    Examples
    --------
    >>> [part.tolist() for part in hermite_moments(np.square, [[1.0]], [[1.0]], [[0.0]])]
    [[[2.0]], [[6.0]], [[0.0]]]
    """
    mean, model, noise = (np.asarray(part, np.float64) for part in (mean, model, noise))
    mean, model, noise = np.broadcast_arrays(mean, model, noise)
    out = np.empty((3, *mean.shape))
    powers = np.arange(1, n_nodes)[:, None, None]
    for start in range(0, len(mean), _BLOCK):
        rows = slice(start, start + _BLOCK)
        var = model[rows] + noise[rows]
        with quiet():
            base, c, endless = hermite_coefficients(function, mean[rows], var, n_nodes)
            share = np.where(var > 0, model[rows] / np.where(var > 0, var, 1.0), 0.0)
            square = c[1:] ** 2
            weight = share**powers
            out[0, rows] = base + c[0]
            out[1, rows] = (weight * square).sum(axis=0)
            # Not 1 - weight, which would lose a small noise part.
            with np.errstate(divide="ignore"):
                rest = -np.expm1(powers * np.log(share))
            out[2, rows] = (rest * square).sum(axis=0)
            ends = endless, *(np.where(v[rows] > 0, np.inf, 0.0) for v in (model, noise))
            for part, end in zip(out, ends, strict=True):
                part[rows] = np.where(endless == 0, part[rows], end)
    return out[0], out[1], out[2]
