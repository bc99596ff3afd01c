"""Deep models from fit to file: propagation, correlated input errors, covariances, budgets."""

import equinox as eqx
import jax
import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone

from test_persistence import FIXTURES, resigned, state
from varprop import Data, FAWNRegressor, JointGaussian, Recipe, StackedRegressor, nn, training
from varprop.data.fingerprints import row_hashes
from varprop.data.source import Rows, SourceError
from varprop.data.statistics import Scaling, Statistics
from varprop.estimators.inputs import training_data
from varprop.estimators.stack import default_networks
from varprop.exports.columns import Columns
from varprop.exports.onnx import to_onnx
from varprop.files.container import ModelFileError
from varprop.files.planning import plan_of
from varprop.learning.model import regression_model
from varprop.learning.objectives import VI
from varprop.predictive.budget import DISAGREE, NOISE, UNTOLD
from varprop.predictive.distribution import Predictive

pytestmark = pytest.mark.usefixtures("as_users_run_it")
N = 40


def quick(**options):
    start = {"hidden_layer_sizes": (3, 3), "max_iter": 30, "random_state": 0}
    return FAWNRegressor(**start | options)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)) * [1.0, 100.0]
    y = np.sin(X[:, 0]) + X[:, 1] / 100 + 0.1 * rng.normal(size=N)
    return X, np.column_stack([y, 1000 * X[:, 0] * y])


def widened(model):
    """Give the networks weights as those of long training are: large, and unsure of."""
    rng = np.random.default_rng(1)

    def wide(part):
        if not isinstance(part, nn.GaussianWeights):
            return part
        mean, log_std = rng.normal(size=part.shape), np.full(part.shape, np.log(0.2))
        new = (mean.astype(np.float32), log_std.astype(np.float32))
        return eqx.tree_at(lambda w: (w.mean, w.log_std), part, new)

    def is_weights(part):
        return isinstance(part, nn.GaussianWeights)

    model.members_ = [
        eqx.tree_at(
            lambda m: m.network, member, jax.tree.map(wide, member.network, is_leaf=is_weights)
        )
        for member in model.members_
    ]
    return model


@pytest.fixture(scope="module")
def deep(data):
    """One target, told apart, mixed with the constant Gaussian."""
    model = widened(quick(objective="vi", max_iter=2).fit(data[0], data[1][:, 0]))
    model.trust_ = 0.8
    return model


@pytest.fixture(scope="module")
def joint(data):
    """Two correlated targets, two members, model and noise not told apart."""
    options = {"output_covariance": True, "n_members": 2, "validation": None, "max_iter": 2}
    return widened(quick(**options).fit(*data))


COV = np.array([[1.0, 80.0], [80.0, 1e4]])


# ---- correlated input errors ---------------------------------------------------------------------


def test_a_diagonal_covariance_is_a_standard_deviation(deep, joint, data):
    X = data[0][:5]
    std = np.array([1.0, 100.0])
    for model in (deep, joint):
        by_std = model.predict_dist(X, std)
        for cov in (np.diag(std**2), np.tile(np.diag(std**2), (5, 1, 1))):
            by_cov = model.predict_dist(X, X_cov=cov)
            np.testing.assert_allclose(by_cov.mean, by_std.mean, rtol=1e-4)
            np.testing.assert_allclose(by_cov.output_cov, by_std.output_cov, rtol=1e-4)
        correlated = model.predict_dist(X, X_cov=COV)
        assert (np.abs(correlated.var / by_std.var - 1) > 1e-3).any()
        none = model.predict_dist(X, X_cov=np.zeros((2, 2)))
        np.testing.assert_allclose(none.var, model.predict_dist(X, np.zeros(2)).var, rtol=1e-4)
        # Beside an error, be it zero, the first layer's weights and what its activation bends are
        # two sources, and one without: they differ by what is not linear in both (6.4e-4 here).
        np.testing.assert_allclose(none.var, model.predict_dist(X).var, rtol=1e-3)
        one = model.predict_dist(X[1:2], X_cov=COV)  # a matrix for all is that of each row
        np.testing.assert_allclose(one.var, correlated[1].var, rtol=1e-4)


