"""Inputs with a known measurement error: where the curve is steep, the prediction gets wider.

    python examples/uncertain_inputs.py --output uncertain_inputs.png

A model is fitted to a curve that is flat on the left and steep on the right, and then asked about
inputs that are known up to a standard deviation of 0.3. `X_std` pushes that error through the
network in the same forward pass. With hidden layers this is an approximation (of first order in
what units share), so the script also draws 5,000 inputs at every point and compares.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import FAWNRegressor, plotting

ERROR = 0.3


def sampled_std(model, grid, rng, n_draws):
    """Standard deviation of the prediction over sampled inputs: the reference."""
    out = []
    for x in grid:
        draws = model.predict_dist(x + ERROR * rng.standard_normal((n_draws, 1)))
        out.append(np.sqrt(draws.mean.var() + draws.var.mean()))
    return np.array(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="uncertain_inputs.png")
    parser.add_argument("--max-iter", type=int, default=3000, help="epochs of training")
    parser.add_argument("--draws", type=int, default=5000, help="sampled inputs per point")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 1))
    y = np.log1p(np.exp(3 * X[:, 0])) / 3 + 0.1 * rng.standard_normal(300)
    model = FAWNRegressor(max_iter=args.max_iter, random_state=0).fit(X, y)

    grid = np.linspace(-3, 3, 41)
    known = model.predict_dist(grid[:, None])
    uncertain = model.predict_dist(grid[:, None], X_std=np.full((len(grid), 1), ERROR))
    sampled = sampled_std(model, grid, rng, args.draws)
    print("     x   known input   propagated   sampled   propagated / sampled")
    for i in range(0, len(grid), 5):
        print(
            f"{grid[i]:6.2f} {known.std[i]:13.3f} {uncertain.std[i]:12.3f} {sampled[i]:9.3f}"
            f" {uncertain.std[i] / sampled[i]:13.2f}"
        )

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    plotting.plot_band(grid, uncertain, ax=left)
    left.plot(X[:, 0], y, ".", color="0.5", markersize=3, zorder=0)
    left.set(title=f"inputs known up to {ERROR}", xlabel="x", ylabel="y")
    right.plot(grid, known.std, label="input known exactly", color="0.6")
    right.plot(grid, uncertain.std, label="propagated, X_std")
    right.plot(grid, sampled, "--", label=f"{args.draws:,} sampled inputs")
    right.set(title="standard deviation of the prediction", xlabel="x", ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
