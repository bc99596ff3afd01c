"""Which of several starts predicts best: the one of lowest training objective, or just the first?

Uses training rows of the published splits only: a tenth of them is set aside and predicted. Needs
the data (VARPROP_DATA). Prints the table in docs/training.md.
"""

import argparse
import dataclasses

import jax
import numpy as np

from varprop import ROPD, VI, Data, Recipe, metrics, regression_model
from varprop.bench.registry import split_rows, task
from varprop.bench.sources import load
from varprop.data.statistics import Statistics
from varprop.training.engine import fit_many, restart_lanes

# Lanes 0 and 2 have the warm-up, 1 and 3 have not; the one with the lowest objective is kept.
RULES = {
    "first": [0],
    "of 2, one warmed up": [0, 1],
    "of 4, two warmed up": [0, 1, 2, 3],
    "of 2, both warmed up": [0, 2],
    "of 2, none warmed up": [1, 3],
}


def study(name, objective, n_splits):
    data = task(name)
    values = load(data.dataset).values
    x, y = values[:, : data.dataset.d], values[:, [data.dataset.d]]
    scores = []
    for split in range(n_splits):
        rows, _ = split_rows(data.dataset, split)
        border = int(0.9 * len(rows))
        train, aside = rows[:border], rows[border:]
        rows_kept = Data(x[train], y[train])
        statistics = Statistics.of(rows_kept)
        floor = statistics.noise_floor / statistics.scaling.y_scale

        def init(key, floor=floor):
            model = regression_model(x.shape[1], 1, key=key)
            return dataclasses.replace(model, likelihood=model.likelihood.floored(floor))

        key = jax.random.fold_in(jax.random.key(0), split)
        lanes = restart_lanes(init, key=key, n_restarts=4, recipe=Recipe())
        ends = []
        for fit in fit_many(lanes, rows_kept, objective, statistics=statistics):
            ends.append((fit.loss, metrics.nll(y[aside], fit.predictive(x[aside]))))
        scores.append([min(ends[lane] for lane in rule)[1] for rule in RULES.values()])
    return np.mean(scores, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="concrete,boston,energy,yacht")
    parser.add_argument("--splits", type=int, default=6)
    options = parser.parse_args()
    print("| data, objective |", " | ".join(RULES), "|")
    for name in options.datasets.split(","):
        for objective in (ROPD(), VI()):
            found = study(name, objective, options.splits)
            print(f"| {name} {type(objective).__name__} |", *(f"{v:.3f} |" for v in found))


if __name__ == "__main__":
    main()
