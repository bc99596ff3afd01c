"""Are the model part and the noise part of a prediction what they are called? Truth is known here.

    python benchmarks/model_and_noise.py

Targets are made with a known function and a known noise that varies by a factor of four, and
`FAWNRegressor(objective="vi", likelihood="heteroscedastic", prior="ard")` is trained on more and
more of them. Per number of rows, as medians over seeds: how far the stated `noise_std` is from the
truth (median and 90 % quantile over inputs of the relative error, and its median with its sign);
the stated `model_std` (root mean square over inputs, and median) beside the true error of the mean
(root mean square); then the slopes of both against rows, log-log, which would be -0.5 for a model
of fixed size. The table is in docs/how-to/objective.md.
"""

import argparse
import warnings

import numpy as np

from varprop import FAWNRegressor


def true_mean(x):
    return np.sin(2 * x[:, 0]) + 0.5 * x[:, -1]


def true_std(x):
    """From 0.15 to 0.6."""
    return 0.3 * 2 ** np.sin(1.5 * x[:, -1])


def inputs(rng, n_rows, n_inputs):
    return rng.uniform(-2, 2, (n_rows, n_inputs))


def measured(n_rows, n_inputs, seed, options):
    """Train once; return what was stated and what is true, in numbers."""
    rng = np.random.default_rng([seed, n_inputs, n_rows])
    x = inputs(rng, n_rows, n_inputs)
    y = true_mean(x) + true_std(x) * rng.standard_normal(n_rows)
    model = FAWNRegressor(
        objective="vi", likelihood="heteroscedastic", prior="ard", random_state=seed, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 20,000 rows may end at the limit of steps
        model.fit(x, y)
    at = inputs(np.random.default_rng(99), 1000, n_inputs)
    dist = model.predict_dist(at)
    ratio = dist.noise_std / true_std(at)
    off = np.abs(ratio - 1)
    error = dist.mean - true_mean(at)
    return [
        np.median(off),
        np.quantile(off, 0.9),
        np.median(ratio) - 1,
        np.median(dist.model_std),
        np.sqrt(np.mean(dist.model_std**2)),
        np.sqrt(np.mean(error**2)),
        1.0 if model.trust_ is None else model.trust_,
    ]


def slope(rows, values):
    """Return the slope of log values, of shape (rows, seeds), on log rows, with its error."""
    at = np.repeat(np.log(rows), values.shape[1])
    at, of = at - at.mean(), np.log(values).ravel()
    found = at @ of / (at @ at)
    rest = of - of.mean() - found * at
    return found, np.sqrt(rest @ rest / (len(at) - 2) / (at @ at))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 600, 2000, 6000, 20000])
    parser.add_argument("--inputs", type=int, nargs="+", default=[2, 1, 3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--no-validation", action="store_true", help="networks alone")
    args = parser.parse_args()
    options = {"activation": args.activation, "n_members": args.members}
    if args.no_validation:
        options["validation"] = None
    print("| inputs | rows | noise off by | 90 % | median | model std | rms | true | trust |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n_inputs in args.inputs:
        found = []
        for n in args.rows:
            found.append([measured(n, n_inputs, seed, options) for seed in range(args.seeds)])
            off, most, bias, model, rms, true, trust = np.median(found[-1], axis=0)
            print(
                f"| {n_inputs} | {n:,} | {off:.1%} | {most:.0%} | {bias:+.1%} | "
                f"{model:.4f} | {rms:.4f} | {true:.4f} | {trust:.5f} |",
                flush=True,
            )
        if len(args.rows) > 1:
            values = np.moveaxis(np.array(found), -1, 0)
            for name, at in (("median model std", 3), ("model std, rms", 4), ("true error", 5)):
                tilt, error = slope(args.rows, values[at])
                print(f"{n_inputs} inputs, slope of {name}: {tilt:.2f} +- {error:.2f}")


if __name__ == "__main__":
    main()
