"""Numbers that the rules of JAX and of NumPy share; no JAX here.

Fits of the Gaussian tail and of the logistic function, nodes of quadratures.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
LOG_2PI = math.log(2.0 * math.pi)

# Mills's ratio R(x) = Phi(-x) / phi(x) = R / D and M(x) = 1 - x R(x) = M / D for x >= 0, ascending
# coefficients, made by tools/fit_mills_ratio.py. Worst relative error 1.1e-8 on [0, 18] (float32,
# whose tail underflows at 15.4 even when scaled by a variance of 1e12) and 2e-18 on [0, 40]
# (float64).
TAIL_32: dict[str, Any] = {
    "x_max": 15.9,
    "R": (1.253314123, 1.42826575, 0.77778606, 0.2464315965, 0.04568800345, 0.004183068514),
    "M": (0.9999999891, 0.6841608839, 0.238207074, 0.04568294548, 0.004183145355),
    "D": (
        1.0,
        1.93747502,
        1.666472523,
        0.8234694571,
        0.2506145453,
        0.04568803108,
        0.004183067426,
    ),
}
TAIL_64: dict[str, Any] = {
    "x_max": 38.0,
    "R": (
        1.253314137315500249,
        2.299640891267344374,
        2.087862072265455047,
        1.221236502509997269,
        0.507573588967542843,
        0.1568082576230741958,
        0.03670127128023765539,
        0.006514082461285886598,
        0.0008618475998971805858,
        0.00008139683733250679815,
        4.983567586517102732e-6,
        1.522070037873823694e-7,
    ),
    "M": (
        1.000000000000000002,
        1.379418386020519505,
        0.9668486543725341128,
        0.442420513265586484,
        0.1445828086081104044,
        0.03502741134489742864,
        0.006352810868572761541,
        0.0008518804644714005354,
        0.00008109242332861128009,
        4.983567586484444774e-6,
        1.522070037875149826e-7,
    ),
    "D": (
        1.0,
        2.632732523336019815,
        3.266489545639878267,
        2.530282585531041416,
        1.365819311118109021,
        0.542601000312438266,
        0.1631610684916482637,
        0.03755315174470861779,
        0.006595174884614577681,
        0.000866831167483657063,
        0.00008154904433629473744,
        4.983567586517091662e-6,
        1.52207003787382479e-7,
    ),
}

# sigmoid(x) ~ sum_i p_i Phi(s_i x), largest error 9.2e-7; made by tools/fit_logistic_mixture.py.
LOGISTIC_P = (0.0283559221121, 0.232252333828, 0.434933820515, 0.266470825195, 0.0379870983501)
LOGISTIC_S = (0.296903733715, 0.421442735141, 0.592786629818, 0.823082421249, 1.13718440094)
LOGISTIC_NODES = 20

# sigmoid(-x) softplus(x) ~ sum_i a_i exp(-(x - c_i)^2 / (2 b_i)), largest error 5.4e-6; made by
# tools/fit_surprise_bells.py: heights, centers, variances.
SURPRISE_BELLS = (
    (0.00041519891188, -1.52155680874, 0.411228477582),
    (0.0685517437974, 0.299418944757, 1.13562426534),
    (0.194641983586, 0.645247263841, 2.67518106248),
    (0.0958830734337, 0.921714805726, 5.5305970073),
    (0.0127500611599, 1.27102538111, 11.0274296079),
    (-0.00337528691967, 2.73458280181, 0.94624700509),
)


@functools.cache
def hermite_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights with E[f(z)] ~ sum_i w_i f(z_i) for z ~ N(0, 1), exact to degree 2n - 1.

    Examples
    --------
    >>> z, w = hermite_nodes(3)
    >>> round(float(w @ z**4), 12)
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


@functools.cache
def legendre_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1].

    Examples
    --------
    >>> t, w = legendre_nodes(4)
    >>> round(float(w @ t**3), 12)
    0.25
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1), 0.5 * weights