def test_covariances_are_scaled_on_both_sides(data):
    X = data[0][:3]
    scaling = Scaling(np.ones(2), np.array([2.0, 50.0]), np.zeros(1), np.ones(1))
    _, found = scaling.inputs(X, np.tile(COV, (3, 1, 1)), np.float64)
    np.testing.assert_allclose(found, np.tile([[0.25, 0.8], [0.8, 4.0]], (3, 1, 1)), rtol=1e-14)


@pytest.mark.parametrize(
    ("cov", "sentence"),
    [
        ([[1.0, 3.0], [3.0, 1.0]], "X_cov is no covariance: .*positive semidefinite"),
        ([[1.0, 0.5], [0.1, 1.0]], "X_cov is no covariance: .*symmetric"),
        ([[-1e-9, 0.0], [0.0, 1.0]], "X_cov is no covariance"),
        ([[0.0, 1e-7], [1e-7, 1.0]], "X_cov is no covariance"),
        ([[1e-9, 3e-9], [3e-9, 1e-9]], "X_cov is no covariance"),  # judged in units of its own
        (np.stack([np.eye(2), np.eye(2), -np.eye(2)]), "X_cov is no covariance in row 2"),
        (np.eye(3), r"X_cov has shape \(3, 3\), but X has shape \(3, 2\).*2 by 2 per row"),
        (np.ones((4, 2, 2)), r"X_cov has shape \(4, 2, 2\)"),
        (np.ones((3, 2)), r"X_cov has shape \(3, 2\)"),
        ([[np.nan, 0.0], [0.0, 1.0]], "X_cov must be finite"),
        ([["a", 0.0], [0.0, 1.0]], "X_cov must hold numbers"),
    ],
)
def test_what_is_no_covariance(deep, data, cov, sentence):
    X, y = data[0][:3], data[1][:3, 0]
    for ask in (
        lambda: deep.predict_dist(X, X_cov=cov),
        lambda: quick().fit(X, y, X_cov=cov),
        lambda: StackedRegressor().fit(X, y, X_cov=cov),
    ):
        with pytest.raises(ValueError, match=sentence) as error:
            ask()
        assert str(error.value).count(". ") == 0


def test_errors_given_twice_or_to_a_network_that_cannot(deep, data):
    X = data[0][:3]
    for ask in (deep.predict, deep.predict_dist, deep.uncertainty_budget):
        with pytest.raises(ValueError, match="X_std and X_cov say the same thing: give one"):
            ask(X, X_std=[0.1, 1.0], X_cov=COV)
    for model in (quick(), StackedRegressor()):
        with pytest.raises(ValueError, match="X_std and X_cov say the same thing: give one"):
            model.fit(X, np.arange(3.0), X_std=[0.1, 1.0], X_cov=COV)
        with pytest.raises(ValueError, match="a source with targets and weights of its own"):
            model.fit(Data(X, np.arange(3.0)), X_cov=COV)
    with pytest.raises(ValueError, match="correlated input errors need propagation='first-order'"):
        quick(propagation="independent").fit(X, np.arange(3.0), X_cov=COV)
    with pytest.raises(TypeError, match="SampledVI draws input errors one by one"):
        quick(objective="sampled-vi", validation=None).fit(X, np.arange(3.0), X_cov=COV)
    paper = quick(propagation="independent", validation=None, max_iter=1).fit(X, np.arange(3.0))
    with pytest.raises(ValueError, match="correlated input errors need propagation='first-order'"):
        paper.predict_dist(X, X_cov=COV)


def per_row(n):
    """A covariance for each row, of another size and correlation."""
    std = np.linspace(0.1, 0.5, n)[:, None] * [1.0, 100.0]
    cov = std[:, :, None] * std[:, None, :]
    cov[:, [0, 1], [1, 0]] *= np.linspace(-0.9, 0.9, n)[:, None]
    return cov


