"""Unknown categories: predictions are mixtures over the levels, held against NumPy's own."""

import dataclasses
import functools

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from varprop import FAWNRegressor, StackedRegressor, metrics
from varprop.predictive.distribution import Predictive
from varprop.predictive.scorecard import CONSTANT, LINEAR, MODEL
from varprop.tables import TableModel, evaluate_table, explain_table, predict_table
from varprop.tables import model as table_model
from varprop.tables import unknown as unknown_module
from varprop.tables.columns import CategoryColumn, NumberColumn, Preprocessing, join_rows
from varprop.tables.effects import column_importance
from varprop.tables.model import TableRows
from varprop.tables.source import Source
from varprop.tables.unknown import combinations, in_parts

pytestmark = pytest.mark.usefixtures("as_users_run_it")

COLORS, COUNTS = ("blue", "green", "red"), (12, 18, 30)
SHARES = np.array(COUNTS) / 60
KINDS = ("new", "old")


def table(n_rows=60, seed=0):
    """A number, two categories of known shares (a third of `kind` is old), and two targets."""
    rng = np.random.default_rng(seed)
    color = rng.permutation(np.repeat(COLORS, COUNTS))[:n_rows]
    kind = rng.permutation(np.repeat(KINDS, (40, 20)))[:n_rows]
    size = rng.normal(3.0, 2.0, n_rows)
    base = np.array([{"blue": 0.0, "green": 4.0, "red": 1.0}[c] for c in color])
    y = base * (1 + (kind == "old")) + 0.5 * size + 0.3 * rng.normal(size=n_rows)
    return pa.table({"size": size, "color": color, "kind": kind, "y": y, "z": -y + size})


def preprocessing(targets=("y",)):
    size = table()["size"].to_numpy()
    inputs = (
        NumberColumn("size", size.mean(), size.var()),
        CategoryColumn("color", "text", COLORS, COUNTS),
        CategoryColumn("kind", "text", KINDS, (40, 20)),
    )
    return Preprocessing(inputs, targets, (), (), "impute")


@functools.cache
def fitted(kind="linear", targets=("y",)):
    pre = preprocessing(targets)
    networks = []
    if kind != "linear":
        options = {"output_covariance": kind == "joint"}
        network = FAWNRegressor((4,), objective="vi", max_iter=30, **options)
        networks = [("network", network)]
    rows = pre.encode(table(), str)
    y = np.stack([table()[name].to_numpy() for name in targets], axis=1)
    with pytest.warns() if networks else np.errstate():
        regressor = StackedRegressor(networks, random_state=0)
        regressor.fit(rows.X, y[:, 0] if len(targets) == 1 else y)
    return TableModel(regressor, pre)


def cells(color, kind, size=(2.0,)):
    rows = len(color)
    size = list(size) * rows if len(size) == 1 else list(size)
    return pa.table(
        {
            "size": pa.array(size, pa.float64()),
            "color": pa.array(color, pa.string()),
            "kind": pa.array(kind, pa.string()),
        }
    )


def predict(model, given):
    return model.predict_dist(model.preprocessing.encode(given, str, unseen="average"), str)


def test_a_line_has_the_variance_of_the_full_covariance():
    """Mean and variance by the law of total variance, with cov = diag(p) - p p^T."""
    model = dataclasses.replace(fitted(), choice="linear")
    line, pre = model.regressor.linear_, model.preprocessing
    found = predict(model, cells(["black"], ["old"]))
    scaling = line.scaling
    coef = line.coef[0] * scaling.y_scale[0] / scaling.x_scale
    x = np.array([2.0, *SHARES, 0.0, 1.0])
    cov = np.zeros((6, 6))
    cov[1:4, 1:4] = np.diag(SHARES) - np.outer(SHARES, SHARES)
    mean = (x - scaling.x_shift) @ coef + line.intercept[0] * scaling.y_scale[0] + scaling.y_shift
    weight_cov = line.cov[0] * scaling.y_scale[0] ** 2 / np.outer(scaling.x_scale, scaling.x_scale)
    apart = x - scaling.x_shift - line.center * scaling.x_scale
    var = apart @ weight_cov @ apart + np.trace(weight_cov @ cov) + coef @ cov @ coef
    var += line.noise_var[0] * scaling.y_scale[0] ** 2
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.var, [var], rtol=1e-12)
    # Independent one-hot inputs, as they were fed before, are not that.
    rows = pre.encode(cells(["black"], ["old"]), str, unseen="average")
    before = model.regressor.predict_dist(rows.X, rows.X_std, model="linear")
    assert abs(before.var[0] / var - 1) > 0.05


