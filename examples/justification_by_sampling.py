"""The paper's "Justification by Sampling": is the propagated Gaussian what sampling gives?

For networks with Gaussian and with Bernoulli weights, of one and of three hidden layers, the script
draws plain networks, compares the histogram of their outputs at one input with the propagated
density, and prints the Kolmogorov-Smirnov distance between the two.

    python examples/justification_by_sampling.py --output justification_by_sampling.png

How to read the table: a sample of this size from the propagated Gaussian itself would stay below
the distance printed under it 95 times in 100. `KS` is the distance to the propagated Gaussian;
`KS shape` the distance to a Gaussian with the sample's own mean and standard deviation, which is
what remains when the two moments are right; the difference is due to the moments.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy import stats

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import nn
from varprop.nn.checking import sample_outputs

N_INPUTS = 8


def bernoulli_weights(key, shape):
    """Binary weights that keep the size of the signal from layer to layer, and small biases.

    A weight is +s/2 or -s/2, so s = sqrt(8 / fan-in) gives E[w^2] = 2 / fan-in, the usual choice
    for rectifiers. With a bias as large as the signal the output would have two humps, one for each
    value of the output's bias, which no Gaussian can follow: try scale=1.0 for both.
    """
    return nn.BernoulliWeights.init(key, shape, scale=8**0.5 if len(shape) == 2 else 0.1)


WEIGHTS = {
    "Gaussian": partial(nn.GaussianWeights.init, scale=0.2, std=0.1),
    "Bernoulli": bernoulli_weights,
}
HIDDEN = {"one hidden layer": (50,), "three hidden layers": (50, 50, 50)}


def measure(net, x, key, n_samples):
    """Propagated mean and standard deviation, the sampled outputs, and what is printed of them."""
    out = net.moments(x)
    mean, std = float(out.mean[0]), float(jnp.sqrt(out.var[0]))
    draws = sample_outputs(net, x, key, n_samples)[:, 0]
    return {
        "mean": mean,
        "std": std,
        "draws": draws,
        "ratio": std / draws.std(ddof=1),
        "ks": stats.kstest(draws, stats.norm(mean, std).cdf).statistic,
        "ks_shape": stats.kstest(draws, stats.norm(draws.mean(), draws.std()).cdf).statistic,
    }


def draw(cases, noise, path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.4), layout="constrained")
    for ax, ((kind, depth), case) in zip(axes.flat, cases.items(), strict=True):
        mean, std = case["mean"], case["std"]
        low, high = np.quantile(case["draws"], [2e-4, 1 - 2e-4])
        low, high = min(low, mean - 3.5 * std), max(high, mean + 3.5 * std)
        grid = np.linspace(low, high, 400)
        density = stats.norm(mean, std).pdf(grid)
        ax.hist(
            case["draws"],
            bins=np.linspace(low, high, 81),
            density=True,
            color="0.78",
            label="sampled",
        )
        ax.plot(grid, density, color="tab:blue", lw=2, label="propagated")
        ax.set_title(f"{kind} weights, {depth}", fontsize=11)
        ax.set(xlabel="network output", ylabel="density", ylim=(0, 1.35 * density.max()))
        ax.legend(loc="upper left", frameon=False, fontsize=9)
        ax.text(
            0.98,
            0.95,
            f"KS distance {case['ks']:.4f}\npropagated / sampled\nstd. dev. {case['ratio']:.3f}",
            transform=ax.transAxes,
            ha="right",
            va="top",
            fontsize=9,
        )
    n = len(case["draws"])
    figure.supxlabel(
        f"{n:,} sampled networks per panel. Sampling error alone gives a KS distance below "
        f"{noise:.4f}, 95 times in 100.",
        fontsize=9,
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("justification_by_sampling.png"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=100_000, help="plain networks per case")
    args = parser.parse_args()

    x_key, *keys = jax.random.split(jax.random.key(args.seed), 1 + len(WEIGHTS) * len(HIDDEN))
    x = jax.random.normal(x_key, (N_INPUTS,))
    cases = {}
    print(f"{'weights':<10} {'network':<20} {'std ratio':>9} {'KS':>8} {'KS shape':>9}")
    for key, (kind, depth) in zip(
        keys, [(kind, depth) for kind in WEIGHTS for depth in HIDDEN], strict=True
    ):
        net_key, draw_key = jax.random.split(key)
        net = nn.mlp(
            N_INPUTS, 1, key=net_key, hidden_layer_sizes=HIDDEN[depth], weights=WEIGHTS[kind]
        )
        case = cases[kind, depth] = measure(net, x, draw_key, args.samples)
        print(
            f"{kind:<10} {depth:<20} {case['ratio']:>9.3f} {case['ks']:>8.4f} "
            f"{case['ks_shape']:>9.4f}"
        )
    noise = float(stats.kstwo.ppf(0.95, args.samples))
    print(
        f"{args.samples:,} samples of the propagated Gaussian itself: KS below {noise:.4f} (95 %)"
    )
    draw(cases, noise, args.output)
    print(f"picture: {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
