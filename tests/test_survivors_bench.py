"""The benchmark on planted rows: what it trains on and what it scores differ sharply.

Three splits of ten rows are written out below as numbers. Test rows of split 1 lie 100 above all
others and spread ten times as much, so that every way of taking the wrong rows shows in the scores.
"""

import dataclasses
import json
import time

import numpy as np
import pytest
from scipy import stats

from varprop.bench import cells as bench_cells
from varprop.bench import registry
from varprop.bench.cells import expected_cost, plan, run_cell
from varprop.bench.methods import METHODS
from varprop.bench.protocol import scores
from varprop.predictive import Predictive

pytestmark = pytest.mark.usefixtures("as_users_run_it")

#: Permutations of ten numbers by the generator of the published splits, split after split.
ROWS = [
    [2, 9, 6, 4, 0, 3, 1, 7, 8, 5],
    [9, 5, 3, 0, 8, 4, 2, 1, 6, 7],
    [8, 3, 5, 9, 0, 6, 1, 7, 4, 2],
]
N = 200


def facts(name, n, **more):
    return {
        "title": name.title(),
        "what": "nothing",
        "n": n,
        "d": 1,
        "features": ["x"],
        "targets": ["y"],
        "licence": "none",
        "citation": "none",
        "home": "nowhere",
        "notes": [],
        "splits": {"kind": "published", "n": 3},
        "download": {"format": "text", "urls": [f"http://nowhere.invalid/{name}.txt"]},
    } | more


@pytest.fixture
def sets(monkeypatch, tmp_path):
    """`ten` rows whose splits are known, `planted` and `planted_2` rows to train on."""
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    known = registry._facts()["datasets"]
    monkeypatch.setitem(known, "ten", facts("ten", 10))
    monkeypatch.setitem(known, "planted", facts("planted", N))
    two = {"targets": ["y", "z"], "splits": {"kind": "fixed", "n_train": 150}}
    monkeypatch.setitem(known, "planted_2", facts("planted_2", N, **two))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=N), rng.normal(size=N)
    permuted = np.random.RandomState(1)
    test = [permuted.permutation(N) for _ in range(2)][1][180:]
    y[test] = 100 + 10 * rng.normal(size=20)
    np.savetxt(tmp_path / "planted.txt", np.column_stack([x, y]), fmt="%.17g")
    z = np.where(np.arange(N) < 150, 0.0, 40.0) + 4 * rng.normal(size=N)
    both = np.column_stack([x, 7 + 3 * rng.normal(size=N), z])
    np.savetxt(tmp_path / "planted_2.txt", both, fmt="%.17g")
    bench_cells._numbers.cache_clear()
    yield str(tmp_path), x, y, test, both
    bench_cells._numbers.cache_clear()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_split_is_the_one_of_its_number(sets, number):
    train, test = registry.split_rows(registry.dataset("ten"), number)
    assert (train.tolist(), test.tolist()) == (ROWS[number][:9], ROWS[number][9:])


def test_a_fixed_split_is_cut_where_it_says(sets):
    train, test = registry.split_rows(registry.dataset("planted_2"), 0)
    assert train.tolist() == list(range(150))
    assert test.tolist() == list(range(150, 200))


def run_linear(folder, task, split):
    """The cell of a network without hidden layers, shortened, and its seed."""
    (cell,) = (
        cell
        for cell in plan([task], ["fawn-vi"], protocols=["paper"], data_dir=folder).cells
        if cell.split == split
    )
    settings = json.loads(cell.settings) | {"hidden_layer_sizes": []}
    settings["recipe"] |= {"learning_rate": 0.03, "max_steps": 1000, "batch_size": None}
    return run_cell(dataclasses.replace(cell, settings=json.dumps(settings)), folder)


def test_training_rows_are_trained_on_and_test_rows_are_scored(sets):
    """The input says nothing: what is predicted is the training rows' mean and spread."""
    folder, _, y, test, _ = sets
    train = np.setdiff1d(np.arange(N), test)
    begin = time.monotonic()
    found = run_linear(folder, "planted", 1)
    assert 0 < found["seconds"] < time.monotonic() - begin
    rmse = np.sqrt(np.mean((y[test] - y[train].mean()) ** 2))
    assert 95 < rmse < 105
    assert found["rmse"] == pytest.approx(rmse, rel=0.01)
    nll = -stats.norm.logpdf(y[test], y[train].mean(), y[train].std()).mean()
    assert found["nll"] == pytest.approx(nll, rel=0.05)
    scale = y[train].std()
    assert found["rmse_standardized"] == pytest.approx(found["rmse"] / scale, rel=1e-9)
    assert found["nll_standardized"] == pytest.approx(found["nll"] - np.log(scale), rel=1e-9)
    assert found["coverage90"] == 0.0
    assert (found["n_train"], found["n_test"], found["source"]) == (180, 20, "file")
    # Two other splits have most of the far rows among those to train on: nothing of the kind.
    assert run_linear(folder, "planted", 0)["rmse"] < 60


