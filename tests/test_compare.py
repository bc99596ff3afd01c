"""`varprop compare`: folds, scores worked out by scikit-learn and SciPy, what its lines say."""

import dataclasses
import importlib.util
import re
import sys

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import BayesianRidge
from sklearn.preprocessing import StandardScaler

from cli_runs import houses, run, run_json, sentence
from varprop import FAWNRegressor, default_networks
from varprop.baselines.linear import Linear
from varprop.baselines.quantiles import CONSTANT, LEVELS, QuantileBoosting, through_quantiles
from varprop.bench.methods import METHODS
from varprop.bench.registry import UnknownName
from varprop.predictive.scorecard import is_clear
from varprop.report import write_comparison_report
from varprop.tables import Roles, TableError, compare_table, open_source
from varprop.tables.comparing import SCORES, Line, compared, verdict
from varprop.tables.fitting import unfitted
from varprop.tables.outcomes import Outcome

pytestmark = pytest.mark.usefixtures("as_users_run_it")

#: What is run unless told otherwise.
DEFAULT = [
    "stack",
    "stack-quick",
    "stack-thorough",
    "network",
    "linear",
    "gp",
    "ngboost",
    "catboost",
    "quantiles",
    "deep-ensemble",
]
ROLES = Roles(("price",), ids=("id",), dropped=("rent",))


@pytest.fixture
def table(tmp_path):
    """Ninety rows, of which the last thirty are those before them once more under other ids."""
    head, *lines = houses(60, holes=False).splitlines()
    again = [f"again{number},{line.split(',', 1)[1]}" for number, line in enumerate(lines[30:])]
    path = tmp_path / "houses.csv"
    path.write_text("\n".join([head, *lines, *again]) + "\n")
    return str(path)


@pytest.fixture
def cheap(monkeypatch):
    """Every method with as little work as there can be."""
    short = {"hidden_layer_sizes": (4,), "max_iter": 3}
    changes = {
        "stack": {"estimators": default_networks(**short)[:1]},
        "stack-quick": {"estimators": default_networks(**short)[:1]},
        "stack-thorough": {"estimators": default_networks(**short)[:1]},
        "network": short,
        "gp": {"n_restarts": 0},
        "ngboost": {"max_trees": 5},
        "catboost": {"max_trees": 5},
        "quantiles": {"max_trees": 5},
        "deep-ensemble": {"n_members": 2, "n_epochs": 2},
    }
    for name, options in changes.items():
        method = METHODS[name]
        changed = dataclasses.replace(method, options=method.options | options)
        monkeypatch.setitem(METHODS, name, changed)


def without(monkeypatch, *packages):
    """As if they were not installed."""
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


# ---- folds and scores ---------------------------------------------------------------------------


def test_folds_hold_every_row_once_and_keep_copies_together(table):
    seen = [
        compare_table(open_source(table), ROLES, models=["linear"], folds=4, seed=seed).fold
        for seed in (0, 0, 1)
    ]
    fold = seen[0]
    assert fold.shape == (90,)
    assert sorted(set(fold.tolist())) == [0, 1, 2, 3]
    np.testing.assert_array_equal(fold[60:], fold[30:60])
    np.testing.assert_array_equal(
        np.bincount(fold[:60]), [15] * 4
    )  # of different rows equally many
    np.testing.assert_array_equal(fold, seen[1])
    assert (fold != seen[2]).any()


def cells(path):
    """Numbers, city and price of a table of houses, read without the library."""
    with open(path) as file:
        lines = [line.rstrip("\n").split(",") for line in file][1:]
    numbers = np.array([[float(cell) for cell in line[1:3]] for line in lines])
    cities = np.array([line[3] for line in lines])
    return numbers, cities, np.array([float(line[4]) for line in lines])


def by_hand(x, y, train, test):
    """Mean and standard deviation of scikit-learn's Bayesian ridge on standardized rows."""
    inputs, target = StandardScaler().fit(x[train]), StandardScaler().fit(y[train, None])
    model = BayesianRidge().fit(inputs.transform(x[train]), target.transform(y[train, None])[:, 0])
    mean, std = model.predict(inputs.transform(x[test]), return_std=True)
    return mean * target.scale_ + target.mean_, std * target.scale_


