"""Independent truth: mpmath, quadrature, and errors counted in standard errors.

Nothing here imports varprop, and nothing uses its formulas where another route exists.
"""

from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy.special import ndtri

DIGITS = 60


def _pointwise(function: Callable) -> Callable:
    """Apply an mpmath function of (mean, var) to arrays; returns float64 arrays, one per result."""

    def apply(mean, var, *more):
        mean, var = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(var, np.float64))
        with mp.workdps(DIGITS):
            rows = [
                [float(part) for part in function(mp.mpf(float(m)), mp.mpf(float(v)), *more)]
                for m, v in zip(mean.ravel(), var.ravel(), strict=True)
            ]
        return tuple(np.array(column).reshape(mean.shape) for column in zip(*rows, strict=True))

    apply.__doc__ = function.__doc__
    return apply


def _pdf(r):
    return mp.exp(-r * r / 2) / mp.sqrt(2 * mp.pi)


def _cdf(r):
    return mp.erfc(-r / mp.sqrt(2)) / 2


def _rectified(mean, var):
    if var == 0:
        return max(mean, mp.mpf(0)), mp.mpf(0)
    std = mp.sqrt(var)
    r = mean / std
    first = mean * _cdf(r) + std * _pdf(r)
    # The textbook difference loses 4 log10 |r| digits, of which there are 60.
    second = (mean**2 + var) * _cdf(r) + mean * std * _pdf(r)
    return first, second - first**2


@_pointwise
def rectifier(mean, var):
    """Mean and variance of max(a, 0)."""
    return _rectified(mean, var)


@_pointwise
def rectifier_partials(mean, var):
    """dE/dmean, dE/dvar, dV/dmean, dV/dvar of max(a, 0), at var > 0."""
    std = mp.sqrt(var)
    r = mean / std
    first, _ = _rectified(mean, var)
    density = _pdf(r) / std
    return _cdf(r), density / 2, 2 * first * _cdf(-r), _cdf(r) - first * density


@_pointwise
def leaky_rectifier(mean, var, slope):
    """Mean and variance of a for a > 0, slope * a elsewhere."""
    slope = mp.mpf(float(slope))
    up, up_var = _rectified(mean, var)
    down, down_var = _rectified(-mean, var)
    second = up_var + up**2 + slope**2 * (down_var + down**2)
    first = up - slope * down
    return first, second - first**2


@_pointwise
def step(mean, var):
    """P(a > 0), P(a <= 0), and their product, the variance of the step function."""
    if var == 0:
        above = mp.mpf(mean > 0)
        return above, 1 - above, mp.mpf(0)
    above, below = _cdf(mean / mp.sqrt(var)), _cdf(-mean / mp.sqrt(var))
    return above, below, above * below


@_pointwise
def step_partials(mean, var):
    """The derivatives of P(a > 0) by mean and variance, at var > 0."""
    std = mp.sqrt(var)
    r = mean / std
    return _pdf(r) / std, -_pdf(r) * r / (2 * var)


@_pointwise
def mills(x, _):
    """R(x) = Phi(-x) / phi(x) and 1 - x R(x)."""
    ratio = _cdf(-x) / _pdf(x)
    return ratio, 1 - x * ratio


