"""The normal distribution function in NumPy alone: importing SciPy takes longer than predicting."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from varprop.moments.constants import INV_SQRT_2PI, TAIL_64

# Beyond 40 the tail is below the smallest float64.
_FAR = 40.0


def mills(x: Any) -> tuple[Any, Any]:
    """Return Mills's ratio Phi(-x) / phi(x) and exp(-x^2 / 2), for x >= 0.

    Whatever obeys NumPy's protocols can be given, as the export to ONNX does.

    Examples
    --------
    >>> ratio, bell = mills(np.array([0.0, 50.0]))
    >>> ratio.round(4).tolist(), bell.tolist()
    ([1.2533, 0.025], [1.0, 0.0])
    """
    x = np.minimum(x, _FAR)
    return polynomial(TAIL_64["R"], x) / polynomial(TAIL_64["D"], x), np.exp(-0.5 * x * x)


def polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Evaluate a polynomial with at least two ascending coefficients by Horner's rule."""
    *others, last = coefficients
    value = x * last + others.pop()
    for coefficient in reversed(others):
        value *= x
        value += coefficient
    return value


def normal_cdf(x: Any) -> Any:
    """Return Phi(x), whose relative error is below 1e-12 wherever it is a normal number.

    Examples
    --------
    >>> normal_cdf(np.array([-np.inf, -3.0, 0.0, 3.0])).round(6).tolist()
    [0.0, 0.00135, 0.5, 0.99865]
    """
    ratio, bell = mills(np.abs(x))
    far = ratio * bell * INV_SQRT_2PI
    return np.where(x > 0, 1 - far, far)


@functools.cache
def normal_quantile(p: float) -> float:
    """Return the x with Phi(x) = p, for 0 < p < 1.

    Examples
    --------
    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(p)