def test_scores_of_the_linear_model_are_those_of_scikit_learn_and_scipy(table):
    found = compare_table(open_source(table), ROLES, models=["linear"], folds=3)
    numbers, cities, y = cells(table)
    x = np.column_stack([numbers, cities == "Bern", cities == "Ulm"])
    wanted = {name: [] for name in SCORES}
    for k in range(3):
        train, test = found.fold != k, found.fold == k
        mean, std = by_hand(x, y, train, test)
        z = (y[test] - mean) / std
        phi, mass = stats.norm.pdf(z), stats.norm.cdf(z)
        crps = std * (z * (2 * mass - 1) + 2 * phi - 1 / np.sqrt(np.pi))
        wanted["nll"].append(-stats.norm.logpdf(y[test], mean, std).mean())
        wanted["crps"].append(crps.mean())
        wanted["rmse"].append(np.sqrt(np.mean((y[test] - mean) ** 2)))
        wanted["coverage90"].append(np.mean(np.abs(z) <= stats.norm.ppf(0.95)))
    (line,) = found.lines
    row = line.row()
    for name, values in wanted.items():
        np.testing.assert_allclose(line.folds[name], values, rtol=1e-6)
        assert row[f"{name}_mean"] == pytest.approx(np.mean(values), rel=1e-6)
        assert row[f"{name}_se"] == pytest.approx(stats.sem(values), rel=1e-6)
    assert all(len(line.folds[name]) == 3 for name in ("fit_seconds", "predict_seconds"))


def test_no_method_sees_the_rows_it_is_scored_on(table, monkeypatch):
    """Levels and means are those of the training rows; so are the rows that are fitted to."""
    seen = []
    fit = Linear.fit

    def spy(self, X, y):
        seen.append((X, y))
        return fit(self, X, y)

    monkeypatch.setattr(Linear, "fit", spy)
    found = compare_table(open_source(table), ROLES, models=["linear"], folds=3)
    _, _, y = cells(table)
    assert len(seen) == 3
    for k, (X, fitted) in enumerate(seen):
        np.testing.assert_array_equal(fitted, y[found.fold != k])
        assert X.shape == (len(fitted), 4)