def expectation(
    function: Callable, mean, std, *, singularity: float, reach: float = 12.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of function(a), a ~ N(mean, std^2), by the trapezoidal rule in float64.

    The rule converges exponentially for a function that is analytic within `singularity` of the
    real axis, here to rounding: its error is exp(-2 pi d / h), where d is that distance over std
    and h is the step.

    Parameters
    ----------
    function
        Vectorized NumPy function.
    mean, std
        Arrays that broadcast against each other.
    singularity
        Distance of the function's nearest singularity from the real axis.
    reach
        Standard deviations to integrate over on either side.
    """
    mean, std = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(std, np.float64))
    out_mean, out_var = np.empty(mean.shape), np.empty(mean.shape)
    for value in np.unique(std):  # one step size per standard deviation
        chosen = std == value
        step = min(0.15, 0.15 * singularity / max(value, 1e-300))
        n = int(np.ceil(reach / step))
        z = np.linspace(-reach, reach, 2 * n + 1)
        weights = np.exp(-0.5 * z**2)
        weights /= weights.sum()
        values = function(mean[chosen][:, None] + value * z)
        out_mean[chosen] = values @ weights
        out_var[chosen] = (values - out_mean[chosen][:, None]) ** 2 @ weights
    return out_mean, out_var


def threshold(false_alarm: float, n_compared: int) -> float:
    """Return the |z| that n correct comparisons exceed together with probability `false_alarm`."""
    return float(-ndtri(false_alarm / (2 * n_compared)))


def sampling_z(draws, mean, var) -> tuple[np.ndarray, np.ndarray]:
    """Distance of claimed mean and variance from draws (along axis 0), in standard errors."""
    draws = np.asarray(draws, np.float64)
    n = draws.shape[0]
    centre = draws.mean(axis=0)
    squares = (draws - centre) ** 2
    mean_error = np.sqrt(squares.mean(axis=0) / n)
    var_error = squares.std(axis=0) / np.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_z = (np.asarray(mean, np.float64) - centre) / mean_error
        var_z = (np.asarray(var, np.float64) - squares.sum(axis=0) / (n - 1)) / var_error
    # What never varies must be hit exactly.
    never = mean_error == 0
    mean_z = np.where(never, np.where(centre == mean, 0.0, np.inf), mean_z)
    return mean_z, np.where(never, np.where(np.asarray(var) == 0, 0.0, np.inf), var_z)


def covariance_z(draws, cov) -> np.ndarray:
    """Distance of a claimed covariance (d, d) from draws of shape (n, d), in standard errors."""
    draws = np.asarray(draws, np.float64)
    n = draws.shape[0]
    deviations = draws - draws.mean(axis=0)
    products = deviations[:, :, None] * deviations[:, None, :]
    return (np.asarray(cov) - products.sum(axis=0) / (n - 1)) / (products.std(axis=0) / np.sqrt(n))


def relative_error(value, truth) -> np.ndarray:
    """|value - truth| / |truth|, elementwise."""
    truth = np.asarray(truth, np.float64)
    return np.abs(np.asarray(value, np.float64) - truth) / np.abs(truth)


def _panels(ends: np.ndarray, n_nodes: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of E[g(z)], z ~ N(0, 1), by Gauss-Legendre between these ends."""
    t, w = np.polynomial.legendre.leggauss(n_nodes)
    ends = np.unique(np.clip(ends, -9, 9))
    half = 0.5 * np.diff(ends)
    z = ((ends[:-1] + half)[:, None] + half[:, None] * t).ravel()
    weights = (half[:, None] * w).ravel() * np.exp(-0.5 * z**2)
    return z, weights / weights.sum()


def pair_covariance(function: Callable, first, second, rho: float) -> float:
    """Cov[f(a), f(b)] for Gaussians (mean, std) of correlation rho, by quadrature over both.

    The function may have a kink or a step at 0: the inner integral, over b given a, is split there,
    and so is the outer one, finely around the a that makes b's mean 0.
    """
    (m, s), (n, t) = first, second
    if s == 0 or t == 0:
        return 0.0
    rest = np.sqrt(max(1 - rho**2, 0.0))
    turn = -n / (t * rho) if rho else 99.0
    width = rest / abs(rho) if rho else 0.0
    near = turn + width * np.linspace(-6, 6, 13)
    z, w = _panels(np.concatenate([np.linspace(-9, 9, 25), [-m / s, turn], near]))
    given = n + t * rho * z  # mean of b for each a
    if rest > 0:
        # Two halves of unit length for every a, below and above the turn of b, cut into panels.
        u, v = np.polynomial.legendre.leggauss(6)
        unit = (np.arange(12)[:, None] + 0.5 * (u + 1)).ravel() / 12
        cut = np.clip(-given / (t * rest), -9, 9)[:, None]
        b = np.concatenate([-9 + (cut + 9) * unit, cut + (9 - cut) * unit], axis=1)
        weight = np.tile(v, 24) * np.exp(-0.5 * b**2)
        weight *= np.repeat(np.concatenate([cut + 9, 9 - cut], axis=1), 72, axis=1)
        values = function(given[:, None] + t * rest * b)
        expected = (weight * values).sum(axis=1) / weight.sum(axis=1)
    else:
        expected = function(given)
    values = function(m + s * z)
    return float(w @ ((values - w @ values) * (expected - w @ expected)))