def test_equal_weights_add_no_variance():
    """The example of old: equal weights and p = (.2, .3, .5); 0.62 was added, and 0 is true."""
    model = fitted()
    line = model.regressor.linear_
    coef, cov = line.coef.copy(), np.zeros_like(line.cov)
    coef[0, 1:4] = line.scaling.x_scale[1:4] / line.scaling.y_scale[0]  # 1 in units of the table
    regressor = StackedRegressor([]).fit(np.eye(6)[np.arange(12) % 6], np.arange(12.0))
    vars(regressor).update(vars(model.regressor))
    regressor.linear_ = dataclasses.replace(line, coef=coef, cov=cov)
    same = TableModel(regressor, model.preprocessing, "linear")
    found = predict(same, cells([None, "red"], ["old", "old"]))
    np.testing.assert_allclose(found.mean[0], found.mean[1], rtol=1e-12)
    np.testing.assert_allclose(found.var[0], found.var[1], rtol=1e-12)
    rows = same.preprocessing.encode(cells([None], ["old"]), str)
    before = regressor.predict_dist(rows.X, rows.X_std, model="linear")
    np.testing.assert_allclose(before.var[0] - found.var[0], 0.62, rtol=1e-9)


def by_hand(model, color, kind, size, y):
    """Shares of all combinations, and their predictions of one row each, with levels filled in."""
    colors = [(color, 1.0)] if color in COLORS else list(zip(COLORS, SHARES, strict=True))
    kinds = [(kind, 1.0)] if kind in KINDS else [("new", 2 / 3), ("old", 1 / 3)]
    weights = np.array([p * q for _, p in colors for _, q in kinds])
    parts = [predict(model, cells([c], [k], (size,))) for c, _ in colors for k, _ in kinds]
    mean = sum(w * p.mean for w, p in zip(weights, parts, strict=True))
    second = sum(w * (p.var + p.mean**2) for w, p in zip(weights, parts, strict=True))
    return {
        "mean": mean[0],
        "std": np.sqrt(second - mean**2)[0],
        "cdf": sum(w * p.cdf(y) for w, p in zip(weights, parts, strict=True))[0],
        "logpdf": np.log(sum(w * p.pdf(y) for w, p in zip(weights, parts, strict=True)))[0],
    }


