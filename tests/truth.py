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
