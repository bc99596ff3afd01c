"""The benchmark's numbers are the estimator's: rows, fits and scores worked out here again."""

import dataclasses
import json
import zlib

import numpy as np
import pytest
from scipy import special, stats

from made_up import install, numbers, split
from varprop import FAWNRegressor, Recipe, StackedRegressor, StopRule
from varprop.baselines import PBPRegressor
from varprop.baselines.boosting import CatBoost, NGBoost
from varprop.baselines.gp import GaussianProcess
from varprop.baselines.linear import Linear
from varprop.baselines.networks import DeepEnsemble, MCDropout
from varprop.baselines.quantiles import QuantileBoosting
from varprop.bench import cells as bench_cells
from varprop.bench.cells import plan, run_cell
from varprop.bench.methods import METHODS

pytestmark = pytest.mark.usefixtures("as_users_run_it")

SPLIT = 1
# Lengths do not matter here; that the two starts of `ours` end differently does.
SHORT = {"kl_warmup": 20, "cooldown": 10, "max_steps": 60}
PAPER = {"recipe": Recipe.paper().replace(**SHORT), "n_restarts": 1, "validation": None}
OURS = {"recipe": Recipe(alternate=False, **SHORT), "n_restarts": 2, "validation": None}
#: What a method is, in words that anyone can write.
NETWORK = {
    "fawn-vi": {"objective": "vi"},
    "fawn-ropd": {},
    "fawn-bern": {"weights": "bernoulli"},
    "co-fawn": {"output_covariance": True},
    "vi": {"objective": "sampled-vi"},
}
FAWN = {
    # A protocol is the same for every method, and each compiles a program: one is enough.
    ("fawn-vi", "paper"): PAPER | {"objective": "vi"},
    **{(name, "ours"): OURS | options for name, options in NETWORK.items()},
    ("fawn-ropd-5", "ours"): OURS | {"n_members": 5, "n_restarts": 1},
}
#: The others, made cheap: class, the method's own arguments, what is changed.
OTHERS = {
    "pbp": (PBPRegressor, {"hidden_layer_sizes": (50,)}, {"n_epochs": 2}),
    "gp": (GaussianProcess, {}, {"n_restarts": 0}),
    "ngboost": (NGBoost, {"learning_rate": 0.01}, {"max_trees": 20}),
    "catboost": (CatBoost, {}, {"max_trees": 20}),
    "linear": (Linear, {}, {}),
    "quantiles": (QuantileBoosting, {"learning_rate": 0.1}, {"max_trees": 5}),
    "mc-dropout": (MCDropout, {"batch_size": 32}, {"n_epochs": 3, "n_samples": 10}),
    "deep-ensemble": (DeepEnsemble, {"batch_size": 100, "n_members": 5}, {"n_epochs": 3}),
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    bench_cells._numbers.cache_clear()
    yield install(monkeypatch, tmp_path)
    bench_cells._numbers.cache_clear()


@pytest.fixture
def scored(monkeypatch):
    """What the benchmark scored: targets, prediction and scale."""
    seen = []
    scores = bench_cells.scores

    def spy(*arguments):
        seen.append(arguments)
        return scores(*arguments)

    monkeypatch.setattr(bench_cells, "scores", spy)
    return seen


def changed(cell, **changes):
    """The cell with some settings changed; those of a recipe go into the recipe."""
    settings = json.loads(cell.settings)
    if "recipe" in settings:
        settings["recipe"] |= changes
    else:
        settings |= changes
    return dataclasses.replace(cell, settings=json.dumps(settings))


def run_one(method, protocol, task, folder, changes):
    """A cell's result, the seed it must have had, and the rows of its split."""
    planned = plan([task], [method], protocols=[protocol], n_splits=SPLIT + 1, data_dir=folder)
    (cell,) = [cell for cell in planned.cells if cell.split == SPLIT]
    found = run_cell(changed(cell, **changes), folder)
    x, y = numbers(2 if task == "toys" else 1)
    train, test = split(SPLIT)
    seed = zlib.crc32(f"{task}/{SPLIT}/0".encode()) % 2**31
    return found, seed, x, (y if task == "toys" else y[:, 0]), train, test


def nll_by_scipy(prediction, y):
    """Per row, joint over outputs; a mixture's members one by one."""
    members = zip(prediction.member_mean, prediction.member_model, strict=True)
    y = y.reshape(len(y), -1)
    logs = []
    for (mean, model), noise in zip(members, prediction.member_noise, strict=True):
        noise = np.broadcast_to(noise, mean.shape)
        if model.ndim == 2:
            logs.append(stats.norm(mean, np.sqrt(model + noise)).logpdf(y).sum(axis=1))
        else:
            rows = zip(mean, model, noise, y, strict=True)
            logs.append(
                [stats.multivariate_normal(m, c + np.diag(n)).logpdf(t) for m, c, n, t in rows]
            )
    return -np.mean(special.logsumexp(logs, axis=0, b=prediction.weights))


def check(found, scored, by_hand, y, train, test):
    """Predictions to the bit, and scores by SciPy's densities."""
    ((targets, prediction, _),) = scored
    np.testing.assert_array_equal(targets, y[test])
    np.testing.assert_array_equal(prediction.mean, by_hand.mean)
    np.testing.assert_array_equal(prediction.std, by_hand.std)
    nll = nll_by_scipy(by_hand, y[test])
    assert found["nll"] == pytest.approx(nll, rel=1e-9)
    error = np.sqrt(np.mean((by_hand.mean - y[test]) ** 2, axis=0))
    assert found["rmse"] == pytest.approx(np.mean(error), rel=1e-9)
    # The units are those of the training rows; the test rows' own spread is another.
    scale = np.std(y[train], axis=0)
    assert np.all(np.abs(np.std(y[test], axis=0) / scale - 1) > 0.01)
    assert found["nll_standardized"] == pytest.approx(nll - np.log(scale).sum(), rel=1e-9)
    assert found["rmse_standardized"] == pytest.approx(np.mean(error / scale), rel=1e-9)
    assert (found["n_train"], found["n_test"]) == (108, 12)


@pytest.mark.parametrize(("method", "protocol"), FAWN, ids=["-".join(key) for key in FAWN])
def test_a_cell_is_the_estimators_fit(method, protocol, folder, scored):
    task = "toys" if method == "co-fawn" else "toy"
    found, seed, x, y, train, test = run_one(method, protocol, task, folder, SHORT)
    model = FAWNRegressor(**FAWN[method, protocol], random_state=seed).fit(x[train], y[train])
    check(found, scored, model.predict_dist(x[test]), y, train, test)
    assert (found["outcome"], found["epochs"]) == (model.outcome_, model.n_iter_)
    assert found["loss"] == model.loss_


@pytest.mark.parametrize("method", OTHERS)
def test_so_are_the_cells_of_others(method, folder, scored):
    if METHODS[method].package:
        pytest.importorskip(METHODS[method].package)
    estimator, options, changes = OTHERS[method]
    found, seed, x, y, train, test = run_one(method, "ours", "toy", folder, changes)
    model = estimator(**options, **changes, random_state=seed).fit(x[train], y[train])
    check(found, scored, model.predict_dist(x[test]), y, train, test)


def test_boosting_is_decided_by_its_seed():
    """Among equal splits a tree draws; the package leaves its trees to NumPy's global seed."""
    pytest.importorskip("ngboost")
    x, y = numbers()
    found = []
    for state in (0, 1):
        np.random.seed(state)  # noqa: NPY002
        # Few rows have many splits that are as good, which differ on the others.
        found.append(NGBoost(max_trees=20).fit(x[:25], y[:25, 0]).predict_dist(x[25:]).mean)
    np.testing.assert_array_equal(*found)


def test_every_method_is_among_them():
    assert {name for name, _ in FAWN} | set(OTHERS) | {
        "stack",
        "stack-quick",
        "stack-thorough",
        "network",
    } == set(METHODS)
    for name, estimator in (("stack", StackedRegressor), ("network", FAWNRegressor)):
        model = METHODS[name].model(METHODS[name].settings("own"), 3)
        assert isinstance(model, estimator)
        assert model.get_params() == estimator(random_state=3).get_params()


@pytest.mark.parametrize("method", [*NETWORK, "fawn-ropd-5"])
def test_settings_are_the_ones_written_down(method):
    """Unshortened, and for both protocols: what a store keeps is what anyone would write."""
    stop = StopRule(window=1000, tol=1e-3, patience=10)
    plain = {"kl_weight": 1.0, "batch_size": 128, "stop": stop}
    slow = {"learning_rate": 1e-3, "kl_warmup": 0, "cooldown": 0, "max_steps": 300_000}
    fast = {"learning_rate": 1e-2, "kl_warmup": 10_000, "cooldown": 5_000, "max_steps": 40_000}
    recipes = {
        "paper": Recipe(**plain, **slow, alternate=True, noise_floor=False),
        "ours": Recipe(**plain, **fast, alternate=False, noise_floor=True),
    }
    own = {"n_members": 5} if method == "fawn-ropd-5" else NETWORK[method]
    for protocol in METHODS[method].protocols:
        n_restarts = 2 if protocol == "ours" and method != "fawn-ropd-5" else 1
        model = METHODS[method].model(METHODS[method].settings(protocol), 3)
        plain = FAWNRegressor(
            hidden_layer_sizes=[50],
            recipe=recipes[protocol],
            n_restarts=n_restarts,
            validation=None,
            random_state=3,
            **own,
        )
        assert model.get_params() == plain.get_params()


def test_settings_of_others_are_the_ones_written_down():
    """Unshortened, since a cell above has fewer epochs, trees and draws than a published one."""
    steps = {"n_epochs": 400, "batch_size": 32, "learning_rate": 1e-3}
    wanted = {
        "pbp": {"hidden_layer_sizes": [50], "n_epochs": 40},
        "gp": {"n_restarts": 3},
        "ngboost": {"max_trees": 2000, "learning_rate": 0.01},
        "catboost": {"max_trees": 1000},
        "quantiles": {"max_trees": 100, "learning_rate": 0.1},
        "linear": {},
        "mc-dropout": {"n_samples": 100, "dropout": 0.05, **steps},
        "deep-ensemble": {"n_members": 5, "n_epochs": 40, "batch_size": 100, "learning_rate": 0.03},
    }
    assert {name: METHODS[name].settings("own") for name in OTHERS} == wanted
    assert {METHODS[name].protocols for name in OTHERS} == {("own",)}


def test_which_protocols_a_method_follows():
    """The paper has no ensembles: five members by its protocol would be a column of no table."""
    assert METHODS["fawn-ropd-5"].protocols == ("ours",)
    assert {METHODS[name].protocols for name in NETWORK} == {("paper", "ours")}
