"""Classes: log-loss, accuracy, Brier score and calibration beside scikit-learn's classifiers.

Eight tables, the same splits for all (a fifth of the rows is for testing), all at their defaults:
inputs standardized for those that need it, text as one-hot columns (of at most 60 categories).
Tables of more than 5,000 rows have three splits, and all at most --rows training rows. Cells are
kept in --store: Ctrl-C costs nothing.

    VARPROP_DATA=... python benchmarks/classification.py --store FILE [--splits 3] [--only digits]
    VARPROP_DATA=... python benchmarks/classification.py --store FILE --show
    VARPROP_DATA=... python benchmarks/classification.py --store FILE --outside

--outside asks whether the epistemic part tells rows of classes that training has not seen: trained
on half of the digits (0 to 4) and letters (A to M), tested on all; and trained on the pen's digits,
tested on these and on letters (both have 16 whole numbers; letters' are brought to digits' range).
"""

import argparse
import json
import os
import pathlib
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import varprop
from varprop import FAWNClassifier, StackedClassifier, class_metrics
from varprop.predictive import Categories

TABLES = ["cancer", "digits", "churn", "satimage", "pendigits", "magic", "letter", "adult"]


def table(name):
    """Return inputs and labels."""
    if name in ("digits", "cancer"):
        return (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    folder = pathlib.Path(os.environ["VARPROP_DATA"]) / "extra"
    frame = pd.read_parquet(folder / f"{name}.parquet")
    y = frame.pop("target").to_numpy()
    text = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    frame = frame.drop(columns=[c for c in text if frame[c].nunique() > 60])
    return pd.get_dummies(frame).to_numpy(float), y


def scaled(model):
    return make_pipeline(StandardScaler(), model)


def ensemble(x, y, seed):
    """Five plain networks, their probabilities averaged."""
    members = [scaled(MLPClassifier(random_state=5 * seed + k)).fit(x, y) for k in range(5)]
    return lambda new: np.mean([m.predict_proba(new) for m in members], axis=0)


METHODS = {
    "StackedClassifier": lambda x, y, s: StackedClassifier(random_state=s).fit(x, y).predict_proba,
    "FAWNClassifier": lambda x, y, s: FAWNClassifier(random_state=s).fit(x, y).predict_proba,
    "logistic regression": lambda x, y, s: scaled(LogisticRegression()).fit(x, y).predict_proba,
    "MLPClassifier": lambda x, y, s: scaled(MLPClassifier(random_state=s)).fit(x, y).predict_proba,
    "five MLPClassifiers": ensemble,
    "HistGradientBoosting": lambda x, y, s: (
        HistGradientBoostingClassifier(random_state=s).fit(x, y).predict_proba
    ),
    "Gaussian process": lambda x, y, s: (
        scaled(GaussianProcessClassifier(random_state=s)).fit(x, y).predict_proba
    ),
}
#: What a user meets first.
OURS = "StackedClassifier"
SCORES = {
    "log-loss": class_metrics.log_loss,
    "accuracy": class_metrics.accuracy,
    "Brier": class_metrics.brier,
    "ECE": class_metrics.calibration_error,
    "debiased": class_metrics.calibration_error_debiased,
}


def parts(y, seed, most):
    """Return numbers of training and test rows."""
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    return np.random.default_rng(seed).permutation(train)[:most], test


def cell(name, method, seed, most):
    x, y = table(name)
    train, test = parts(y, seed, most)
    begin = time.perf_counter()
    proba = METHODS[method](x[train], y[train], seed)(x[test])
    seconds = time.perf_counter() - begin
    # What rounds to 0 is not what a method means.
    proba = np.clip(np.nan_to_num(proba), 1e-15, None)
    found = Categories(proba / proba.sum(axis=1, keepdims=True), classes=np.unique(y))
    scores = {score: function(y[test], found) for score, function in SCORES.items()}
    key = {"table": name, "method": method, "split": seed, "rows": len(train)}
    return key | scores | {"seconds": seconds}


def outside(name, seed, most):
    """Areas under the ROC curve by which rows of unknown classes are told from known ones."""
    x, y = table(name)
    labels = np.unique(y)
    known = labels if name == "pendigits" else labels[: len(labels) // 2]
    train, test = parts(y, seed, len(y))
    train = train[np.isin(y[train], known)][:most]
    rows, new = x[test], ~np.isin(y[test], known)
    if name == "pendigits":
        letters, labels = table("letter")
        letters = letters[parts(labels, seed, len(labels))[1]] * (x.max() / letters.max())
        rows, new = (
            np.concatenate([rows, letters]),
            np.arange(len(rows) + len(letters)) >= len(rows),
        )
    model = StackedClassifier(random_state=seed).fit(x[train], y[train])
    dist = model.predict_dist(rows)
    plain = scaled(MLPClassifier(random_state=seed)).fit(x[train], y[train])
    five = ensemble(x[train], y[train], seed)
    by = {
        "epistemic part": dist.epistemic,
        "entropy": dist.entropy(),
        "1 - largest probability": 1 - dist.proba.max(axis=1),
        "plain network: 1 - largest probability": 1 - plain.predict_proba(rows).max(axis=1),
        "five plain networks: 1 - largest probability": 1 - five(rows).max(axis=1),
    }
    key = {"table": name, "outside": True, "split": seed, "rows": len(train)}
    return key | {how: roc_auc_score(new, score) for how, score in by.items()}


def show(rows):
    """Print tables of means over splits; what is not the lowest, or near it, in bold."""
    frame = pd.DataFrame([row for row in rows if "method" in row])
    methods = [method for method in METHODS if (frame.method == method).any()]
    for score, near in (("log-loss", 0.01), ("ECE", 0.005), ("Brier", 0.01), ("accuracy", 0.01)):
        print(f"\n{score}\n\n| table | splits | " + " | ".join(methods) + " |")
        print("|---" * (2 + len(methods)) + "|")
        met = done = 0
        for name in TABLES:
            here = frame[frame.table == name]
            ours = set(here[here.method == OURS].split)
            if not ours:
                continue
            means = here[here.split.isin(ours)].groupby("method")[score].mean()
            best = means.max() if score == "accuracy" else means.min()
            good = abs(means[OURS] - best) <= near
            met, done = met + good, done + 1
            cells = []
            for method in methods:
                text = f"{means[method]:.3f}" if method in means else ""
                cells.append(f"**{text}**" if method == OURS and not good else text)
            print(f"| {name} | {len(ours)} | " + " | ".join(cells) + " |")
        print(f"\n{OURS} best or within {near} on {met} of {done}.")
    far = pd.DataFrame([row for row in rows if "outside" in row])
    if len(far):
        print("\nunknown classes\n")
        means = far.drop(columns=["outside", "split", "rows"]).groupby("table").mean().T
        print("| told apart by | " + " | ".join(means.columns) + " |")
        print("|---" * (1 + len(means.columns)) + "|")
        for how, values in means.iterrows():
            print(f"| {how} | " + " | ".join(f"{v:.3f}" for v in values) + " |")


def main():
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=TABLES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--outside", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    varprop.use_one_thread()
    rows = []
    if options.store.exists():
        rows = [json.loads(line) for line in options.store.read_text().splitlines()]

    def keep(row):
        rows.append(row)
        with options.store.open("a") as file:
            print(json.dumps(row), file=file)

    done = {(r["table"], r.get("method", "outside"), r["split"]) for r in rows}
    if options.show:
        return show(rows)
    if options.outside:
        for name in ("digits", "letter", "pendigits"):
            for split in range(options.splits):
                if (name, "outside", split) not in done:
                    keep(outside(name, split, options.rows))
        return show(rows)
    for split in range(options.splits):
        for name in options.only:
            large = name in ("adult", "letter", "magic", "pendigits", "satimage")
            for method in options.methods:
                if (name, method, split) in done or (large and split >= 3):
                    continue
                if (
                    method == "Gaussian process" and name != "cancer"
                ):  # others have more than 1,000 rows
                    continue
                keep(cell(name, method, split, options.rows))
    show(rows)


if __name__ == "__main__":
    main()
