"""The default stack beside what a user would pick instead and the best figures in print, nine sets.

    S="--store results.sqlite --protocols ours"
    varprop bench --datasets yacht,boston,energy,concrete,wine_red,kin8nm,power_plant,naval \
        --methods stack,ngboost,catboost,quantiles,mc-dropout,deep-ensemble,linear,gp $S
    varprop bench --datasets protein --splits 5 --methods stack,ngboost,catboost,quantiles $S
    .venv/bin/python benchmarks/against_rivals.py --store results.sqlite

Reads the store and prints the means over the published splits. Differences to the stack are on the
splits that both have; a set counts as level where the stack's mean is within one standard error of
that difference. Rivals are as `varprop compare` has them; nothing of ours was chosen on these sets.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import pathlib

import numpy as np

import varprop
from varprop.bench.methods import METHODS
from varprop.bench.store import Store
from varprop.bench.tables import Average, latest, published

SETS = {
    "boston": "Boston",
    "concrete": "Concrete",
    "energy": "Energy",
    "kin8nm": "Kin8nm",
    "naval": "Naval",
    "power_plant": "Power Plant",
    "protein": "Protein",
    "wine_red": "Wine",
    "yacht": "Yacht",
}
OURS = "stack"


def by_split(rows: list[dict], score: str) -> dict[int, float]:
    """Return one score of each split."""
    return {row["split"]: row[score] for row in rows}


def shown(average: Average) -> str:
    """Return a mean with its standard error."""
    return f"{average.mean:.3f}" + ("" if math.isnan(average.se) else f" ± {average.se:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("results.sqlite"))
    options = parser.parse_args()
    with contextlib.closing(Store(options.store, create=False)) as store:
        groups = latest(store.rows())
    found = {(key[0], key[1]): rows for key, rows in groups.items()}
    rivals = [m for m in METHODS if m != OURS and any(key[1] == m for key in found)]
    print(f"varprop {varprop.__version__}, seed 0; NLL, coverage of the 90 % interval\n")
    print(f"| data | best in print | {METHODS[OURS].title} | its coverage |", end="")
    print(" | ".join(f" {METHODS[m].title}" for m in rivals) + " | splits |")
    print("|---|---|---|---|" + "---|" * len(rivals) + "---|")
    lowest = level = below = printed = 0
    for name, title in SETS.items():
        if (name, OURS) not in found:
            continue
        rows = found[name, OURS]
        nll = by_split(rows, "nll")
        ours = Average.of(nll.values())
        best = published()["best_one_layer"][name]
        below += ours.mean <= best["value"]
        printed += ours.mean - ours.se <= best["value"]
        behind, cells = [], []
        for rival in rivals:
            other = by_split(found.get((name, rival), []), "nll")
            both = sorted(nll.keys() & other.keys())
            if not both:
                cells.append("-")
                continue
            difference = Average.of(nll[split] - other[split] for split in both)
            cover = np.mean(list(by_split(found[name, rival], "coverage90").values()))
            average = Average.of(other[split] for split in both)
            few = "" if len(both) == len(nll) else f", {len(both)} splits"
            cells.append(f"{shown(average)} ({cover:.0%}{few})")
            behind.append((difference.mean, difference.se))
        lowest += all(mean <= 0 for mean, _ in behind)
        level += all(mean <= max(0.0, error) for mean, error in behind)
        cover = np.mean(list(by_split(rows, "coverage90").values()))
        print(
            f"| {title} | {best['value']} | {shown(ours)} | {cover:.0%} | "
            + " | ".join(cells)
            + f" | {len(nll)} |"
        )
    print(
        f"\nAt most the best in print on {below}, or within a standard error of ours on {printed}; "
        f"lowest of all run here on {lowest}, or within a standard error of the difference on "
        f"{level}, of {sum((name, OURS) in found for name in SETS)}."
    )


if __name__ == "__main__":
    main()
