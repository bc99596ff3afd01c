"""A one-dimensional network, its predictive band, and the proof by sampling.

One forward pass gives a mean and a standard deviation at every x. The script compares both with
plain networks drawn from the same weight distribution, prints the comparison, and draws it.

    python examples/predictive_band.py --output predictive_band.png

The weights are made by hand (nothing is trained): 50 rectifiers whose kinks lie at random places in
[-3, 3] and which grow away from the middle, so the output is surest near x = 0.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import varprop
from varprop import nn
from varprop.nn.checking import sample_outputs

N_HIDDEN = 50
POINTS = np.linspace(-4.0, 4.0, 9)[:, None]  # where the check looks
SHOWN = 7  # the index of the point whose histogram is drawn: x = 3


def make_network(seed: int) -> nn.Sequential:
    """Rectifiers max(0, slope (x - kink)) with weights that follow a smooth curve on [-4, 4]."""
    rng = np.random.default_rng(seed)
    kink = rng.uniform(-3, 3, N_HIDDEN)
    slope = np.sign(kink) * rng.uniform(0.7, 1.3, N_HIDDEN)
    # Output weights by ridge regression, so that the mean is a curve worth looking at.
    x = np.linspace(-4, 4, 200)
    features = np.maximum(slope * (x[:, None] - kink), 0)
    target = np.sin(1.6 * x) + 0.3 * x
    gram = features.T @ features + 0.3 * np.eye(N_HIDDEN)
    out = np.linalg.solve(gram, features.T @ target)
    return nn.Sequential(
        [
            nn.Dense(
                nn.GaussianWeights(slope[:, None], 0.10),
                nn.GaussianWeights(-slope * kink, 0.10),
            ),
            nn.ReLU(),
            nn.Dense(nn.GaussianWeights(out[None, :], 0.05), nn.GaussianWeights(np.zeros(1), 0.05)),
        ]
    )


def print_table(net, report, draws) -> None:
    out = net.moments(POINTS)
    columns = np.column_stack(
        [
            POINTS[:, 0],
            out.mean[:, 0],
            draws.mean(axis=0)[:, 0],
            report.mean_z[:, 0],
            jnp.sqrt(out.var[:, 0]),
            draws.std(axis=0, ddof=1)[:, 0],
            report.var_z[:, 0],
        ]
    )
    print("          ------- mean -------    z     ----- std. dev. ----    z")
    print("     x    propagated   sampled          propagated   sampled")
    for x, mean, mean_s, mean_z, std, std_s, std_z in columns:
        print(
            f"{x:6.1f}    {mean:10.4f} {mean_s:9.4f} {mean_z:6.2f}  "
            f"{std:10.4f} {std_s:9.4f} {std_z:6.2f}"
        )
    print(
        "z: distance in standard errors of the sampled value (that of the variance, at the right)"
    )


def draw(net, draws, key, path: Path) -> None:
    x = np.linspace(-4.5, 4.5, 400)[:, None]
    out = net.moments(x)
    mean, std = np.asarray(out.mean[:, 0]), np.sqrt(np.asarray(out.var[:, 0]))
    where = POINTS[SHOWN, 0]

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.6, 4.0), width_ratios=(2.4, 1), layout="constrained"
    )
    fan = sample_outputs(net, x, key, 20)[:, :, 0]
    lines = left.plot(x, fan.T, color="0.45", lw=0.6, alpha=0.7)
    lines[0].set_label("20 sampled plain networks")
    left.fill_between(
        x[:, 0],
        mean - 2 * std,
        mean + 2 * std,
        color="tab:blue",
        alpha=0.25,
        lw=0,
        label="mean ± 2 std, propagated",
    )
    left.plot(x, mean, color="tab:blue", lw=2, label="mean, propagated")
    left.axvline(where, color="tab:orange", lw=1.2, ls="--")
    left.set(xlabel="x", ylabel="network output", xlim=(-4.5, 4.5))
    left.set_title("One forward pass gives the whole band", fontsize=11)
    left.legend(loc="upper left", frameon=False, fontsize=9)

    values = draws[:, SHOWN, 0]
    at = net.moments(POINTS[SHOWN])
    m, s = float(at.mean[0]), float(jnp.sqrt(at.var[0]))
    grid = np.linspace(m - 4 * s, m + 4 * s, 300)
    density = np.exp(-0.5 * ((grid - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
    right.hist(
        values,
        bins=np.linspace(m - 4 * s, m + 4 * s, 61),
        density=True,
        color="0.75",
        label="sampled",
    )
    right.plot(grid, density, color="tab:orange", lw=2, label="propagated")
    right.set(xlabel=f"output at x = {where:g}", ylabel="density")
    right.set_ylim(0, 1.28 * density.max())
    right.set_title(f"{len(values):,} sampled networks", fontsize=11)
    right.legend(loc="upper right", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("predictive_band.png"))
    parser.add_argument("--seed", type=int, default=0, help="seed of the network and of the check")
    parser.add_argument("--samples", type=int, default=100_000, help="plain networks to draw")
    args = parser.parse_args()

    net = make_network(args.seed)
    check_key, draw_key = jax.random.split(jax.random.key(args.seed))
    report = varprop.check(net, POINTS, check_key, n_samples=args.samples)
    # The same key gives the same networks as the check drew, here to be printed and drawn.
    draws = sample_outputs(net, POINTS, check_key, args.samples)
    print_table(net, report, draws)
    print(report)
    draw(net, draws, draw_key, args.output)
    print(f"picture: {args.output}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