@pytest.mark.parametrize(("kind", "targets"), [("network", ("y",)), ("joint", ("y", "z"))])
def test_a_prediction_is_the_mixture_of_those_with_each_level(kind, targets):
    """One and two unknown categories, alone, together, with an unknown number, and none."""
    model = fitted(kind, targets)
    rows = [
        ("black", "old", 2.0),
        ("red", "new", 1.0),
        ("red", None, 5.0),
        (None, "?", 0.0),
        ("black", "new", None),
        ("blue", "old", None),
        (None, None, None),
    ]
    found = predict(model, cells(*map(list, zip(*rows, strict=True))))
    assert found.shape == ((7,) if len(targets) == 1 else (7, 2))
    assert found.is_joint == (kind == "joint")
    y = np.full(found.shape, 1.5)
    for number, row in enumerate(rows):
        truth = by_hand(model, *row, y[:1])
        # In single precision a network rounds a row by what stands beside it.
        for name in ("mean", "std"):
            value = getattr(found, name)[number]
            np.testing.assert_allclose(value, truth[name], rtol=2e-5, err_msg=f"{name} {row}")
        np.testing.assert_allclose(found.cdf(y)[number], truth["cdf"], atol=1e-5)
        np.testing.assert_allclose(found.logpdf(y)[number], truth["logpdf"], atol=1e-4)
    assert np.isfinite(found.quantile([0.05, 0.95])).all()
    np.testing.assert_allclose(found.weights.sum(axis=0), 1.0, rtol=1e-12)
    assert found.identified
    if kind == "joint":  # covariance between targets by the law of total covariance
        parts = [predict(model, cells([c], ["old"])) for c in COLORS]
        second = [p.output_cov[0] + np.outer(p.mean[0], p.mean[0]) for p in parts]
        cov = np.tensordot(SHARES, second, 1) - np.outer(found.mean[0], found.mean[0])
        np.testing.assert_allclose(found.output_cov[0], cov, rtol=1e-4)


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_known_rows_are_what_they_were_to_the_bit(kind):
    model = fitted(kind)
    known = model.preprocessing.encode(table(), str)
    direct = model.regressor.predict_dist(known.X)
    found = model.predict_dist(known, str)
    for name in ("member_mean", "member_model", "member_noise", "weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(direct, name))
    # Beside rows of more members, too.
    mixed = join_rows([known, model.preprocessing.encode(cells([None], ["old"]), str)])
    beside = model.predict_dist(mixed, str)
    np.testing.assert_array_equal(beside.member_mean[: direct.n_members, :60], direct.member_mean)
    np.testing.assert_allclose(beside.quantile(0.3)[:60], direct.quantile(0.3), rtol=1e-12)
    y = table()["y"].to_numpy()
    np.testing.assert_allclose(beside[:60].logpdf(y), direct.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(
        metrics.crps_rows(np.append(y, 0.0), beside)[:60], metrics.crps_rows(y, direct), rtol=1e-12
    )


def test_uncertainty_is_handed_on_only_where_something_is_unknown():
    model = fitted()
    rows = model.preprocessing.encode(
        cells(["red", None, "red"], ["old"] * 3, (1.0, 2.0, None)), str
    )
    known, filled = in_parts(rows, model.preprocessing)
    assert known.index.tolist() == [0, 2]
    assert known.filled.X_std[:, 0].tolist() == [0.0, np.sqrt(model.preprocessing.inputs[0].var)]
    assert filled.index.tolist() == [1]
    assert filled.filled.X_std is None
    np.testing.assert_array_equal(filled.filled.X[:, 1:4], np.eye(3))
    np.testing.assert_array_equal(filled.filled.numbers, 1)
    (only,) = in_parts(join_rows([known.filled]), model.preprocessing)
    assert only.place is None


def test_combinations_are_drawn_fairly_if_there_are_many():
    """Shares of levels and of pairs over 2000 seeds: a false alarm at 5 sigma, 2e-4 in all."""
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.ones(n)) for n in (9, 8, 2)]
    totals = []
    for seed in range(2000):
        levels, weights = combinations(shares, seed=seed)
        assert len(weights) <= 64
        np.testing.assert_allclose(weights.sum(), 1.0)
        found = np.zeros((9, 8, 2))
        np.add.at(found, tuple(levels.T), weights)
        totals.append(found)
    mean, error = np.mean(totals, axis=0), np.std(totals, axis=0) / np.sqrt(2000)
    truth = np.einsum("i,j,k->ijk", *shares)
    seen = truth > 1e-3  # with fewer draws than 100 a count is no Gaussian
    assert seen.sum() > 50
    assert 144 * 2 * stats.norm.sf(5) < 2e-4
    assert (np.abs(mean - truth)[seen] < 5 * error[seen]).all()
    # Each category's own shares are kept to one draw, by every seed.
    for axis, share in enumerate(shares):
        others = tuple(i + 1 for i in range(3) if i != axis)
        assert np.abs(np.sum(totals, axis=others) - share).max() <= 2 / 64


def test_drawn_combinations_are_the_same_everywhere(monkeypatch):
    model = fitted("network")
    exact = predict(model, cells([None, "red"], [None, None]))
    for module in (unknown_module, table_model):
        monkeypatch.setattr(module, "COMBINATIONS", 5)
    drawn = predict(model, cells([None, "red"], [None, None]))
    alone = predict(model, cells([None], [None]))
    assert drawn.n_members < exact.n_members  # 5 draws, some of them the same
    np.testing.assert_allclose(drawn.mean[0], alone.mean[0], rtol=1e-5)
    np.testing.assert_allclose(drawn.mean[1], exact.mean[1], rtol=1e-5)
    assert abs(drawn.mean[0] - exact.mean[0]) > 1e-4  # few draws are not all combinations


