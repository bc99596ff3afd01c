"""Two clusters with a gap: which model says that it has seen nothing in between?

    python examples/between_clusters.py --output between_clusters.png

The same network, trained by VI, says what it is unsure of in two ways: by the variances of weights
that are learned as independent of one another, and by the covariance of all weights together that
follows from the rows (`row_covariance="gauss-newton"`), the latter also with the KL divergence
counted a tenth, which prunes less. Beside them a Gaussian process. Bands are two standard
deviations of the function, without the noise.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import FAWNRegressor, Recipe
from varprop.baselines.gp import GaussianProcess

PLACES = {"data": (0.7, 2.0), "gap": (0.0, 0.4), "beyond": (2.5, 3.5)}


def truth(x):
    return np.sin(x + 0.5) + 0.5 * np.sin(2 * x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="between_clusters.png")
    parser.add_argument("--steps", type=int, default=8_000, help="of training")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], 200) * rng.uniform(*PLACES["data"], 200)
    y = truth(x) + 0.1 * rng.standard_normal(200)
    plan = Recipe(
        kl_warmup=args.steps // 4, cooldown=args.steps // 4, max_steps=args.steps, stop=None
    )
    options = {"objective": "vi", "validation": None, "recipe": plan, "random_state": 0}
    models = {
        "independent weights": FAWNRegressor(**options),
        "all weights together": FAWNRegressor(row_covariance="gauss-newton", **options),
        "the same, KL x 0.1": FAWNRegressor(
            row_covariance="gauss-newton", kl_weight=0.1, **options
        ),
        "Gaussian process": GaussianProcess(n_restarts=0),
    }
    figure, axes = plt.subplots(
        2, 2, figsize=(10, 6), sharex=True, sharey=True, layout="constrained"
    )
    grid = np.linspace(-3.5, 3.5, 281)
    print("root mean square of what the model is unsure of, of its error in brackets")
    print("                              data           gap        beyond")
    for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
        dist = model.fit(x[:, None], y).predict_dist(grid[:, None])
        mean, var = dist.mean.ravel(), dist.model_var.ravel()
        cells = []
        for low, high in PLACES.values():
            at = (np.abs(grid) >= low) & (np.abs(grid) <= high)
            error = np.sqrt(np.mean((mean[at] - truth(grid[at])) ** 2))
            cells.append(f"{np.sqrt(var[at].mean()):.3f} ({error:.3f})")
        print(f"{name:20s}" + "".join(f"{cell:>14s}" for cell in cells))
        band = 2 * np.sqrt(var)
        ax.fill_between(grid, mean - band, mean + band, alpha=0.3, linewidth=0)
        ax.plot(grid, mean, label="mean")
        ax.plot(grid, truth(grid), "--", color="0.4", label="true function")
        ax.plot(x, y, ".", color="0.5", markersize=2, zorder=0)
        ax.set(title=name, ylim=(-3.5, 3.5))
    for below, beside in zip(axes[1], axes[:, 0], strict=True):
        below.set_xlabel("x")
        beside.set_ylabel("y")
    axes[0, 0].legend(frameon=False, loc="lower right")
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
