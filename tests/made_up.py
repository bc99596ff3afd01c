"""Data sets of our own in the benchmark's registry: its tests then need nobody's files."""

import numpy as np

from varprop.bench import registry
from varprop.data.source import Data
from varprop.data.statistics import Scaling
from varprop.predictive.simple import LinearModel, constant_gaussian

N_ROWS, N_INPUTS, NOISE = 120, 2, 2.0


def numbers(n_targets=1):
    """Inputs (rows, 2) and targets (rows, n_targets): smooth, correlated, of known noise."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N_ROWS, N_INPUTS))
    signal = 10 * np.sin(2 * x[:, :1]) + 5 * x[:, 1:]
    # Uneven targets: the spread of few test rows differs from that of the training rows.
    y = 50 + signal * np.arange(1, n_targets + 1)
    return x, y + NOISE * rng.normal(size=y.shape)


def install(monkeypatch, folder):
    """Register `toy` (one target) and `toys` (two), and write their files into the folder."""
    for name, n_targets in (("toy", 1), ("toys", 2)):
        facts = {
            "title": name.title(),
            "what": "nothing",
            "n": N_ROWS,
            "d": N_INPUTS,
            "features": [f"x{i}" for i in range(N_INPUTS)],
            "targets": [f"y{i}" for i in range(n_targets)],
            "licence": "none",
            "citation": "none",
            "home": "nowhere",
            "notes": [],
            "splits": {"kind": "published", "n": 3},
            "download": {"format": "text", "urls": [f"http://nowhere.invalid/{name}.txt"]},
        }
        monkeypatch.setitem(registry._facts()["datasets"], name, facts)
        np.savetxt(folder / f"{name}.txt", np.hstack(numbers(n_targets)), fmt="%.17g")
    return str(folder)


def split(number):
    """Rows of the published kind of split, by its own words: permutations one after the other."""
    rng = np.random.RandomState(1)
    rows = [rng.permutation(N_ROWS) for _ in range(number + 1)][number]
    return rows[:108], rows[108:]


def flat(mean, std, n_rows):
    """The constant Gaussian of targets with this mean and standard deviation, shape (targets,)."""
    scaling = Scaling(np.zeros(1), np.ones(1), np.asarray(mean, float), np.asarray(std, float))
    return constant_gaussian(scaling, n_rows, squeeze=len(mean) == 1)


def line(X, y):
    """The linear model of these rows."""
    return LinearModel.fit(X, y, scaling=Scaling.of(Data(X, y)))