def test_two_targets_are_scored_each_by_its_own(sets):
    folder, _, _, _, both = sets
    y = both[:, 1:]
    found = run_linear(folder, "planted_2", 0)
    error = np.sqrt(np.mean((y[150:] - y[:150].mean(axis=0)) ** 2, axis=0))
    assert error[1] > 35 > 5 > error[0]
    scale = y[:150].std(axis=0)
    assert found["rmse"] == pytest.approx(error.mean(), rel=0.02)
    assert found["rmse_standardized"] == pytest.approx((error / scale).mean(), rel=0.02)
    nll = -stats.norm.logpdf(y[150:], y[:150].mean(axis=0), scale).sum(axis=1).mean()
    assert found["nll"] == pytest.approx(nll, rel=0.05)
    assert found["nll_independent"] == pytest.approx(found["nll"], rel=1e-9)


def test_scores_of_known_predictions():
    """Standard Gaussians for targets 0 and 1.2, in units of 2: SciPy's numbers."""
    y = np.array([0.0, 1.2])
    found = scores(y, Predictive.gaussian(np.zeros(2), np.ones(2), 0.0), np.array([2.0]))
    nll = -stats.norm.logpdf(y).mean()
    phi, mass = stats.norm.pdf(y), stats.norm.cdf(y)
    crps = (y * (2 * mass - 1) + 2 * phi - 1 / np.sqrt(np.pi)).mean()
    wanted = {
        "nll": nll,
        "nll_independent": nll,
        "nll_standardized": nll - np.log(2),
        "rmse": np.sqrt(0.72),
        "rmse_standardized": np.sqrt(0.72) / 2,
        "crps": crps,
        "coverage50": 0.5,
        "coverage90": 1.0,
    }
    assert found == pytest.approx(wanted, rel=1e-9)


def test_a_covariance_is_worth_the_difference_of_two_scores():
    y = np.array([[1.0, 1.0], [-0.5, -0.6]])
    cov = np.array([[1.0, 0.8], [0.8, 1.0]])
    found = scores(y, Predictive.joint(np.zeros((2, 2)), np.stack([cov, cov]), 0.0), np.ones(2))
    nll = -stats.multivariate_normal(np.zeros(2), cov).logpdf(y).mean()
    assert found["nll"] == pytest.approx(nll, rel=1e-9)
    independent = -stats.norm.logpdf(y).sum(axis=1).mean()
    assert found["nll_independent"] == pytest.approx(independent, rel=1e-9)


def test_what_is_left_out_of_a_plan(sets):
    folder, *_ = sets
    made = plan(["planted", "planted_2"], ["pbp", "fawn-vi"], n_splits=2, seed=5, data_dir=folder)
    cells = [(c.dataset, c.method, c.protocol, c.split, c.seed) for c in made.cells]
    assert cells == [
        *(("planted", "pbp", "own", split, 5) for split in (0, 1)),
        *(("planted", "fawn-vi", p, split, 5) for p in ("paper", "ours") for split in (0, 1)),
        *(("planted_2", "fawn-vi", p, 0, 5) for p in ("paper", "ours")),
    ]
    assert made.skipped == ["PBP is not run on planted_2: it has one output."]
    with pytest.raises(registry.UnknownName, match=r"no protocol 'our'.*'ours'"):
        plan(["planted"], ["pbp"], protocols=["our"], data_dir=folder)
    gone = plan(["ten", "planted"], ["pbp"], n_splits=1, data_dir=folder)
    assert (len(gone.cells), gone.absent, len(gone.skipped)) == (1, ["ten"], 1)


@pytest.mark.parametrize(("n", "why"), [(1500, None), (1501, "1,501 rows are too many for it")])
def test_how_many_rows_a_method_takes(sets, n, why):
    task = registry.task("ten")
    task = dataclasses.replace(task, dataset=dataclasses.replace(task.dataset, n=n))
    assert METHODS["gp"].refuses(task) == why
    assert METHODS["pbp"].refuses(task) is None


def test_what_takes_longer_is_expected_to():
    """Slow work is begun first: five members, a covariance, samples."""
    plain = METHODS["fawn-ropd"].cost
    assert plain == METHODS["fawn-vi"].cost == METHODS["fawn-bern"].cost
    for name in ("fawn-ropd-5", "co-fawn", "vi"):
        assert METHODS[name].cost > 1.5 * plain
    others = sorted((m for m in METHODS.values() if m.protocols == ("own",)), key=lambda m: m.cost)
    assert [m.name for m in others[-5:]] == ["pbp", "stack", "ngboost", "gp", "stack-thorough"]


def test_what_a_cell_is_expected_to_cost(sets, monkeypatch):
    """Seconds at a thousand rows; more where the work grows with the rows, or their square."""
    folder, *_ = sets
    wanted = {"pbp": (1.5, 15.0), "gp": (5.4, 540.0), "fawn-vi": (3.0, 3.0)}
    for method, seconds in wanted.items():
        cell = plan(["planted"], [method], n_splits=1, data_dir=folder).cells[0]
        for n, cost in zip((200, 3000), seconds, strict=True):
            monkeypatch.setitem(registry._facts()["datasets"]["planted"], "n", n)
            assert expected_cost(cell) == pytest.approx(cost)
        monkeypatch.setitem(registry._facts()["datasets"]["planted"], "n", N)