def test_training_on_correlated_errors_sees_every_row_with_its_own(data):
    """Two layers in two buffers of four batches: the loss is that of rows looked at one by one."""
    X, y = data[0], data[1][:, :1]
    cov = per_row(N)
    model = regression_model(2, 1, key=jax.random.key(0), hidden_layer_sizes=(4, 4))
    recipe = Recipe(max_steps=1, learning_rate=0.0, batch_size=5, kl_weight=0.0)
    given = Data(X, y, x_var=cov)
    fit = training.fit(model, given, VI(), key=jax.random.key(1), recipe=recipe, buffer_rows=20)
    scaling, loss = Scaling.of(Data(X, y)), 0.0
    for row in range(N):
        unit = scaling.x_scale
        x = JointGaussian(
            ((X[row] - scaling.x_shift) / unit).astype(np.float32),
            (cov[row] / np.outer(unit, unit)).astype(np.float32),
        )
        target = ((y[row] - scaling.y_shift) / scaling.y_scale).astype(np.float32)
        loss -= float(model.likelihood.expected_log_prob(model.network.moments(x), target)) / N
    assert fit.loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("kind", [FAWNRegressor, StackedRegressor])
def test_models_trained_on_correlated_errors_are_kept(kind, data, tmp_path):
    """In any order of the rows, from fit to file; the errors make a difference."""
    X, y, cov = data[0], data[1][:, 0], per_row(N)
    options = {"hidden_layer_sizes": (4, 4), "max_iter": 40}
    make = lambda: (  # noqa: E731
        kind(**options, random_state=0)
        if kind is FAWNRegressor
        else kind(default_networks(**options), random_state=0)
    )
    model = make().fit(X, y, X_cov=cov)
    order = np.random.default_rng(0).permutation(N)
    other = make().fit(X[order], y[order], X_cov=cov[order])
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    diagonal = make().fit(X, y, X_std=np.sqrt(cov[:, [0, 1], [0, 1]]))
    assert np.abs(model.predict(X) - diagonal.predict(X)).max() > 1e-4
    model.save(tmp_path / "model.safetensors")
    again = kind.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        model.predict_dist(X, X_cov=cov).var, again.predict_dist(X, X_cov=cov).var
    )


def test_rows_whose_covariances_alone_differ_stay_apart(data):
    """Merged, hashed and dealt into folds as different rows."""
    X, y, cov = np.zeros((6, 2)), np.arange(6.0) // 3, per_row(6)
    X[3:] = 1.0
    x_var = np.concatenate([cov[:3], cov[:3]])
    assert len(np.unique(row_hashes(X, y[:, None], x_var))) == 6
    assert len(np.unique(row_hashes(X, y[:, None], np.tile(cov[:1], (6, 1, 1))))) == 2
    turned = np.stack([cov[0], cov[0] * [[1, -1], [-1, 1]]])  # other correlations, same variances
    assert len(np.unique(row_hashes(X[:2], y[:2, None], turned))) == 2
    for given, n in ((x_var, 6), (np.tile(cov[:1], (6, 1, 1)), 2)):
        found = training_data(quick(), X, y, None, None, given, reset=True).source
        assert (found.n_rows, found.correlated, found.row_numbers) == (n, True, 3 + 4 + (n == 2))
        parts = Rows.joined(found.read(0)).x_var
        assert {tuple(row.ravel()) for row in parts} == {tuple(row.ravel()) for row in given}
    with pytest.raises(SourceError, match="covariance of the inputs' errors in row 4 is none"):
        Statistics.of(Data(X, y, x_var=np.concatenate([cov[:4], -cov[4:]])))
    with pytest.raises(ValueError, match=r"x_var has shape \(6, 2, 3\)"):
        Data(X, y, x_var=np.ones((6, 2, 3)))


# ---- covariances ---------------------------------------------------------------------------------


