"""Inputs with errors on real data: what knowing their size is worth, and whether it is used right.

    VARPROP_DATA=folder .venv/bin/python benchmarks/input_errors.py

Networks are trained on rows as they are (`FAWNRegressor(validation=None)`, seed 0, on four fifths
of the *training* rows of the first published split, at most 2,000); of the other fifth the inputs
are spoiled. First by an error of known size, half a standard deviation of every column: it is
ignored, or given as `X_std` and propagated as if hidden units were independent, or to first order;
"sampled" draws 500 inputs. Then a fifth of all entries is missing: rows that miss one are dropped
(the score is then that of the complete ones), filled by the mean, by scikit-learn's
IterativeImputer, by the mean with the column's spread as `X_std`, or by what the other columns say
with the covariance that leaves as `X_cov`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import sys
import warnings

import numpy as np
from recipe_study import load
from sklearn.covariance import LedoitWolf
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from varprop import FAWNRegressor, metrics, nn
from varprop.predictive import Predictive


def independent(model: FAWNRegressor) -> FAWNRegressor:
    """Return the same weights, propagated as if units were independent."""
    other = FAWNRegressor(**model.get_params())
    other.__dict__.update(model.__dict__)
    other.members_ = [
        dataclasses.replace(m, network=nn.Sequential(m.network.layers, "independent"))
        for m in model.members_
    ]
    return other


def sampled(model: FAWNRegressor, X: np.ndarray, std: np.ndarray, n: int = 500) -> Predictive:
    """Return the moments of predictions for drawn inputs, as Gaussians."""
    rng = np.random.default_rng(0)
    draws = X + std * rng.normal(size=(n, *X.shape))
    dist = model.predict_dist(draws.reshape(-1, X.shape[1]))
    mean, var = dist.mean.reshape(n, -1), dist.var.reshape(n, -1)
    return Predictive.gaussian(mean.mean(axis=0), mean.var(axis=0) + var.mean(axis=0), 0.0)


def conditional(X: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fill in what is missing by what the rest of the row says, for Gaussian inputs."""
    filled, left = X.copy(), np.zeros((len(X), *cov.shape))
    for i, row in enumerate(X):
        gone = np.isnan(row)
        there = ~gone
        slope = np.linalg.solve(cov[np.ix_(there, there)], cov[np.ix_(there, gone)]).T
        filled[i, gone] = mean[gone] + slope @ (row[there] - mean[there])
        part = cov[np.ix_(gone, gone)] - slope @ cov[np.ix_(there, gone)]
        left[np.ix_([i], gone, gone)] = 0.5 * (part + part.T)
    return filled, left


def show(label: str, kind: str, y: np.ndarray, dist: Predictive, std: np.ndarray | None) -> None:
    ratio = ""
    if std is not None:
        ratio = "{:.2f} [{:.2f}, {:.2f}]".format(*np.quantile(dist.std / std, [0.5, 0.05, 0.95]))
    print(
        f"| {label} | {kind} | {metrics.nll(y, dist):.3f} | "
        f"{metrics.interval_coverage(y, dist):.0%} | {ratio} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=["boston", "concrete", "energy", "kin8nm"])
    parser.add_argument("--depths", nargs="*", type=int, default=[1, 2])
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    warnings.simplefilter("ignore")
    print("| data, hidden layers | inputs | NLL | coverage of 90 % | stated / sampled std |")
    print("|---|---|---|---|---|")
    for name in options.sets:
        x, y, train = load(pathlib.Path(folder), name)
        rng = np.random.default_rng(0)
        rows = rng.permutation(train[0])[:2500]
        held, rows = np.split(rows, [len(rows) // 5])
        scale = x[rows].std(axis=0)
        used = scale > 0
        x, scale = x[:, used], scale[used]
        target, clean = y[held, 0], x[held]
        std = 0.5 * scale
        noisy = clean + std * rng.normal(size=clean.shape)
        missing = rng.uniform(size=clean.shape) < 0.2
        missing[missing.all(axis=1), 0] = False
        gone = np.where(missing, np.nan, clean)
        known = LedoitWolf().fit(x[rows] / scale)
        mean, cov = known.location_ * scale, known.covariance_ * np.outer(scale, scale)
        filled, left = conditional(gone, mean, cov)
        iterative = IterativeImputer(random_state=0, max_iter=20).fit(x[rows]).transform(gone)
        whole = ~missing.any(axis=1)
        for depth in options.depths:
            model = FAWNRegressor((50,) * depth, validation=None, random_state=0)
            model.fit(x[rows], y[rows, 0])
            label = f"{name}, {depth}"
            show(label, "as they are", target, model.predict_dist(clean), None)
            truth = sampled(model, noisy, std)
            show(label, "error, ignored", target, model.predict_dist(noisy), truth.std)
            given = independent(model).predict_dist(noisy, std)
            show(label, "error, independent", target, given, truth.std)
            show(label, "error, first order", target, model.predict_dist(noisy, std), truth.std)
            show(label, "error, sampled", target, truth, None)
            if whole.sum() > 5:
                kept = model.predict_dist(clean[whole])
                share = f"missing, rows dropped ({1 - whole.mean():.0%})"
                show(label, share, target[whole], kept, None)
            at_mean = np.where(missing, mean, clean)
            spread = np.where(missing, np.sqrt(np.diag(cov)), 0)
            show(label, "missing, mean", target, model.predict_dist(at_mean), None)
            show(label, "missing, IterativeImputer", target, model.predict_dist(iterative), None)
            show(
                label, "missing, mean and X_std", target, model.predict_dist(at_mean, spread), None
            )
            dist = model.predict_dist(filled, X_cov=left)
            show(label, "missing, conditional and X_cov", target, dist, None)


if __name__ == "__main__":
    main()
