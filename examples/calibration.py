"""Are the intervals as wide as they should be? Calibration before and after recalibrating.

    python examples/calibration.py --output calibration.png

The noise has heavy tails (Student's t with three degrees of freedom), which a Gaussian cannot
follow: it must be wide for the sake of the tails, and its narrow intervals then hold too much.
Split conformal recalibration (`varprop.conformal`) learns from 1,000 further rows how far intervals
must reach. Both are judged on 2,000 rows that neither has seen.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import FAWNRegressor, plotting
from varprop.predictive.conformal import Conformal
from varprop.predictive.diagnostics import chance_range

LEVELS = np.linspace(0.1, 0.9, 9)


def make_rows(rng, n):
    x = rng.uniform(-3, 3, (n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.2 * rng.standard_t(3, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="calibration.png")
    parser.add_argument("--max-iter", type=int, default=3000, help="epochs of training")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    (X, y), (X_cal, y_cal), (X_test, y_test) = (make_rows(rng, n) for n in (300, 1000, 2000))
    model = FAWNRegressor(max_iter=args.max_iter, random_state=0).fit(X, y)
    conformal = Conformal.calibrate(model, X_cal, y_cal)

    covered = {"Gaussian": [], "recalibrated": []}
    for level in LEVELS:
        for name, predict in zip(covered, (model, conformal), strict=True):
            lower, upper = predict.predict_interval(X_test, coverage=level)
            covered[name].append(float(((lower <= y_test) & (y_test <= upper)).mean()))
    low, high = chance_range(len(y_test), LEVELS)
    print(f"{'stated':>8} {'Gaussian':>9} {'recalibrated':>13}   chance allows")
    for i, level in enumerate(LEVELS):
        gaussian, recalibrated = (covered[name][i] for name in covered)
        print(f"{level:8.0%} {gaussian:9.1%} {recalibrated:13.1%}   {low[i]:.1%} to {high[i]:.1%}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    grid = np.linspace(-3, 3, 200)
    plotting.plot_band(grid, model.predict_dist(grid[:, None]), ax=left)
    left.plot(X[:, 0], y, ".", color="0.5", markersize=3, zorder=0)
    left.set(title="the model", xlabel="x", ylabel="y", ylim=(-3, 3))
    right.fill_between(LEVELS, low, high, color="0.85", label="what chance allows")
    for (name, shares), marker in zip(covered.items(), "o^", strict=True):
        right.plot(LEVELS, shares, marker=marker, label=name)
    right.plot([0, 1], [0, 1], color="0.3", linewidth=0.8)
    right.set(title="2,000 new rows", xlabel="stated coverage", ylabel="share inside")
    right.legend(frameon=False)
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
