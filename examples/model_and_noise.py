"""Which part of the spread is the model's, and does it fall with more data? VI and ROPD differ.

    python examples/model_and_noise.py --output model_and_noise.png

The true noise has a standard deviation of 0.3. VI learns it, and its model part falls as rows are
added. ROPD is trained on the sum of the two parts alone, so how it splits them is left to the
prior: the sum is right, the parts need not be, and a prediction does not show them. With 50 rows
the KL divergence prunes either network: it predicts little more than the mean of the targets, and
calls the rest noise.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import FAWNRegressor

NOISE = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="model_and_noise.png")
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 200, 800, 3200])
    parser.add_argument("--steps", type=int, default=12_000, help="optimization steps, about")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    X_test = rng.uniform(-3, 3, (500, 1))
    parts = {}
    print("objective   rows   model std   noise std   together")
    for objective in ("vi", "ropd"):
        for n in args.rows:
            X = rng.uniform(-3, 3, (n, 1))
            y = np.sin(2 * X[:, 0]) + NOISE * rng.standard_normal(n)
            epochs = max(1, args.steps // -(-n // 128))
            model = FAWNRegressor(
                objective=objective, validation=None, max_iter=epochs, random_state=0
            )
            dist = model.fit(X, y).predict_dist(X_test)
            # The one network's own numbers: of ROPD, `model_var` and `noise_var` are refused.
            means = dist.member_model.mean(), dist.member_noise.mean(), dist.var.mean()
            found = np.sqrt(means).tolist()
            parts.setdefault(objective, []).append(found)
            print(f"{objective:<9} {n:6d} {found[0]:11.3f} {found[1]:11.3f} {found[2]:10.3f}")

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for (objective, found), ax in zip(parts.items(), axes, strict=True):
        for values, name in zip(np.array(found).T, ("model", "noise", "together"), strict=True):
            ax.plot(args.rows, values, marker="o", label=name)
        ax.axhline(NOISE, color="0.6", linewidth=0.8, label="true noise")
        ax.set(title=f'objective="{objective}"', xlabel="training rows", xscale="log")
    axes[0].set(ylabel="standard deviation", ylim=(0, None))
    axes[0].legend(frameon=False)
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
