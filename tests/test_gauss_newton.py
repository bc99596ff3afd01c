"""The covariance of all weights together, against Bayesian regression worked out in NumPy."""

import numpy as np
import pytest

from test_persistence import resigned, state
from varprop import Data, FAWNRegressor, StackedRegressor, export, priors
from varprop.estimators.members import to_jax
from varprop.estimators.stack import default_networks
from varprop.files.container import ModelFileError
from varprop.training import Recipe, StopRule

pytestmark = pytest.mark.usefixtures("as_users_run_it")
N, STD, KL = 40, 0.5, 2.0
STILL = Recipe(
    learning_rate=0.03,
    kl_warmup=0,
    cooldown=1500,
    max_steps=3000,
    batch_size=None,
    stop=StopRule(tol=0.0),
)


def small(**options):
    start = {
        "hidden_layer_sizes": (),
        "objective": "vi",
        "prior": priors.FixedGaussian(0.0, STD),
        "row_covariance": "gauss-newton",
        "dtype": "float64",
        "validation": None,
        "random_state": 0,
    }
    return FAWNRegressor(**start | options)


@pytest.fixture(scope="module")
def table():
    """Inputs that are correlated, so that weights are, with row weights and new rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N + 300, 3)) @ np.array([[1.0, 0.7, 0.7], [0.0, 0.6, 0.0], [0, 0, 0.6]])
    y = x @ [1.0, -0.7, 0.3] + 0.5 * rng.normal(size=N + 300)
    x, y = 4.0 + 30 * x, 1000 + 70 * y
    return x[:N], y[:N], rng.uniform(0.2, 2.0, N), x[N:]


def design(model, x):
    return np.column_stack([(x - model.scaling_.x_shift) / model.scaling_.x_scale, np.ones(len(x))])


def test_without_hidden_layers_it_is_bayesian_regression(table):
    """Between rows exactly; a row by itself has the larger of its two variances."""
    x, y, weight, new = table
    model = small(recipe=STILL, kl_weight=KL).fit(x, y, weight)
    p, q, unit = design(model, x), design(model, new), model.scaling_.y_scale[0] ** 2
    noise = model.noise_std_[0] ** 2 / unit
    precision = p.T @ (weight[:, None] * p) / noise / KL + np.eye(4) / STD**2
    exact = q @ np.linalg.solve(precision, q.T)
    alone = q**2 @ (1 / np.diag(precision))  # of weights learned as independent
    assert 0.2 < np.mean(np.diag(exact) > alone) < 0.9  # both happen
    assert np.abs(np.diag(exact) / alone - 1).max() > 0.3
    truth = exact.copy()
    np.fill_diagonal(truth, np.maximum(alone, np.diag(exact)))
    dist = model.predict_dist(new)
    np.testing.assert_allclose(dist.model_var, unit * np.diag(truth), rtol=1e-3)
    cov = dist.rows_cov() - np.diag(dist.noise_var)  # in more than one block
    np.testing.assert_allclose(cov, unit * truth, rtol=1e-3, atol=1e-4 * unit * truth.max())
    assert np.linalg.eigvalsh(cov).min() > -1e-9 * unit
    by = np.random.default_rng(1).normal(size=(2, 300))
    for weights in (np.ones(300), by[0], by[1] * (np.arange(300) < 20)):
        expected = unit * (weights @ truth @ weights + noise * weights @ weights)
        np.testing.assert_allclose(dist.combine(weights).var, [expected], rtol=1e-3)
    other = small(recipe=STILL, kl_weight=KL, row_covariance="weights").fit(x, y, weight)
    kept_apart = other.predict_dist(new)
    np.testing.assert_array_equal(kept_apart.mean, dist.mean)
    assert abs(kept_apart.total().std[0] / dist.total().std[0] - 1) > 0.02  # it makes a difference


def test_two_thousand_totals_of_bayesian_regression():
    """Weights of the prior, known noise: 90 % intervals by the kernel hold 90 % of the totals.

    With 2,000 totals a right one fails in one case of 10^6 (4.9 standard errors of 0.0067).
    """
    rng = np.random.default_rng(7)
    x = rng.normal(size=(330, 3)) @ np.array([[1.0, 0.9, 0.9], [0.0, 0.4, 0.0], [0.0, 0.0, 0.4]])
    model = small(max_iter=1).fit(x[:30], x[:30] @ [1.0, 1.0, 1.0])
    p, q = design(model, x[:30]), design(model, x[30:])
    # Whatever was learned, as the model of these rows: the noise it has, the root it keeps.
    noise = float(np.exp(2 * model.members_[0].likelihood.log_std[0]))
    unit = model.scaling_.y_scale[0]
    precision = p.T @ p / noise + np.eye(4) / STD**2
    draws = STD * rng.normal(size=(2000, 4))
    y = draws @ p.T + np.sqrt(noise) * rng.normal(size=(2000, 30))
    mean = np.linalg.solve(precision, p.T @ y.T / noise).T
    truth = (draws @ q.T + np.sqrt(noise) * rng.normal(size=(2000, 300))).sum(axis=1)
    std = model.predict_dist(x[30:]).total().std[0] / unit
    held = np.abs(truth - (mean @ q.T).sum(axis=1)) <= 1.6449 * std
    assert abs(held.mean() - 0.9) < 4.9 * 0.0067 + 0.005  # the last: rows have the larger variance


def numerical_slopes(member, x):
    """Central differences of the network's mean by every weight's mean, by hand for one layer."""
    network = member.network
    first, last = network.layers[0], network.layers[-1]
    parts = [np.array(w.mean) for w in (first.weight, first.bias, last.weight, last.bias)]
    spreads = [np.exp(2 * np.array(w.log_std)) for w in (first.weight, first.bias)]

    def mean(parts):
        from scipy.stats import norm

        w, b, u, c = parts
        a, s = x @ w.T + b, np.sqrt(x**2 @ spreads[0].T + spreads[1])
        return (a * norm.cdf(a / s) + s * norm.pdf(a / s)) @ u.T + c

    columns = []
    for number, part in enumerate(parts):
        for place in np.ndindex(part.shape):
            changed = [[q.copy() for q in parts] for _ in range(2)]
            changed[0][number][place] += 1e-5
            changed[1][number][place] -= 1e-5
            columns.append((mean(changed[0]) - mean(changed[1]))[:, :] / 2e-5)
    return np.stack(columns, axis=-1)  # (rows, targets, weights)


@pytest.mark.parametrize("objective", ["vi", "ropd"])
def test_with_a_hidden_layer_by_differences(table, objective):
    """ROPD does not tell noise apart: there a row's whole variance is what it has for itself."""
    x, y, _, new = table
    y = np.column_stack([y, x[:, 0] * y])
    options = {"hidden_layer_sizes": (4,), "max_iter": 500, "objective": objective}
    model = small(**options).fit(x, y)
    member, scale = model.members_[0], model.scaling_
    z, znew = ((part - scale.x_shift) / scale.x_scale for part in (x, new[:7]))
    slopes, other = numerical_slopes(member, z), numerical_slopes(member, znew)
    noise = np.tile(np.exp(2 * member.likelihood.log_std), (N, 1))
    if objective == "ropd":
        without = small(**options | {"row_covariance": "weights"}).fit(x, y)
        noise = without.predict_dist(x).var / scale.y_scale**2
    precision = np.eye(slopes.shape[-1]) / STD**2
    for target in range(2):
        precision += slopes[:, target].T @ (slopes[:, target] / noise[:, target, None])
    inverse = np.linalg.inv(precision)
    root = np.asarray(member.weight_root)
    np.testing.assert_allclose(root @ root.T, inverse, rtol=1e-5, atol=1e-7 * inverse.max())
    cov = model.predict_dist(new[:7]).rows_cov() / scale.y_scale**2
    expected = np.einsum("ntp,pq,mtq->nmt", other, inverse, other)
    off = ~np.eye(7, dtype=bool)
    np.testing.assert_allclose(cov[off], expected[off], rtol=1e-5, atol=1e-7)


