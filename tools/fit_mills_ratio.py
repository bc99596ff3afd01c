"""Fit the rational functions that `varprop.moments.numerics` uses for the Gaussian tail.

The rectifier needs two functions of x >= 0 to full *relative* accuracy, however small the tail is:

    R(x) = Phi(-x) / phi(x)     (Mills's ratio)          R ~ 1/x   for large x
    M(x) = 1 - x R(x)           (tail mean over phi)     M ~ 1/x^2 for large x

Both are fitted together over one common denominator, so that one division serves both:
R = P_R / D and M = P_M / D with degrees d-1, d-2 and d: the right decay by construction.
The fit is a reweighted linear least squares (Sanathanan-Koerner) with Lawson's weights, which
drives it to the minimax solution of the relative error. All coefficients come out positive, hence
evaluating them loses nothing to cancellation.

Run it to print the tables in `src/varprop/moments/numerics.py` (needs mpmath, a few seconds):

    .venv/bin/python tools/fit_mills_ratio.py
"""

import mpmath as mp

mp.mp.dps = 60


def mills(x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """R(x) and M(x) to the working precision."""
    ratio = mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))
    return ratio, 1 - x * ratio


def fit(degree: int, x_max: float, iterations: int = 40):
    """Return (worst relative error, P_R, P_M, D), coefficients in ascending order."""
    n_points = 10 * (degree + 1)
    # t = 1 / (1 + scale x) maps [0, x_max] to where the functions are nearly polynomial.
    scale = mp.mpf("0.3")
    t_min = 1 / (1 + scale * x_max)
    cosines = [mp.cos(mp.pi * (i + mp.mpf("0.5")) / n_points) for i in range(n_points)]
    xs = [(1 / ((1 + t_min) / 2 + (1 - t_min) / 2 * c) - 1) / scale for c in cosines]
    targets = [mills(x) for x in xs]
    sizes = (degree, degree - 1, degree)  # free coefficients of P_R, P_M, D (D[0] = 1)
    denominator = [mp.mpf(1)] * n_points
    lawson = [mp.mpf(1)] * (2 * n_points)
    best = None
    for _ in range(iterations):
        matrix, rhs = mp.matrix(2 * n_points, sum(sizes)), mp.matrix(2 * n_points, 1)
        for i, x in enumerate(xs):
            for which in (0, 1):
                row, offset = 2 * i + which, which * sizes[0]
                weight = mp.sqrt(lawson[row]) / abs(denominator[i])
                for j in range(sizes[which]):
                    matrix[row, offset + j] = weight * x**j / targets[i][which]
                for j in range(degree):
                    matrix[row, sizes[0] + sizes[1] + j] = -weight * x ** (j + 1)
                rhs[row] = weight
        columns = range(sum(sizes))
        norms = [mp.sqrt(sum(matrix[i, j] ** 2 for i in range(2 * n_points))) for j in columns]
        for j in columns:
            for i in range(2 * n_points):
                matrix[i, j] /= norms[j]
        solution = mp.lu_solve(matrix, rhs)
        solution = [solution[j] / norms[j] for j in columns]
        p_r = solution[: sizes[0]]
        p_m = solution[sizes[0] : sizes[0] + sizes[1]]
        d = [mp.mpf(1), *solution[sizes[0] + sizes[1] :]]
        denominator = [mp.polyval(d[::-1], x) for x in xs]
        errors = []
        for i, x in enumerate(xs):
            for poly, target in zip((p_r, p_m), targets[i], strict=True):
                errors.append(abs(mp.polyval(poly[::-1], x) / denominator[i] / target - 1))
        worst = max(errors)
        if best is None or worst < best[0]:
            best = (worst, p_r, p_m, d)
        lawson = [w * (mp.mpf("0.05") + e / worst) for w, e in zip(lawson, errors, strict=True)]
        top = max(lawson)
        lawson = [w / top for w in lawson]
    return best


if __name__ == "__main__":
    for name, degree, x_max, digits, iterations in (
        ("float32", 6, 18, 10, 40),
        ("float64", 12, 40, 19, 8),
    ):
        worst, *tables = fit(degree, x_max, iterations)
        print(f"# {name}: degree {degree} on [0, {x_max}], relative error {mp.nstr(worst, 3)}")
        for label, table in zip(("R", "M", "D"), tables, strict=True):
            print(label, "= (", ", ".join(mp.nstr(c, digits) for c in table), ")")
