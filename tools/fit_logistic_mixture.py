"""Fit the logistic sigmoid by a mixture of normal distribution functions.

Monahan & Stefanski (1989): sigmoid(x) ~ sum_i p_i Phi(s_i x), with p summing to 1, so that its mean
under a Gaussian, sum_i p_i Phi(s_i m / sqrt(1 + s_i^2 v)), is in closed form for every mean m and
variance v. The fit minimizes the largest error (a p-norm driven up). Run it to print the table in
`src/varprop/moments/logistic.py` (needs SciPy):

    .venv/bin/python tools/fit_logistic_mixture.py
"""

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, ndtr


def fit(n_terms: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return probabilities, slopes and the largest error over the whole line."""
    x = np.concatenate([np.linspace(0, 8, 1200), np.linspace(8, 40, 400)])

    def unpack(theta):
        p = np.exp(theta[:n_terms] - theta[:n_terms].max())
        return p / p.sum(), np.exp(theta[n_terms:])

    def residual(theta):
        p, s = unpack(theta)
        return ndtr(np.outer(x, s)) @ p - expit(x)

    theta = np.concatenate([np.zeros(n_terms), np.log(np.geomspace(0.25, 1.3, n_terms))])
    for power in (1, 2, 4, 8, 16):  # from least squares towards the minimax fit
        scale = np.abs(residual(theta)).max()
        theta = least_squares(
            lambda t, k=power, c=scale: np.sign(residual(t)) * np.abs(residual(t) / c) ** k,
            theta,
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=4000,
        ).x
    p, s = unpack(theta)
    order = np.argsort(s)
    return p[order], s[order], float(np.abs(residual(theta)).max())


if __name__ == "__main__":
    for n_terms in (3, 4, 5, 6):
        p, s, error = fit(n_terms)
        print(f"# {n_terms} terms, largest error {error:.2e}")
        print("p =", tuple(float(f"{v:.12g}") for v in p))
        print("s =", tuple(float(f"{v:.12g}") for v in s))