def test_covariances_by_name(deep, joint, data):
    X = data[0][:7]
    mean, cov = deep.predict(X, return_cov=True)
    assert (mean.shape, cov.shape) == ((7,), (7, 7))
    np.testing.assert_allclose(np.diag(cov), deep.predict_var(X), rtol=1e-12)
    assert np.linalg.eigvalsh(cov).min() > 0
    assert np.abs(cov - np.diag(np.diag(cov))).max() > 0
    mean, cov = joint.predict(X, return_cov=True)
    assert (mean.shape, cov.shape) == ((7, 2), (7, 7, 2))
    dist = joint.predict_dist(X)
    np.testing.assert_allclose(np.einsum("iid->id", cov), dist.var, rtol=1e-12)
    np.testing.assert_allclose(cov.sum(axis=(0, 1)), dist.total().var[0], rtol=1e-9)
    outputs = joint.predict(X, return_output_cov=True)[1]
    assert outputs.shape == (7, 2, 2)
    np.testing.assert_allclose(np.einsum("nii->ni", outputs), joint.predict_var(X), rtol=1e-12)
    assert deep.predict(X, return_output_cov=True)[1].shape == (7, 1, 1)
    for pair in (("return_std", "return_cov"), ("return_cov", "return_output_cov")):
        with pytest.raises(RuntimeError, match="At most one of return_std"):
            deep.predict(X, **dict.fromkeys(pair, True))


# ---- the budget ----------------------------------------------------------------------------------


def test_budgets_sum_to_the_variance(deep, joint, data):
    X = data[0][:7]
    layers = [f"weights of layer {i}" for i in (1, 2, 3)]
    plain = deep.uncertainty_budget(X)
    assert plain.names == [*layers, DISAGREE, NOISE]
    for options in ({"X_std": [0.1, 10.0]}, {"X_cov": COV}):
        for model in (deep,) if "X_std" in options else (joint,):
            budget = model.uncertainty_budget(X, **options)
            var = model.predict_dist(X, **options).var
            np.testing.assert_allclose(budget.variance.sum(axis=1), var, rtol=1e-10)
            assert (budget.variance >= 0).all()
            errors = [name for name in budget.names if name.startswith("error of")]
            assert errors == ["error of X[:, 0]", "error of X[:, 1]"]
    assert joint.uncertainty_budget(X).names == [UNTOLD, DISAGREE]
    error = deep.uncertainty_budget(X, [0.0, 10.0])
    assert error.names[0] == "error of X[:, 1]"
    assert "error of X[:, 0]" not in error.names


def test_the_budget_of_a_stack(data):
    """A linear model and a constant in one mixture; networks among members are looked at above."""
    X, y = data
    model = StackedRegressor([], random_state=0).fit(X, y[:, 0])
    for options in ({}, {"X_std": [0.1, 10.0]}, {"X_cov": COV}):
        dist = model.predict_dist(X[:5], **options)
        budget = model.uncertainty_budget(X[:5], **options)
        np.testing.assert_allclose(budget.variance.sum(axis=1), dist.var, rtol=1e-10)
        assert (budget.variance >= 0).all()
        cov = dist.rows_cov()
        np.testing.assert_allclose(cov.sum(), dist.total().var[0], rtol=1e-9)
        assert np.linalg.eigvalsh(cov).min() > 0
        errors = [name for name in budget.names if name.startswith("error of")]
        assert len(errors) == 2 * bool(options)
        assert "linear coefficients" in budget.names


# ---- files, ONNX, scikit-learn -------------------------------------------------------------------


def loaded(content, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(content)
    return FAWNRegressor.load(tmp_path / "m.safetensors")


def saved(model, tmp_path):
    model.save(tmp_path / "saved.safetensors")
    return (tmp_path / "saved.safetensors").read_bytes()


def same(a, b, X):
    one, two = a.predict_dist(X), b.predict_dist(X)
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.output_cov, two.output_cov)
    np.testing.assert_array_equal(one.rows_cov(), two.rows_cov())