def test_rows_with_missing_values_are_left_out_if_told(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text(houses(60))
    roles = dataclasses.replace(ROLES, missing="drop")
    found = compare_table(open_source(str(path)), roles, models=["linear"], folds=2)
    assert (found.n_rows, int((found.fold == -1).sum())) == (54, 6)


# ---- lines --------------------------------------------------------------------------------------


def test_all_methods_have_a_line(tmp_path, cheap):
    """A city with one row is in no training row of its fold; and six numbers are missing."""
    path = tmp_path / "houses.csv"
    path.write_text(houses(60).replace("Bern", "Oslo", 1))
    absent = [name for name in ("ngboost", "catboost") if importlib.util.find_spec(name) is None]
    roles = dataclasses.replace(ROLES, missing="impute")
    found = compare_table(open_source(str(path)), roles, folds=2)
    assert sorted(line.name for line in found.lines) == sorted(DEFAULT)
    scored = [line for line in found.lines if not line.problem]
    assert len(scored) == len(DEFAULT) - len(absent), [line.problem for line in found.lines]
    means = [line.mean("nll") for line in scored]
    assert means == sorted(means)
    assert np.isfinite(means).all()
    assert found.lines[: len(scored)] == tuple(scored)
    assert compared() == [*DEFAULT, "pbp", "mc-dropout"]
    assert any("filled in" in note for note in found.notes)


def test_a_missing_rival_keeps_its_line_which_says_how_to_install_it(table, cheap, monkeypatch):
    without(monkeypatch, "ngboost", "catboost")
    arguments = ("compare", table, "-t", "price", "--id", "id", "--drop", "rent", "--folds", 2)
    shown = run(*arguments, "--models", "catboost,linear,ngboost").stdout
    assert "CatBoost: not installed: pip install 'varprop[catboost]'" in shown
    assert "NGBoost: not installed: pip install 'varprop[bench]'" in shown
    assert "Linear is alone" in shown
    result = run_json(*arguments, "--models", "catboost")
    assert result["verdict"] == "No model could be scored."
    (row,) = result["leaderboard"]
    assert (row["model"], row["folds"]) == ("catboost", {})


def test_too_many_rows_and_failures_are_lines_too(table, monkeypatch):
    monkeypatch.setitem(METHODS, "gp", dataclasses.replace(METHODS["gp"], max_rows=89))

    def fail(self, X, y):
        raise RuntimeError("no good")

    monkeypatch.setattr(QuantileBoosting, "fit", fail)
    models = ["gp", "quantiles", "linear"]
    found = compare_table(open_source(table), ROLES, models=models, folds=2)
    assert [line.name for line in found.lines] == ["linear", "gp", "quantiles"]
    said = [line.problem for line in found.lines]
    assert said == ["", "90 rows are too many for it", "failed in fold 1: RuntimeError: no good"]


def test_progress_and_notes_are_told(table):
    told, notes = [], []
    compare_table(
        open_source(table),
        ROLES,
        models=["linear"],
        folds=2,
        on_progress=lambda *what: told.append(what),
        on_notes=notes.append,
    )
    assert told == [(0, 2, "fold 1: Linear"), (1, 2, "fold 2: Linear")]
    assert len(notes) == 1


def test_an_interrupted_fit_ends_it(table, monkeypatch):
    monkeypatch.setattr(FAWNRegressor, "fit", lambda self, *a, **k: self)
    monkeypatch.setattr(FAWNRegressor, "outcome_", "interrupted", raising=False)
    with pytest.raises(KeyboardInterrupt):
        compare_table(open_source(table), ROLES, models=["network"], folds=2)


def test_the_stack_is_the_one_that_fit_fits():
    """With the options that the command line has unless told otherwise."""
    options = {
        "hidden_layer_sizes": (50,),
        "likelihood": "gaussian",
        "n_members": 1,
        "n_restarts": 1,
        "max_iter": None,
        "output_covariance": False,
    }
    fitted = unfitted("stack", options, Outcome(), seed=3, progress=False).estimators
    ours = METHODS["stack"].model(METHODS["stack"].settings("own"), 3)
    assert ours.estimators is None
    plain = default_networks()
    assert [name for name, _ in fitted] == [name for name, _ in plain]
    for (_, one), (_, other) in zip(fitted, plain, strict=True):
        assert one.get_params() == other.get_params()


# ---- verdict ------------------------------------------------------------------------------------


def line(name, coverage=0.9):
    return Line(name, METHODS[name].title, {"coverage90": (coverage, coverage)})


def losses(n, **shifts):
    """Losses that scatter, with a shift and a scatter of its own for each method."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=n)
    return {
        name.replace("_", "-"): base + shift + 0.3 * rng.normal(size=n)
        for name, shift in shifts.items()
    }


def test_verdict_words():
    found = losses(200, stack=0.0, linear=0.5)
    said = verdict([line("stack", 0.876), line("linear")], found)
    gain = found["linear"] - found["stack"]
    by = f"{gain.mean():.2f} ± {stats.sem(gain):.2f}"
    assert said == (
        f"varprop stack is clearly better than the next, Linear: NLL lower by {by}. Its 90 % "
        "intervals hold 88 % of the values."
    )
    found = losses(200, catboost=0.0, gp=0.02, linear=0.01, stack=0.8)
    said = verdict([line(name) for name in ("catboost", "linear", "gp", "stack")], found)
    assert said.startswith(
        "CatBoost has the lowest NLL, but there is no clear difference from Linear or GP. varprop "
        "stack is clearly worse: NLL higher by 0."
    )
    assert verdict([line("gp"), line("stack")], losses(20, gp=0.0, stack=9.0)).startswith(
        "Too few rows to tell (20): GP has the lowest NLL, by "
    )
    assert "nothing to compare it with" in verdict([line("gp")], losses(50, gp=0.0))
    assert verdict([Line("gp", "GP", problem="no")], {}) == "No model could be scored."


def test_clearly_is_rarely_said_without_a_difference():
    """Both tests at 0.5 %: of 400 draws at most 2 are expected, and 8 have a chance of 0.1 %."""
    rng = np.random.default_rng(1)
    false = sum(is_clear(rng.normal(size=60)) for _ in range(400))
    assert 0 <= false <= 7
    assert is_clear(rng.normal(size=60) + 1.0)
    assert not is_clear(np.full(29, 1.0))


# ---- baselines ----------------------------------------------------------------------------------


def test_a_density_through_the_quantiles_of_a_gaussian_is_nearly_that_gaussian():
    known = 5 + 2 * stats.norm.ppf(LEVELS)[:, None]
    found = through_quantiles(np.repeat(known, 3, axis=1), LEVELS, 5.0, 2.0)
    np.testing.assert_allclose(found.mean, 5.0, atol=1e-9)
    np.testing.assert_allclose(found.std, 2.0, rtol=0.02)
    np.testing.assert_allclose(found.quantile(LEVELS)[0], known[:, 0], atol=0.1)
    y = np.array([5.0, 7.0, 1.0])
    np.testing.assert_allclose(found.logpdf(y), stats.norm.logpdf(y, 5, 2), atol=0.1)


def test_tails_and_coinciding_quantiles_are_bounded():
    """Far outside it costs log(100) more than the constant; one value is no infinite density."""
    found = through_quantiles(np.full((len(LEVELS), 2), 3.0), LEVELS, 0.0, 1.0)
    far, at = found.logpdf(np.array([-6.0, 3.0]))
    assert far == pytest.approx(stats.norm.logpdf(-6.0) + np.log(CONSTANT), rel=1e-9)
    assert at == pytest.approx(np.log(1 - CONSTANT) + stats.norm.logpdf(0, 0, 1e-3), rel=1e-4)


# ---- the command line ---------------------------------------------------------------------------


def test_table_json_and_page(table, tmp_path):
    page = tmp_path / "compare.html"
    arguments = ("compare", table, "-t", "price", "--id", "id", "--drop", "rent", "--folds", 3)
    arguments = (*arguments, "--models", "linear,quantiles")
    result = run_json(*arguments, "--html", page)
    assert (result["rows"], result["folds"], result["target"]) == (90, 3, "price")
    first, second = result["leaderboard"]
    assert (first["model"], second["model"]) == ("linear", "quantiles")
    assert first["nll_mean"] < second["nll_mean"]
    assert 0 < first["coverage90_mean"] <= 1
    text = page.read_text("utf-8")
    assert result["verdict"] in text
    assert "Linear is clearly better than the next, Quantile boosting" in text
    assert text.count('<tr><th scope="row">') == 2
    assert "<script src" not in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert 'name="viewport"' in text
    shown = run(*arguments, "--html", page)
    assert shown.stderr == ""
    for word in ("NLL", "CRPS", "RMSE", "Linear", "Quantile boosting", result["verdict"], "Page: "):
        assert word in shown.stdout
    assert "90 rows in 3 folds" in shown.stdout
    assert run(*arguments, "--quiet").stdout == ""


def test_the_page_escapes_and_draws_what_is_far_at_the_edge(tmp_path):
    path = tmp_path / "page.html"
    rows = [
        {"title": "<b>", "problem": "", "nll_mean": 1.0, "nll_se": 0.1, "coverage90_mean": 0.912},
        {"title": "far", "problem": "", "nll_mean": 1e6, "nll_se": 3.0, "coverage90_mean": 0.3},
        {"title": "gone", "problem": "not installed: <x>"},
    ]
    told = {"verdict": "So & so.", "n_rows": 1234, "n_folds": 5, "notes": ["A note."]}
    write_comparison_report(path, title="T", rows=rows, **told)
    text = path.read_text("utf-8")
    for shown in (
        "&lt;b&gt;",
        "1.00 ± 0.10",
        "So &amp; so.",
        "not installed: &lt;x&gt;",
        "A note.",
    ):
        assert shown in text
    assert "1,234 rows in 5 folds" in text
    marks = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', text)]
    assert 0 < marks[0] < marks[1] < 440
    empty = tmp_path / "empty.html"
    write_comparison_report(empty, title="T", rows=rows[2:], **told)
    assert "<circle" not in empty.read_text("utf-8")


# ---- bad input ----------------------------------------------------------------------------------


BAD = {
    "unknown model": (("-t", "price", "--models", "lineer"), 2, "there is no model 'lineer': did"),
    "paper's model": (("-t", "price", "--models", "co-fawn"), 2, "there is no model 'co-fawn'"),
    "no model": (("-t", "price", "--models", ","), 2, "--models names no model"),
    "too few rows": (("-t", "price", "--folds", 7), 3, "60 different rows, too few for 7 folds of"),
    "class target": (("-t", "city"), 3, "compare is for numbers, but target 'city' holds classes"),
    "missing target": (("-t", "cost"), 3, "has no column 'cost'"),
    "two targets": (("-t", "price", "-t", "rent"), 2, "compare takes one --target, but 2 are"),
    "no folder": (("-t", "price", "--html", "nowhere/a.html"), 4, "there is no folder nowhere"),
}


@pytest.mark.parametrize(("options", "code", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(table, options, code, words):
    assert words in sentence("compare", table, "--id", "id", *options, "-q", code=code)


def test_what_can_be_done_about_too_few_rows(table, tmp_path):
    said = sentence("compare", table, "--id", "id", "-t", "price", "--folds", 7, "-q", code=3)
    assert said.endswith("of at least 10: use --folds 6.")
    few = tmp_path / "few.csv"
    few.write_text(houses(15, holes=False))
    said = sentence("compare", few, "--id", "id", "-t", "price", "-q", code=3)
    assert said.endswith("it takes more rows to compare models.")


def test_bad_input_from_python(table):
    source = open_source(table)
    with pytest.raises(ValueError, match="folds must be at least 2, but is 1"):
        compare_table(source, ROLES, folds=1)
    with pytest.raises(UnknownName, match="there is no model 'boost'"):
        compare_table(source, ROLES, models=["boost"])
    with pytest.raises(TableError, match="takes one --target, but there are 2"):
        compare_table(source, Roles(("price", "rent"), ids=("id",)))
    counts = Roles(("rooms",), ids=("id",), exposure="size")
    with pytest.raises(TableError, match="compare is for numbers, but target 'rooms' holds counts"):
        compare_table(source, counts, models=["linear"])
