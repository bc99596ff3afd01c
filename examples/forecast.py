"""Several steps ahead: the predicted distribution goes back into the network as an uncertain input.

    python examples/forecast.py --output forecast.png

A recurrent network learns one step of a noisy seasonal series from the last twelve values. To look
further ahead, each prediction becomes the next value of the sequence, with its standard deviation
as `X_std`. Errors of one step go into the next ones that way; that they are errors of the same
network, and so have something in common, does not. The script draws networks and noise as well,
follows each of them to the end, and compares.
"""

import argparse

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import Recipe, SequenceRegressor

WINDOW, HORIZON = 12, 24


def simulated(rng, n):
    """A wave of period 12 that forgets its phase slowly, and noise on every step."""
    angle = np.cumsum(2 * np.pi / 12 + 0.12 * rng.standard_normal(n))
    return 20 + 5 * np.sin(angle) + 0.5 * rng.standard_normal(n)


def propagated(model, start, *, uncertain=True):
    """Mean and standard deviation of every step ahead; as if predictions were true otherwise."""
    values, stds, found = list(start), [0.0] * WINDOW, []
    for _ in range(HORIZON):
        X = np.array(values[-WINDOW:])[None, :, None]
        errors = np.array(stds[-WINDOW:])[None, :, None]
        dist = model.predict_dist(X, X_std=errors if uncertain else 0 * errors)
        values.append(dist.mean[0])
        stds.append(dist.std[0])
        found.append((dist.mean[0], dist.std[0]))
    return np.array(found).T


def sampled(model, start, n_draws):
    """Return paths of drawn networks with drawn noise, shape (draws, steps ahead)."""
    member, scaling = jax.tree.map(jnp.asarray, model.members_[0]), model.scaling_
    noise = float(member.likelihood.noise_var[0]) ** 0.5
    shift, scale = scaling.x_shift[0], scaling.x_scale[0]

    def path(key):
        network_key, noise_key = jax.random.split(key)
        plain = member.network.sample(network_key)

        def step(window, draw):
            y = (plain(window[None])[0, 0] + noise * draw) * scaling.y_scale[0] + scaling.y_shift[0]
            return jnp.append(window[1:], (y - shift) / scale), y

        first = jnp.asarray((start - shift) / scale, jnp.float32)
        return jax.lax.scan(step, first, jax.random.normal(noise_key, (HORIZON,)))[1]

    return np.asarray(jax.jit(jax.vmap(path))(jax.random.split(jax.random.key(1), n_draws)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="forecast.png")
    parser.add_argument("--steps", type=int, default=1500, help="of training")
    parser.add_argument("--draws", type=int, default=2000, help="paths to compare with")
    args = parser.parse_args()

    series = simulated(np.random.default_rng(0), 700)
    past, future = series[:-HORIZON], series[-HORIZON:]
    windows = np.lib.stride_tricks.sliding_window_view(past, WINDOW + 1)
    third = args.steps // 3
    model = SequenceRegressor(
        cell="rnn",
        units=8,
        recipe=Recipe(max_steps=args.steps, kl_warmup=third, cooldown=third, stop=None),
        random_state=0,
    ).fit(windows[:, :-1, None], windows[:, -1])

    start = past[-WINDOW:]
    mean, std = propagated(model, start)
    narrow = propagated(model, start, uncertain=False)[1]
    paths = sampled(model, start, args.draws)
    print("steps ahead   truth    mean   std   sampled mean   sampled std   std / sampled")
    for ahead in (1, 2, 3, 6, 12, 18, 24):
        drawn = paths[:, ahead - 1]
        print(
            f"{ahead:11} {future[ahead - 1]:7.2f} {mean[ahead - 1]:7.2f} {std[ahead - 1]:5.2f}"
            f" {drawn.mean():14.2f} {drawn.std():13.2f} {std[ahead - 1] / drawn.std():15.2f}"
        )

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    ahead = np.arange(1, HORIZON + 1)
    left.plot(np.arange(-35, 1), past[-36:], color="0.3", label="observed")
    left.plot(ahead, future, ".", color="0.3", label="what came")
    left.plot(ahead, paths[:12].T, color="C1", alpha=0.35, linewidth=0.8)
    left.plot([], [], color="C1", alpha=0.6, label="drawn networks")
    left.plot(ahead, mean, color="C0", label="forecast")
    left.fill_between(ahead, mean - 1.645 * std, mean + 1.645 * std, alpha=0.2, label="90 %")
    left.set(title="distributions fed back", xlabel="steps ahead")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    right.plot(ahead, std, label="propagated")
    right.plot(ahead, paths.std(axis=0), "--", label=f"{args.draws:,} drawn paths")
    right.plot(ahead, narrow, color="0.6", label="as if predictions were true")
    right.set(title="standard deviation", xlabel="steps ahead", ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