def test_a_deep_model_comes_back_to_the_bit(joint, data, tmp_path):
    back = loaded(saved(joint, tmp_path), tmp_path)
    same(joint, back, data[0][:7])
    assert back.propagation == "first-order"
    assert {member.network.propagation for member in back.members_} == {"first-order"}


def test_a_file_from_before_there_was_a_choice(data, tmp_path):
    """Without the name it is what it was then, and a deep one predicts as it did."""
    X, y = data
    now = quick(propagation="independent", validation=None, max_iter=2).fit(X, y)
    now = widened(now)
    header, arrays = state(saved(now, tmp_path))
    del header["params"]["propagation"]
    for member in header["members"]:
        assert member["fields"]["network"]["fields"].pop("propagation") == "independent"
    back = loaded(resigned(header, arrays), tmp_path)
    assert back.propagation == "independent"
    assert back.members_[0].network.propagation == "independent"
    np.testing.assert_array_equal(back.predict_dist(X).var, now.predict_dist(X).var)
    for member in now.members_:  # which is another number than today's default would give
        object.__setattr__(member.network, "propagation", "first-order")
    assert (np.abs(now.predict_dist(X).var / back.predict_dist(X).var - 1) > 0.01).any()
    for version in (1, 2):
        old = FAWNRegressor.load(FIXTURES / f"regressor_format_{version}.safetensors")
        assert old.propagation == old.members_[0].network.propagation == "independent"


@pytest.mark.parametrize("value", ["nonsense", 7, None, ["first-order"]])
@pytest.mark.parametrize("where", ["params", "network"])
def test_a_file_with_a_propagation_that_is_none(joint, tmp_path, where, value):
    header, arrays = state(saved(joint, tmp_path))
    if where == "params":
        header["params"]["propagation"] = value
    else:
        header["members"][1]["fields"]["network"]["fields"]["propagation"] = value
    with pytest.raises(ModelFileError):
        loaded(resigned(header, arrays), tmp_path)


@pytest.mark.parametrize("which", ["deep", "joint"])
def test_onnx(which, data, request):
    model = request.getfixturevalue(which)
    X = data[0]
    plan = plan_of(model)
    graph = to_onnx(plan, Columns.of_plan(plan)).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(None, {"X": X}), strict=True))
    dist = model.predict_dist(X)
    scale = dist.std.max(axis=0)
    mean = dist.mean.reshape(got["mean"].shape)
    np.testing.assert_allclose(got["mean"] / scale, mean / scale, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["std"], dist.std.reshape(got["std"].shape), rtol=1e-5)
    assert ("cov" in got) == (which == "joint")
    if which == "joint":
        root = dist.std[:, :, None] * dist.std[:, None, :]
        np.testing.assert_allclose(got["cov"] / root, dist.output_cov / root, atol=1e-5)
        assert np.abs(dist.output_cov[:, 0, 1] / root[:, 0, 1]).max() > 0.1


def test_scikit_learns_parameters(data):
    assert FAWNRegressor().get_params()["propagation"] == "first-order"
    model = clone(quick(propagation="second-order"))
    assert model.propagation == "second-order"
    with pytest.raises(ValueError, match="The 'propagation' parameter of FAWNRegressor must be"):
        quick(propagation="third").fit(*data)


def test_propagation_reaches_the_network(data):
    """In training too: another propagation, another loss."""
    X, y = data
    losses = set()
    for name in ("first-order", "independent"):
        model = quick(propagation=name, validation=None, max_iter=3).fit(X, y[:, 0])
        assert model.members_[0].network.propagation == name
        losses.add(model.loss_)
    assert len(losses) == 2


def test_the_distribution_of_a_total(deep, data):
    """The public way: a Predictive of one row, right about means and wider than of rows alone."""
    dist = deep.predict_dist(data[0][:7])
    total = dist.total()
    assert isinstance(total, Predictive)
    np.testing.assert_allclose(total.mean, [dist.mean.sum()], rtol=1e-12)
    assert total.var[0] > dist.var.sum()