def test_memory_is_bounded(monkeypatch):
    model = fitted()
    members = model.regressor.predict_dist(np.eye(6)).n_members
    given = cells([None, "red"] * 40, [None, "old"] * 40)
    rows = model.preprocessing.encode(given, str)
    monkeypatch.setattr(unknown_module, "_ROWS", 16)
    parts = list(model.predict_parts(rows, str))
    assert [len(index) for index, _ in parts] == [40, 16, 16, 8]
    assert [p.n_members for _, p in parts] == [members, *[6 * members] * 3]
    np.testing.assert_allclose(model.predict_dist(rows, str).mean[::2], parts[1][1].mean[0])
    monkeypatch.setattr(unknown_module, "_INPUTS", 64 * 6 * 5)
    assert max(len(index) for index, _ in list(model.predict_parts(rows, str))[1:]) == 5
    monkeypatch.setattr(table_model, "AT_ONCE", 80 * 4)
    monkeypatch.setattr(table_model, "FEWEST", 2)
    assert model.predict_dist(rows, str).n_members <= 4 * members


def test_tables_with_unknown_categories():
    """Predict, evaluate, explain and importance, each against the prediction of the rows."""
    model = fitted("network")
    data = table(30)
    color = data["color"].to_pylist()
    color[3] = color[17] = "black"
    data = data.set_column(1, "color", pa.array(color))
    source = Source.of_table(data)
    pre, y = model.preprocessing, data["y"].to_numpy()
    found = model.predict_dist(pre.encode(data, str, unseen="average"), str)

    rows = TableRows(source, pre, unseen="average", targets=False)
    written = pa.Table.from_batches(predict_table(model, rows, interval=0.8))
    assert written["row"].to_pylist() == list(range(1, 31))
    np.testing.assert_allclose(written["mean"], found.mean, rtol=1e-5)
    np.testing.assert_allclose(written["std"], found.std, rtol=1e-5)
    np.testing.assert_allclose(written["upper"], found.quantile(0.9), rtol=1e-5)
    assert rows.n_unseen == 2

    # Rows without a prediction stand between the others.
    dropping = dataclasses.replace(model, preprocessing=dataclasses.replace(pre, missing="drop"))
    size = pa.array([None, *data["size"].to_pylist()[1:]])
    holed = Source.of_table(data.set_column(0, "size", size))
    rows = TableRows(holed, dropping.preprocessing, unseen="average", targets=False)
    without = pa.Table.from_batches(predict_table(dropping, rows))["mean"].to_pylist()
    assert without[0] is None
    np.testing.assert_allclose(without[1:], found.mean[1:], rtol=1e-5)

    scored, _ = evaluate_table(model, source, unseen="average")
    np.testing.assert_allclose(scored.card[MODEL]["NLL"], metrics.nll(y, found), rtol=1e-5)
    line = predict(dataclasses.replace(model, choice="linear"), data)
    np.testing.assert_allclose(scored.card[LINEAR]["CRPS"], metrics.crps(y, line), rtol=1e-9)
    assert line.n_members == 3
    assert np.isfinite(scored.card[CONSTANT]["CRPS"])

    explained, _ = explain_table(model, source, unseen="average")
    mean = explained[3]["targets"]["y"]
    filled = cells(["red"], [data["kind"][3].as_py()], (data["size"][3].as_py(),))
    np.testing.assert_allclose(mean["mean"], found.mean[3], rtol=1e-5)
    np.testing.assert_allclose(
        mean["inputs"]["color"]["mean"], found.mean[3] - predict(model, filled).mean[0], atol=1e-4
    )

    importance = column_importance(model, scored.rows)
    alone = column_importance(dataclasses.replace(model, choice="constant"), scored.rows)
    assert importance["color"][0].min() > 0.1
    assert not np.any(list(alone.values()))  # of the model that predicts, not of another


def test_crps_costs_nothing_for_members_without_weight():
    """Rows of different numbers of members in one mixture, against each row by itself."""
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(5, 9, 1)), rng.uniform(0.1, 2, size=(5, 9, 1))
    weights = rng.dirichlet(np.ones(5), size=9).T
    weights[2:, ::2] = 0.0
    weights /= weights.sum(axis=0)
    p = Predictive(mean, var, np.zeros((5, 1, 1)), weights, True)
    y = rng.normal(size=9)
    for row in range(9):
        w, m, s = weights[:, row], mean[:, row, 0], np.sqrt(var[:, row, 0])
        near = stats.foldnorm
        first = sum(w * near.mean(np.abs(m - y[row]) / s, scale=s))
        both = np.hypot(s[:, None], s)
        second = w @ near.mean(np.abs(m[:, None] - m) / both, scale=both) @ w
        truth = first - second / 2
        np.testing.assert_allclose(metrics.crps_rows(y, p)[row], truth, rtol=1e-9)
