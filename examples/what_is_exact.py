"""Which networks are propagated exactly, and how far off are the others? `varprop.check` says.

    python examples/what_is_exact.py

The same network of 8 inputs and 50 hidden units is changed in one respect at a time. "exact" marks
the cases that theory says are exact: those must agree with sampling, and the exit code says whether
they do. The others are approximations; they may pass or fail, and `std ratio` (propagated / sampled
standard deviation, over five inputs) says how good they are; `independent` is that of the paper's
propagation.
"""

import argparse
import sys
from functools import partial

import jax

import varprop
from varprop import Gaussian, nn


def bernoulli(key, shape):
    """Binary weights of the usual size for rectifiers, and small biases."""
    return nn.BernoulliWeights.init(key, shape, scale=8**0.5 if len(shape) == 2 else 0.1)


# description: is it exact, options of `mlp`, standard deviation of the input
CASES = {
    "one hidden layer, rectifiers": (True, {}, 0.0),
    "... 3 outputs with covariance": (True, {"joint": True}, 0.0),
    "... dropout 0.2 of hidden units": (True, {"hidden_noise": nn.Dropout(0.2)}, 0.0),
    "... tanh": (False, {"activation": nn.Tanh()}, 0.0),
    "... SiLU by quadrature": (False, {"activation": nn.SiLU()}, 0.0),
    "... Bernoulli weights": (False, {"weights": bernoulli}, 0.0),
    "... DropConnect 0.2": (False, {"weight_noise": nn.DropConnect(0.2)}, 0.0),
    "... dropout 0.2 of inputs": (False, {"input_noise": nn.Dropout(0.2)}, 0.0),
    "... input known up to 0.1": (False, {}, 0.1),
    "... input known up to 0.3": (False, {}, 0.3),
    "two hidden layers": (False, {"hidden_layer_sizes": (50, 50)}, 0.0),
    "three hidden layers": (False, {"hidden_layer_sizes": (50, 50, 50)}, 0.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=100_000, help="plain networks per case")
    parser.add_argument("--exact-only", action="store_true", help="leave out the approximations")
    args = parser.parse_args()

    x_key, net_key, check_key = jax.random.split(jax.random.key(args.seed), 3)
    x = jax.random.normal(x_key, (5, 8))
    failures = 0
    print(
        f"{'network':<32} {'exact':<6} {'check':<7} {'worst |z|':>9}   "
        f"{'std ratio':<16}   independent"
    )
    for name, (exact, options, x_std) in CASES.items():
        if args.exact_only and not exact:
            continue
        options = {"weights": partial(nn.GaussianWeights.init, std=0.1)} | options
        net = nn.mlp(8, 3 if "joint" in options else 1, key=net_key, **options)
        inputs = Gaussian(x, x_std**2) if x_std else Gaussian(x)
        report = varprop.check(net, inputs, check_key, n_samples=args.samples)
        failures += exact and not report.passed
        ratio, paper = report.std_ratio, report.other_ratios["independent"]
        print(
            f"{name:<32} {'yes' if exact else 'no':<6} {'passes' if report.passed else 'fails':<7} "
            f"{report.worst:>9.1f}   {ratio.min():.3f} to {ratio.max():.3f}   "
            f"{paper.min():.3f} to {paper.max():.3f}",
            flush=True,
        )
    print(f"{args.samples:,} sampled networks each; |z| up to {report.threshold:.1f} passes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
