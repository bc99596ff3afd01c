"""Fit the logistic's surprise by a sum of Gaussian bells.

A class whose log-odds against are L has probability p = sigmoid(-L), and its part of the entropy is
-p log p = sigmoid(-L) softplus(L). As a sum of bells, a_i exp(-(L - c_i)^2 / (2 b_i)), its mean
under a Gaussian is in closed form for every mean and variance. The fit is by least squares, towards
the largest error. Run it to print the table in `src/varprop/moments/constants.py` (needs SciPy):

    .venv/bin/python tools/fit_surprise_bells.py
"""

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit


def fit(n_bells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return heights, centers, variances and the largest error over the line."""
    x = np.linspace(-20, 30, 2001)
    truth = expit(-x) * np.logaddexp(0, x)

    def residual(theta):
        a, c, log_b = np.split(theta, 3)
        return np.exp(-0.5 * (x[:, None] - c) ** 2 / np.exp(log_b)) @ a - truth

    theta = np.concatenate(
        [
            np.full(n_bells, 0.5 / n_bells),
            np.linspace(-3, 6, n_bells),
            np.full(n_bells, np.log(3.0)),
        ]
    )
    for power in (1, 2, 4):
        scale = np.abs(residual(theta)).max()
        theta = least_squares(
            lambda t, k=power, s=scale: np.sign(residual(t)) * np.abs(residual(t) / s) ** k,
            theta,
            xtol=1e-14,
            ftol=1e-14,
            gtol=1e-14,
            max_nfev=2000,
        ).x
    a, c, log_b = np.split(theta, 3)
    order = np.argsort(c)
    return a[order], c[order], np.exp(log_b)[order], float(np.abs(residual(theta)).max())


if __name__ == "__main__":
    for n_bells in (4, 5, 6):
        a, c, b, error = fit(n_bells)
        print(f"# {n_bells} bells, largest error {error:.2e}")
        for name, values in (("a", a), ("c", c), ("b", b)):
            print(f"{name} =", tuple(float(f"{v:.12g}") for v in values))