def test_members_of_a_bag_know_their_own_rows(table):
    """The precision of each is that of its training rows, a fifth less but for the first."""
    x, y, _, _ = table
    model = small(validation="bag", max_iter=100).fit(x, y)
    p, sizes = design(model, x), []
    for member in model.members_:
        root = np.asarray(member.weight_root)
        noise = float(np.exp(2 * member.likelihood.log_std[0]))
        gram = (np.linalg.inv(root @ root.T) - np.eye(4) / STD**2) * noise
        sizes.append(gram[3, 3])  # the intercept counts rows
        if len(sizes) == 1:
            np.testing.assert_allclose(gram, p.T @ p, rtol=1e-6, atol=1e-6 * N)
    np.testing.assert_allclose(sizes, [N] + [N * 4 // 5] * 5, rtol=1e-6)


def test_outputs_with_covariance_and_noise_that_depends_on_the_input(table):
    """What is known of rows together stays positive semidefinite; rows keep at least their own."""
    x, y, _, new = table
    for options in ({"output_covariance": True}, {"likelihood": "heteroscedastic"}):
        options |= {"hidden_layer_sizes": (5, 5), "max_iter": 60, "dtype": "float32"}
        targets = np.column_stack([y, -y]) if "output_covariance" in options else y
        model = small(**options).fit(x, targets)
        without = small(**options, row_covariance="weights").fit(x, targets)
        dist, other = model.predict_dist(new[:50]), without.predict_dist(new[:50])
        np.testing.assert_array_equal(dist.mean, other.mean)
        assert (dist.var >= other.var * (1 - 1e-6)).all()
        cov = np.atleast_3d(dist.rows_cov())
        for target in range(cov.shape[-1]):
            least = np.linalg.eigvalsh(cov[..., target]).min()
            assert least > -1e-9 * cov[..., target].max()
        np.testing.assert_allclose(np.einsum("iik->ik", cov), dist.var.reshape(50, -1), rtol=1e-9)


def test_it_is_kept_and_goes_with_training(table, tmp_path):
    x, y, _, new = table
    model = small(hidden_layer_sizes=(3,), max_iter=30, dtype="float32", warm_start=True).fit(x, y)
    before = np.asarray(model.members_[0].weight_root)
    assert before.dtype == np.float32
    path = tmp_path / "model.safetensors"
    model.save(path)
    again = FAWNRegressor.load(path)
    np.testing.assert_array_equal(again.members_[0].weight_root, before)
    one, two = (part.predict_dist(new) for part in (model, again))
    np.testing.assert_array_equal(one.total().std, two.total().std)
    with pytest.raises(ValueError, match="row_covariance='gauss-newton' has no plan"):
        export(model, tmp_path / "model.onnx", to="onnx")
    header, arrays = state(path.read_bytes())
    arrays["member.0.weight_root"] = before[:5, :5].copy()
    path.write_bytes(resigned(header, arrays))
    with pytest.raises(ModelFileError, match="no network of this description"):
        FAWNRegressor.load(path)
    model.fit(x, y)  # goes on, and looks again
    assert not np.array_equal(model.members_[0].weight_root, before)
    model.partial_fit(x, y)  # other weights than those it was of
    assert model.members_[0].weight_root is None
    from_source = small(max_iter=30).fit(Data(x, y))
    direct = small(max_iter=30).fit(x, y)
    np.testing.assert_array_equal(
        to_jax(from_source.members_[0]).weight_root, to_jax(direct.members_[0]).weight_root
    )


def test_a_stack_takes_it(table):
    x, y, _, new = table
    networks = default_networks(hidden_layer_sizes=(4,), max_iter=30, row_covariance="gauss-newton")
    model = StackedRegressor(networks, random_state=0).fit(x, y)
    assert all(m.weight_root is not None for _, net in model.estimators_ for m in net.members_)
    total = model.predict_dist(new).total()
    assert np.isfinite(total.std).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weights": "bernoulli", "prior": "learned"}, "is for weights='gaussian' only"),
        ({"hidden_layer_sizes": (60, 70)}, "at most 4,000 weights, but the network has 4,581"),
        ({"kl_weight": 0.0}, "needs a prior: choose a kl_weight above 0"),
    ],
)
def test_what_has_no_such_covariance(table, options, sentence):
    x, y, _, _ = table
    with pytest.raises(ValueError, match=sentence) as error:
        small(max_iter=1, **options).fit(x, y)
    assert str(error.value).count(". ") == 0
