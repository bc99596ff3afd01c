"""How far off is the propagated standard deviation in deeper networks, by what propagation?

With one hidden layer, a known input and Gaussian weights it is exact. From the second hidden layer
on the units of a layer are correlated, because they share the random units below them. The paper's
propagation ignores that ("independent"), the default follows it to first order, and a reference
carries all covariances along ("second order"). This script measures propagated / sampled standard
deviation for one to four hidden layers of 50 rectifiers over random networks, prints a table and
draws it.

    python examples/depth_bias.py --output depth_bias.png

Families of networks, from harmless to the worst case we know:

- Bernoulli: binary weights with random probabilities;
- even noise: Gaussian weights, means from N(0, 2 / fan-in), standard deviations a quarter of
  the means';
- noise below: the same, but a half in the first layer and a twentieth in the later ones, so that
  most of the output's variance comes up through the network instead of arising in its last layer;
- noise below, aligned: the same with the means' absolute values, so that all units move together;
- noisy input: even noise of a twentieth and an input known up to a standard deviation of 0.3. All
  hidden units share that noise, so this one is biased with a single hidden layer already.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import Gaussian, nn

N_INPUTS, N_ROWS, WIDTH = 8, 10, 50
WAYS = ("independent", "first-order", "second-order")


def gaussian(key, shape, *, first: float, later: float, aligned: bool = False):
    """Gaussian weights whose standard deviations are a fraction of the size of their means."""
    if len(shape) == 1:
        return nn.GaussianWeights(0.1 * jax.random.normal(key, shape), 0.1 * later)
    mean = (2 / shape[1]) ** 0.5 * jax.random.normal(key, shape)
    if aligned:
        mean = jnp.abs(mean) / jnp.sum(jnp.abs(mean), axis=1, keepdims=True)
    fraction = first if shape[1] == N_INPUTS else later
    return nn.GaussianWeights(mean, fraction * jnp.sqrt(jnp.mean(mean**2)))


def bernoulli(key, shape):
    return nn.BernoulliWeights.init(key, shape, scale=8**0.5 if len(shape) == 2 else 0.1)


# name: how weights are made, standard deviation of the input, colour
FAMILIES = {
    "Bernoulli": (bernoulli, 0.0, "tab:green"),
    "even noise": (partial(gaussian, first=0.25, later=0.25), 0.0, "tab:blue"),
    "noise below": (partial(gaussian, first=0.5, later=0.05), 0.0, "tab:orange"),
    "noise below, aligned": (
        partial(gaussian, first=0.5, later=0.05, aligned=True),
        0.0,
        "tab:red",
    ),
    "noisy input": (partial(gaussian, first=0.05, later=0.05), 0.3, "tab:purple"),
}


@eqx.filter_jit
def std_ratios(net, x, keys):
    """Propagated over sampled standard deviation, for each propagation one per row of x."""

    def one(key):
        net_key, x_key = jax.random.split(key)
        return net.sample(net_key)(x.sample(x_key))

    std = jax.lax.map(one, keys, batch_size=500)[..., 0].std(axis=0, ddof=1)
    found = [nn.Sequential(net.layers, name).moments(x).var[:, 0] for name in WAYS]
    return jnp.sqrt(jnp.stack(found)) / std


def measure(
    weights, x_std: float, depth: int, n_nets: int, n_samples: int, seed: int
) -> np.ndarray:
    """Ratios of shape (ways, networks, rows)."""
    ratios = []
    for key in jax.random.split(jax.random.fold_in(jax.random.key(seed), depth), n_nets):
        net_key, x_key, draw_key = jax.random.split(key, 3)
        net = nn.mlp(N_INPUTS, 1, key=net_key, hidden_layer_sizes=(WIDTH,) * depth, weights=weights)
        x = Gaussian(jax.random.normal(x_key, (N_ROWS, N_INPUTS)), x_std**2 if x_std else None)
        ratios.append(std_ratios(net, x, jax.random.split(draw_key, n_samples)))
    return np.asarray(ratios).swapaxes(0, 1)


def draw(results, n_samples: int, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    rng = np.random.default_rng(0)
    families, depths = (list(dict.fromkeys(part)) for part in zip(*results, strict=True))
    noise = 2 / np.sqrt(2 * n_samples)
    for way, ax in enumerate(axes):
        ax.axhline(1.0, color="0.3", lw=1)
        label = "sampling error (± 2 std. errors)"
        ax.axhspan(1 - noise, 1 + noise, color="0.9", lw=0, label=label)
        for i, name in enumerate(families):
            color = FAMILIES[name][2]
            for depth in depths:
                ratios = results[name, depth][way].ravel()
                at = depth + 0.17 * (i - (len(families) - 1) / 2)
                beside = at + rng.uniform(-0.05, 0.05, ratios.size)
                ax.plot(beside, ratios, ".", ms=3, alpha=0.35, mew=0, color=color)
                label = name if depth == depths[0] else None
                middle = [np.median(ratios)] * 2
                ax.plot([at - 0.075, at + 0.075], middle, color=color, lw=3, label=label)
        ax.set_xticks(depths)
        ax.set(xlabel=f"hidden layers (of {WIDTH} rectifiers)", yscale="log", ylim=(0.14, 2.3))
        ticks = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2)
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    axes[0].set_ylabel("propagated / sampled std. dev. (bar: median)")
    axes[0].set_title("units as independent, the paper's", fontsize=11)
    axes[1].set_title("first order, the default", fontsize=11)
    axes[1].legend(loc="lower left", frameon=False, fontsize=9, bbox_to_anchor=(0.0, 0.02))
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("depth_bias.png"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--networks", type=int, default=10, help="networks per family and depth")
    parser.add_argument("--samples", type=int, default=5000, help="plain networks per network")
    args = parser.parse_args()

    print(f"{'weights':<21} {'hidden layers':>13}" + "".join(f" {way:>22}" for way in WAYS))
    results = {}
    for name in args.families:
        weights, x_std, _ = FAMILIES[name]
        for depth in args.depths:
            ratios = measure(weights, x_std, depth, args.networks, args.samples, args.seed)
            results[name, depth] = ratios
            columns = [
                "{:>8.3f} {:>6.3f} {:>6.3f}".format(*np.quantile(part, [0.5, 0.05, 0.95]))
                for part in ratios
            ]
            print(f"{name:<21} {depth:>13} " + " ".join(columns), flush=True)
    print(
        "median, 5 % and 95 % of "
        f"propagated / sampled standard deviation over {args.networks} networks x {N_ROWS} inputs; "
        f"one standard error of each ratio is about {1 / np.sqrt(2 * args.samples):.3f}"
    )
    draw(results, args.samples, args.output)
    print(f"picture: {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
