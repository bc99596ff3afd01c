"""Two targets that go wrong together: the covariance of outputs, and what one says of the other.

    python examples/correlated_outputs.py --output correlated_outputs.png

Both targets follow a curve of x and share a disturbance that x does not tell. With
`output_covariance=True` (the paper's Co-FAWN) the network predicts their covariance as well, so
that seeing one target narrows the prediction of the other.
"""

import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import FAWNRegressor, metrics


def make_rows(rng, n):
    x = rng.uniform(-3, 3, (n, 1))
    shared = 0.5 * rng.standard_normal(n)
    own = 0.2 * rng.standard_normal((n, 2))
    return x, np.column_stack([np.sin(x[:, 0]) + shared, np.cos(x[:, 0]) - shared]) + own


def ellipse(cov, n_std):
    """Points of the ellipse that a covariance of two outputs describes."""
    values, vectors = np.linalg.eigh(cov)
    angle = np.linspace(0, 2 * np.pi, 100)
    return n_std * vectors @ (np.sqrt(values)[:, None] * np.stack([np.cos(angle), np.sin(angle)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="correlated_outputs.png")
    parser.add_argument("--max-iter", type=int, default=3000, help="epochs of training")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = make_rows(rng, 400), make_rows(rng, 1000)
    dist = {}
    for joint in (False, True):
        model = FAWNRegressor(output_covariance=joint, max_iter=args.max_iter, random_state=0)
        dist[joint] = model.fit(X, y).predict_dist(X_test)
        print(
            f"output_covariance={joint!s:<5}  joint NLL {metrics.nll(y_test, dist[joint]):6.3f}"
            f"  RMSE {metrics.rmse(y_test, dist[joint]):.3f}"
        )
    residuals = y_test - dist[True].mean
    cov = dist[True].output_cov
    correlation = cov[:, 0, 1] / np.sqrt(cov[:, 0, 0] * cov[:, 1, 1])
    print(
        f"correlation of the errors {np.corrcoef(residuals.T)[0, 1]:.2f}, "
        f"predicted {correlation.mean():.2f} (mean over rows)"
    )
    second = dist[True].marginal([1])
    given = dist[True].conditional({0: y_test[:, 0]})
    for name, part in (("alone", second), ("given the first", given)):
        error = metrics.rmse(y_test[:, 1:], part)
        print(f"second target {name:<16} stated std {part.std.mean():.3f}, RMSE {error:.3f}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(*residuals.T, ".", color="0.6", markersize=3)
    for joint, style in ((False, "--"), (True, "-")):
        shape = np.mean([ellipse(c, 2) for c in dist[joint].output_cov], axis=0)
        left.plot(*shape, style, label=f"output_covariance={joint}")
    left.set(title="errors, and two standard deviations", aspect="equal")
    left.set(xlabel="first target", ylabel="second target")
    left.legend(frameon=False, loc="upper right")
    order = np.argsort(X_test[:, 0])
    for name, part in (("alone", second), ("given the first target", given)):
        right.plot(X_test[order, 0], part.std.reshape(-1)[order], label=name)
    right.set(title="stated std of the second target", xlabel="x", ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
