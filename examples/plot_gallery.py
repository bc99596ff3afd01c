"""All plots of `varprop.plotting` in one picture, on data whose truth is known.

    python examples/plot_gallery.py --output gallery.png

A curve is observed with noise that grows to the right. The predictions are right about the mean
and, by default, about the spread; `--stated 0.5` states half of it, and the calibration plots say
so.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import plotting
from varprop.predictive import Predictive
from varprop.predictive.budget import Budget
from varprop.predictive.diagnostics import calibration_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="plot_gallery.png")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--stated", type=float, default=1.0, help="stated std over the true one")
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, arguments.rows))
    doubt, noise = 0.02 + 0.04 * (x - 3) ** 2 / 9, 0.01 + 0.02 * x
    truth = Predictive.gaussian(np.sin(x), doubt, noise)
    y = truth.sample(random_state=3)[..., 0]
    square = arguments.stated**2
    stated = Predictive.gaussian(truth.mean, square * doubt, square * noise)
    root = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.4, 0.2, 0.9]])
    joint = Predictive.joint(np.zeros((1, 3)), (root @ root.T)[None], 0.1)
    mixture = Predictive.mixture([Predictive.gaussian([m], [0.2], 0.1) for m in (-1.0, 1.0)])

    figure, axes = plt.subplots(3, 3, figsize=(15, 13), layout="constrained")
    panels = iter(axes.flat)
    plotting.plot_band(x, stated, y=y, ax=next(panels)).set_title("plot_band")
    plotting.plot_predicted_observed(y, stated, ax=next(panels)).set_title(
        "plot_predicted_observed"
    )
    plotting.plot_calibration(y, stated, ax=next(panels)).set_title("plot_calibration")
    plotting.plot_pit(y, stated, ax=next(panels)).set_title("plot_pit")
    plotting.plot_error_by_std(y, stated, ax=next(panels)).set_title("plot_error_by_std")
    curve = 1 + 2 * np.exp(-np.arange(200) / 25) + 0.02 * rng.normal(size=200)
    plotting.plot_training(curve, ax=next(panels)).set_title("plot_training")
    plotting.plot_output_correlation(
        joint, names=["speed", "torque", "heat"], ax=next(panels)
    ).set_title("plot_output_correlation")
    draws = mixture.sample(4000, random_state=2)
    plotting.plot_density(draws[0], mixture, ax=next(panels)).set_title("plot_density")
    names = ["error of speed", "weights of layer 1", "weights of layer 2", "noise"]
    parts = np.column_stack([0.02 * rng.gamma(0.5, size=len(x)), doubt / 3, doubt * 2 / 3, noise])
    plotting.plot_budget(Budget(names, square * parts), ax=next(panels)).set_title("plot_budget")
    figure.savefig(arguments.output, dpi=60)

    seen = calibration_curve(y, stated, levels=[0.5, 0.9])
    for level, share, low, high in zip(*seen, strict=True):
        print(
            f"{level:.0%} intervals held {share:.0%} of {arguments.rows} values; "
            f"{low:.0%} to {high:.0%} is what chance allows"
        )


if __name__ == "__main__":
    main()
