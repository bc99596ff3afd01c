"""A plan, run by NumPy, predicts what JAX predicts; a file's plan is read without JAX.

JAX's side runs in float64, so that only rounding may differ; models of float32 differ by theirs.
"""

import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.preprocessing import PowerTransformer

from cli_runs import run_json, workplace
from varprop import (
    FAWNClassifier,
    FAWNRegressor,
    Gaussian,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    JointGaussian,
    Recipe,
    StackedClassifier,
    StackedRegressor,
    default_class_networks,
    nn,
    regression_model,
)
from varprop.data.statistics import Scaling
from varprop.files.container import ModelFileError, read_model_file, write_model_file
from varprop.files.model import describe
from varprop.files.plan import _node, load_plan, network_of
from varprop.files.planning import network_plan, plan_of
from varprop.learning.likelihoods import (
    AbstractPointwise,
    BernoulliLikelihood,
    Categorical,
    LogNormal,
    Ordinal,
    Poisson,
    StudentT,
    YeoJohnsonLikelihood,
)
from varprop.nn.activations import AbstractActivation
from varprop.nn.registry import _CLASSES
from varprop.plans.ends import CLASS_ENDS, ENDS, target_moments
from varprop.plans.plan import Networks, Plan
from varprop.plans.propagation import propagated
from varprop.plans.rules import RULES
from varprop.plans.steps import PlanError
from varprop.predictive.normal import normal_cdf, normal_quantile
from varprop.tables.model import TableModel

pytestmark = pytest.mark.usefixtures("as_users_run_it")
FIXTURES = pathlib.Path(__file__).parent / "fixtures"
RNG = np.random.default_rng(0)
# A row far from the others, at which tails count.
X = np.vstack([RNG.normal(size=(5, 3)), [[6.0, -9.0, 4.0]]])
X_VAR = np.where(RNG.uniform(size=X.shape) < 0.3, 0.0, RNG.uniform(0.1, 3.0, X.shape))
PROPAGATIONS = ("first-order", "second-order", "independent")
ACTIVATIONS = [nn.Identity, nn.ReLU, nn.LeakyReLU, nn.Heaviside, nn.Erf, nn.Sigmoid, nn.Tanh]
ACTIVATIONS += [nn.GELU, nn.SiLU, nn.Softplus]


def wide(key, shape):
    """Weights whose spread makes units vary by about as much as they are large."""
    return nn.GaussianWeights.init(key, shape, scale=0.7, std=0.5)


def model_of(**options):
    settings = {"hidden_layer_sizes": (4, 3), "weights": wide, "key": jax.random.key(1)} | options
    return regression_model(3, settings.pop("d", 2), **settings)


def compare(model, network, x_var, rtol=1e-11):
    """All components of JAX's prediction against those of a plan; of each the largest entry."""
    given = Gaussian(jnp.asarray(X), None if x_var is None else jnp.asarray(x_var))
    expected = model.predictive(given)
    out = propagated(network.steps, network.propagation, X, x_var)
    found = ENDS[network.likelihood].parts(out, network.numbers)
    assert len(found) == len(expected)
    for want, got in zip(expected, found, strict=True):
        pairs = [(want.model.mean, got.mean), (want.model.variances(), got.var)]
        assert got.weight == pytest.approx(float(want.weight), rel=rtol)
        pairs.append((want.noise_var, got.noise))
        assert isinstance(want.model, JointGaussian) == (got.cov is not None)
        if got.cov is not None:
            pairs.append((want.model.dense_cov(), got.cov))
        for a, b in pairs:
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol * np.abs(a).max())
        assert np.all(got.var >= 0)


def test_every_activation_of_the_library_has_a_rule():
    known = {
        name
        for name, kind in _CLASSES.items()
        if issubclass(kind, AbstractActivation) and kind.__module__.startswith("varprop.")
    }
    assert known == set(RULES) == {kind.__name__ for kind in ACTIVATIONS}


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(x64, activation, propagation):
    model = model_of(activation=activation(), propagation=propagation, joint=True)
    network = network_plan(model, 3)
    for x_var in (None, X_VAR):
        compare(model, network, x_var)


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("hidden", [(), (4,), (3, 3, 2)])
@pytest.mark.parametrize("likelihood", [GaussianLikelihood, HeteroscedasticGaussian, StudentT])
def test_structures(x64, hidden, propagation, likelihood):
    for d, joint in ((1, False), (2, False), (2, True)):
        options = {"hidden_layer_sizes": hidden, "propagation": propagation, "joint": joint}
        model = model_of(d=d, likelihood=likelihood, **options)
        network = network_plan(model, 3)
        compare(model, network, None)
        compare(model, network, X_VAR)


@pytest.mark.parametrize("odds", [(-20.0, 0.7), (0.0, 20.0)])
def test_targets_behind_a_transform(x64, odds):
    """Moments of the targets against adaptive quadrature of scikit-learn's transform."""
    likelihood = YeoJohnsonLikelihood(GaussianLikelihood(np.array([0.6, 0.3])), jnp.asarray(odds))
    model = dataclasses.replace(model_of(), likelihood=likelihood)
    network = network_plan(model, 3)
    compare(model, network, None)
    out = propagated(network.steps, network.propagation, X, None)
    (part,) = ENDS[network.likelihood].parts(out, network.numbers)
    np.testing.assert_allclose(part.power, likelihood.power, rtol=1e-12, atol=1e-12)
    mean, var = target_moments(part)
    total = part.var + part.noise
    for row, target in ((0, 0), (3, 1)):
        middle, std = part.mean[row, target], np.sqrt(total[row, target])
        warp = PowerTransformer(standardize=False).fit(np.array([[0.0], [1.0]]))
        warp.lambdas_ = np.array(likelihood.power[target : target + 1])

        def averaged(power, middle=middle, std=std, warp=warp):
            def integrand(z):
                y = warp.inverse_transform([[middle + std * z]])[0, 0]
                return y**power * stats.norm.pdf(z)

            kink = -middle / std
            ends = [-9.0, *([kink] if abs(kink) < 9 else []), 9.0]
            return sum(integrate.quad(integrand, *pair)[0] for pair in itertools.pairwise(ends))

        first = averaged(1)
        assert mean[row, target] == pytest.approx(first, abs=1e-4 * np.sqrt(var[row, target]))
        assert var[row, target] == pytest.approx(averaged(2) - first**2, rel=2e-4)


# Made when asked for, so that the precision of the day applies.
PARTS = {
    "bernoulli": lambda: {"weights": nn.BernoulliWeights.init},
    "points": lambda: {"weights": nn.PointWeights.init},
    "points and noise": lambda: {"weights": nn.PointWeights.init, "hidden_noise": nn.Dropout(0.3)},
    "no bias": lambda: {"bias": False},
    "dropout": lambda: {
        "hidden_noise": nn.Dropout(0.2),
        "input_noise": nn.Dropout(0.1, rescale=False),
    },
    "additive": lambda: {"input_noise": nn.AdditiveNoise(nn.Uniform(-0.5, 1.0))},
    "factors": lambda: {"hidden_noise": nn.MultiplicativeNoise(nn.Normal(0.9, 0.3))},
    "on weights": lambda: {
        "weight_noise": nn.DropConnect(0.2),
        "bias_noise": nn.GaussianWeightNoise(0.3),
    },
    "slope": lambda: {"activation": nn.LeakyReLU(-0.7)},
    "nodes": lambda: {"activation": nn.GELU(n_nodes=7)},
}


@pytest.mark.parametrize("propagation", PROPAGATIONS)
@pytest.mark.parametrize("part", PARTS)
def test_parts_as_files_hold_them(x64, part, propagation):
    """What NumPy makes of a file's arrays, and what JAX makes of the object."""
    model = model_of(**PARTS[part](), propagation=propagation)
    network = network_of(described(model), 3, 2)
    compare(model, network, None)
    compare(model, network, X_VAR)
    compare(model, network_plan(model, 3), X_VAR)


def test_noise_above_a_floor(x64):
    floor = jnp.array([0.3, 0.1])
    ends = [
        GaussianLikelihood(jnp.array([0.5, 2.0]), floor=floor),
        HeteroscedasticGaussian(jnp.array([0.5, 2.0]), floor=floor),
        StudentT(jnp.array([-1.0, 0.5]), jnp.array(-2.5), floor=floor),
    ]
    for end in ends:
        model = dataclasses.replace(model_of(likelihood=type(end)), likelihood=end)
        compare(model, network_plan(model, 3), X_VAR)


CLASS_LIKELIHOODS = [
    lambda: BernoulliLikelihood(0.4),
    lambda: BernoulliLikelihood(-0.4, link="probit"),
    lambda: Categorical([0.1, -2.0, 0.7, 0.0]),
    lambda: Ordinal([-1.5, 0.2]),
    lambda: Ordinal([-0.3]),
]


@pytest.mark.parametrize("make", CLASS_LIKELIHOODS)
@pytest.mark.parametrize("joint", [False, True])
def test_classes(x64, make, joint):
    """Probabilities and mean entropy; large outputs too, of which one class is as good as sure."""
    end = make()
    for scale in (1.0, 40.0):
        model = model_of(d=end.n_outputs, joint=joint)
        weight = model.network.layers[-1].weight
        larger = eqx.tree_at(lambda w: w.mean, weight, weight.mean * scale)
        model = eqx.tree_at(lambda m: m.network.layers[-1].weight, model, larger)
        model = dataclasses.replace(model, likelihood=end)
        plan = network_plan(model, 3)
        for x_var in (None, X_VAR):
            (want,) = model.predictive(
                Gaussian(jnp.asarray(X), None if x_var is None else jnp.asarray(x_var))
            )
            out = propagated(plan.steps, plan.propagation, X, x_var)
            (got,) = CLASS_ENDS[plan.likelihood].parts(out, plan.numbers)
            assert got.weight == 1
            np.testing.assert_allclose(got.probability, want.probability, rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(got.aleatoric, want.aleatoric, rtol=1e-9, atol=1e-12)
    with pytest.raises(ModelFileError, match="numbers of the likelihood"):
        network_of(described(model), 3, 1, n_classes=7)
    with pytest.raises(PlanError, match="has no plan"):
        network_of(described(model), 3, 1)


def described(model):
    """Return a model as a file has it."""
    tree, arrays = describe(model, "member.0")
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    return _node(json.loads(json.dumps(tree)), arrays)


@pytest.mark.parametrize("kind", ["logit", "probit", "softmax", "ordinal"])
@pytest.mark.parametrize("stacked", [False, True])
def test_classifiers_from_a_file(tmp_path, kind, stacked):
    x, y = table(60)
    two = kind in ("logit", "probit")
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.0] if two else [-0.5, 0.5])]
    options = {"hidden_layer_sizes": 3, "max_iter": 5, "likelihood": kind}
    model = FAWNClassifier(**options, n_members=2, objective="ropd", random_state=0)
    if stacked:
        model = StackedClassifier(default_class_networks(**options), random_state=0)
    model.fit(x, labels)
    if stacked:
        model.weights_ = dict(zip(model.weights_, (0.4, 0.2, 0.3, 0.1), strict=True))
    else:
        model.trust_ = 0.75
    model.save(tmp_path / "m")
    x_std = np.array([2e-4, 0.5, 0.0]) * np.ones_like(x)
    for plan in (load_plan(tmp_path / "m")[0], plan_of(model)):
        for errors in (None, x_std):
            want, got = model.predict_dist(x, errors), plan.predict_dist(x, errors)
            np.testing.assert_allclose(got.proba, want.proba, rtol=5e-5, atol=1e-6)
            np.testing.assert_allclose(got.aleatoric, want.aleatoric, rtol=5e-4, atol=1e-5)
            assert got.classes.tolist() == want.classes.tolist()
            assert got.ordered == want.ordered == (kind == "ordinal")
    for name in plan.weights_ if stacked else ():
        want, got = (m.predict_dist(x, model=name) for m in (model, plan))
        np.testing.assert_allclose(got.proba, want.proba, rtol=5e-5, atol=1e-6)
        assert got.ordered == want.ordered
    header, arrays = read_model_file(tmp_path / "m", lambda header, table: None)
    write_model_file(tmp_path / "n", header, {**arrays, "constant": np.ones(7) / 7})
    with pytest.raises(ModelFileError, match="frequencies of the classes"):
        load_plan(tmp_path / "n")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kl_weight": 0.3}, False),
        ({"recipe": Recipe(kl_weight=0.5, max_steps=2)}, False),
        ({"recipe": Recipe(kl_weight=0.5, max_steps=2), "kl_weight": 1.0}, True),
        ({}, True),
    ],
)
def test_what_counts_less_of_the_kl_tells_nothing_apart(tmp_path, options, told):
    """By a plan from a file, which has the arguments only, as by the model itself."""
    x, y = table(40)
    model = FAWNRegressor(3, objective="vi", max_iter=2, validation=None, **options).fit(x, y)
    model.save(tmp_path / "m")
    for one in (model, plan_of(model), load_plan(tmp_path / "m")[0]):
        assert one.predict_dist(x).identified is told
    header, arrays = read_model_file(tmp_path / "m", lambda header, table: None)
    header["params"]["recipe"] = {"recipe": {"kl_weight": "all"}}
    write_model_file(tmp_path / "n", header, arrays)
    with pytest.raises(ModelFileError, match="kl_weight of a network is damaged"):
        load_plan(tmp_path / "n")


# ---- users' own ---------------------------------------------------------------------------------


class Wave(nn.AbstractActivation):
    """Half a sine, in closed form, with a condition."""

    def __call__(self, x):
        return jnp.where(x > -100, jnp.sin(x) / 2, 0.0)

    def uncertain_moments(self, mean, var):
        bell = jnp.exp(-var / 2)
        second = (1 - bell**4 * jnp.cos(2 * mean)) / 8
        return bell * jnp.sin(mean) / 2, second - (bell * jnp.sin(mean) / 2) ** 2


class Flip(nn.AbstractNoise):
    """Each entry changes its sign with probability 0.2."""

    def moments(self, x):
        mean = 0.6 * x.mean
        return Gaussian(mean, x.second_moment() - mean**2)

    def corrupt(self, key, x):
        return jnp.where(jax.random.bernoulli(key, 0.2, x.shape), -x, x)


@pytest.mark.parametrize(
    "own",
    [
        {"activation": Wave()},
        {"activation": nn.GaussHermite(jnp.cos, n_nodes=9)},
        {"activation": nn.Unscented(jax.nn.gelu)},
        {"hidden_noise": Flip()},
        {"weight_noise": Flip()},
    ],
    ids=["moments", "quadrature", "unscented", "noise", "weights"],
)
def test_own_functions_are_written_down(x64, own):
    for propagation in PROPAGATIONS:
        model = model_of(**own, propagation=propagation)
        network = network_plan(model, 3)
        json.dumps([vars(step.known) for step in network.steps if hasattr(step, "known")])
        compare(model, network, None)
        compare(model, network, X_VAR)


class Laplace(AbstractPointwise):
    """A likelihood of a user's own."""

    scale: jax.Array

    @classmethod
    def start(cls, n_targets, *, noise_std=0.5, y=None):
        return cls(jnp.full(n_targets, noise_std))

    @property
    def n_targets(self):
        return len(self.scale)

    def log_prob(self, f, y):
        return -jnp.abs(y - f) / self.scale - jnp.log(2 * self.scale)

    def predictive(self, f):
        raise NotImplementedError


class Pool(nn.AbstractLayer):
    """A layer of a user's own: the sum of its inputs."""

    def moments(self, x):
        return Gaussian(x.mean.sum(-1, keepdims=True), x.variances().sum(-1, keepdims=True))

    def sample(self, key):
        return lambda x: x.sum(-1, keepdims=True)


def test_what_has_no_plan_is_named():
    for own in (LogNormal, Poisson):
        with pytest.raises(PlanError, match=f"the likelihood {own.__name__} has no plan"):
            network_plan(model_of(d=1, likelihood=own), 3)
    with pytest.raises(PlanError, match="Laplace has no plan"):
        network_plan(model_of(likelihood=Laplace), 3)
    model = model_of(d=1)
    model = dataclasses.replace(model, network=nn.Sequential([Pool()]))
    with pytest.raises(PlanError, match="Pool has no plan"):
        network_plan(model, 3)
    with pytest.raises(PlanError, match="uses the operation 'lgamma', which cannot be written"):
        network_plan(model_of(activation=nn.GaussHermite(jax.lax.lgamma)), 3)
    tree, arrays = describe(model_of(), "member.0")
    tree["fields"]["network"]["fields"]["layers"]["tuple"][1]["class"] = "Mystery"
    with pytest.raises(PlanError, match="a layer of the class Mystery has no plan"):
        network_of(_node(tree, arrays), 3, 2)


# ---- estimators and files -----------------------------------------------------------------------


def table(n=40, d=1):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 3)) * [1e-3, 1.0, 100.0] + [1.7e3, 0.0, -5.0]
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.column_stack([np.sin(z[:, 0]) + 0.1 * z[:, 1], 1e6 * z[:, 1] * z[:, 2]])
    return x, y[:, 0] if d == 1 else y


def same(plan, regressor, x, x_std=None, *, rtol, **choice):
    want, got = (m.predict_dist(x, x_std, **choice) for m in (regressor, plan))
    assert got.member_mean.shape == want.member_mean.shape
    assert (got.identified, got.is_joint, got.shape) == (want.identified, want.is_joint, want.shape)
    scale = want.std.max(axis=0)
    np.testing.assert_allclose(got.mean / scale, want.mean / scale, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(got.std, want.std, rtol=rtol)
    if want.identified:
        np.testing.assert_allclose(got.noise_std, want.noise_std, rtol=rtol)
    np.testing.assert_allclose(
        got.quantile(0.95) / scale, want.quantile(0.95) / scale, rtol=rtol, atol=rtol
    )
    return got


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stack_from_a_file(tmp_path, dtype):
    """Networks of two kinds, a linear model and the constant; with errors of the inputs too."""
    x, y = table()
    common = {"hidden_layer_sizes": 4, "max_iter": 5, "dtype": dtype}
    noisy = {"objective": "vi", "likelihood": "heteroscedastic", "prior": "ard"}
    networks = [("a", FAWNRegressor(**common)), ("b", FAWNRegressor(**common, **noisy))]
    model = StackedRegressor(networks, random_state=0).fit(x, y)
    model.weights_ = {"a": 0.3, "b": 0.3, "linear": 0.25, "constant": 0.15}
    model.save(tmp_path / "m")
    plan, content = load_plan(tmp_path / "m")
    rtol = 2e-5 if dtype == "float32" else 1e-9
    x_std = np.array([2e-4, 0.5, 0.0]) * np.ones_like(x)
    for other in (plan, plan_of(model)):
        same(other, model, x, rtol=rtol)
        same(other, model, x, x_std, rtol=rtol)
        for name in model.weights_:
            same(other, model, x, x_std, rtol=rtol, model=name)
    assert content is None
    assert plan.domain_ is not None
    assert repr(plan).startswith("Plan({'a': 0.3")
    with pytest.raises(ValueError, match="row by row"):
        plan.predict_dist(x).rows_cov()


def test_a_network_from_a_file(tmp_path):
    """With what it is trusted, joint outputs, members and names."""
    import pandas as pd

    x, y = table(d=2)
    frame, targets = pd.DataFrame(x, columns=["a", "b", "c"]), pd.DataFrame(y, columns=["u", "v"])
    options = {"n_members": 2, "output_covariance": True}
    model = FAWNRegressor((3, 3), max_iter=5, random_state=0, **options).fit(frame, targets)
    model.trust_ = 0.75
    model.save(tmp_path / "m")
    plan, _ = load_plan(tmp_path / "m")
    del model.feature_names_in_  # of which it would say that arrays have none
    found = same(plan, model, x, rtol=2e-5)
    want = model.predict_dist(x).output_cov
    size = np.sqrt(np.einsum("nii,njj->nij", want, want))
    np.testing.assert_allclose(found.output_cov / size, want / size, atol=2e-5)
    assert plan.weights_ == {"network": 0.75, "constant": 0.25}
    assert (plan.feature_names_in_, plan.target_names_) == (("a", "b", "c"), ("u", "v"))


def test_rows_do_not_know_of_one_another(x64):
    """Rows come in blocks, whose number must not be seen."""
    network = network_plan(model_of(d=1, likelihood=HeteroscedasticGaussian), 3)
    scaling = StackedRegressor([]).fit(*table()).scaling_
    plan = Plan(scaling, {"n": Networks((network,), True)}, {"n": 1.0}, squeeze=True)
    x = scaling.x_shift + scaling.x_scale * np.random.default_rng(0).normal(size=(20_000, 3))
    whole = plan.predict_dist(x)
    for rows in (slice(0, 1), slice(8191, 8194), slice(19_999, None)):
        part = plan.predict_dist(x[rows])
        np.testing.assert_allclose(part.mean, whole.mean[rows], rtol=1e-12)
        np.testing.assert_allclose(part.model_var, whole.model_var[rows], rtol=1e-12)
        np.testing.assert_allclose(part.noise_var, whole.noise_var[rows], rtol=1e-12)
    assert plan.predict_dist(x[:0]).mean.shape == (0,)


def test_a_row_too_far_away_is_an_error(x64):
    plan = plan_of(FAWNRegressor(3, max_iter=1, validation=None, random_state=0).fit(*table()))
    with pytest.raises(ValueError, match="row 1 is not finite"):
        plan.predict_dist(np.array([[0.0, 0.0, 0.0], [1e200, 0.0, 0.0]]))


def test_files_of_earlier_versions():
    with pytest.raises(PlanError, match="format 1"):
        load_plan(FIXTURES / "regressor_format_1.safetensors")
    old = FIXTURES / "regressor_format_2.safetensors"
    model, rng = FAWNRegressor.load(old), np.random.default_rng(0)
    del model.feature_names_in_  # of which it would say that arrays have none
    scaling = model.scaling_
    rows = scaling.x_shift + scaling.x_scale * rng.normal(size=(5, len(scaling.x_shift)))
    same(load_plan(old)[0], model, rows, rtol=2e-5)


def damaged(header, arrays):
    """Yield files that lie in one place each."""
    members = [entry["regressor"]["members"] for entry in header["networks"]]
    layers = members[0][0]["fields"]["network"]["fields"]["layers"]["tuple"]
    likelihood = members[0][0]["fields"]["likelihood"]["fields"]
    yield layers.pop, ()
    yield layers.clear, ()
    yield layers.__setitem__, (0, 7)
    yield layers.__setitem__, (0, {"class": "Dense", "fields": {}})
    yield layers[0]["fields"].__setitem__, ("weight", {"array": "missing"})
    yield layers[0]["fields"].__setitem__, ("weight", layers[0]["fields"]["bias"])
    yield likelihood.clear, ()
    yield likelihood.__setitem__, ("log_std", layers[0]["fields"]["bias"]["fields"]["mean"])
    yield members[0][0]["fields"]["network"]["fields"].__setitem__, ("propagation", "sideways")
    yield members[0].clear, ()
    yield members[0].__setitem__, (0, None)
    yield arrays.__setitem__, ("other", np.zeros(2))
    yield arrays.pop, ("scaling.x_scale",)
    yield arrays.__setitem__, ("scaling.x_scale", -arrays["scaling.x_scale"])
    yield arrays.__setitem__, ("network.0.shares", np.ones_like(arrays["network.0.shares"]))


@pytest.mark.parametrize("number", range(15))
def test_a_damaged_file_is_one_sentence(tmp_path, number):
    path = workplace() / "impute.safetensors"
    header, arrays = read_model_file(path, lambda header, table: None)
    change, arguments = list(damaged(header, arrays))[number]
    change(*arguments)
    write_model_file(tmp_path / "m", header, arrays)
    with pytest.raises(ModelFileError):
        load_plan(tmp_path / "m")
    assert len(list(damaged(*read_model_file(path, lambda header, table: None)))) == 15


# ---- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["impute", "drop", "two"])
def test_predictions_of_the_command_line_are_those_of_jax(name, tmp_path):
    place = workplace()
    lines = (place / "full.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines]
    cells[3][2] = "" if name == "impute" else cells[3][2]  # a number that is not known
    cells[4][3] = "Rom"  # a category that training did not have
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, cells)) + "\n")
    path = place / f"{name}.safetensors"
    said = run_json("predict", path, tmp_path / "t.csv", "--unseen", "average")["predictions"]
    model = TableModel.load(path)
    assert isinstance(TableModel.load_plan(path).regressor, Plan)
    from varprop.tables.model import TableRows
    from varprop.tables.source import open_source

    source = open_source(str(tmp_path / "t.csv"))
    (rows,) = TableRows(source, model.preprocessing, unseen="average", targets=False).encoded()
    want = model.predict_dist(rows, source.where)
    first = "" if name != "two" else "price_"
    mean, std = (a if a.ndim == 1 else a[:, 0] for a in (want.mean, want.std))
    lower, upper = (a if a.ndim == 1 else a[:, 0] for a in want.interval(0.9))
    for column, values in (("mean", mean), ("std", std), ("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(said[first + column], values, rtol=1e-5)


HEAVY = ["jax", "equinox", "scipy", "sklearn", "pandas", "matplotlib", "onnx"]


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [(("rooms", "rooms"), 0, ""), (("rooms", "roms"), 3, "has no column 'rooms'")],
    ids=["predictions", "misspelt"],
)
@pytest.mark.parametrize("part", ["vi", None])
def test_predict_imports_nothing_heavy(tmp_path, change, code, says, part):
    """What makes it slow is what it imports; times would depend on the machine.

    Quantiles of mixtures with a network behind a transform are roots that SciPy finds.
    """
    place = workplace()
    text = (place / "full.csv").read_text().replace(*change).splitlines()[:3]
    (tmp_path / "two.csv").write_text("\n".join(text) + "\n")
    program = f"""
import atexit, os, sys
from varprop.cli import app
def ended(code):
    print([name for name in {HEAVY} if name in sys.modules], code, file=sys.stderr)
sys.argv = ["varprop", "predict", {str(place / "drop.safetensors")!r}, "two.csv", "-q"]
sys.argv += {["--model", part] if part else []}
try:
    app.main()
except SystemExit as end:
    ended(end.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    *sentences, last = done.stderr.splitlines()
    needed = ["scipy"] if part is None and code == 0 else []
    assert last == f"{needed} {code}", done.stderr
    assert says in " ".join(sentences)
    assert len(done.stdout.splitlines()) == (0 if code else 3)


# ---- the normal distribution --------------------------------------------------------------------


def test_the_normal_distribution_against_mpmath():
    x = np.concatenate([np.linspace(-37.5, 8, 400), [-1e-9, 0.0, 1e-9]])
    with mpmath.workdps(40):
        exact = np.array([float(mpmath.ncdf(mpmath.mpf(float(value)))) for value in x])
    np.testing.assert_allclose(normal_cdf(x), exact, rtol=1e-12)
    assert normal_cdf(np.array([-np.inf, -41.0, np.inf])).tolist() == [0.0, 0.0, 1.0]
    for p in (1e-300, 1e-9, 0.3, 0.5, 1 - 1e-12):
        with mpmath.workdps(40):
            back = float(mpmath.ncdf(mpmath.mpf(normal_quantile(p))))
        assert back == pytest.approx(p, rel=1e-12)


def test_a_plan_of_students_noise_is_students_t(x64):
    """Its many Gaussians weigh what they do: known outputs have SciPy's density to 0.01 nats."""
    scale, nu = 2.0, 5.0
    likelihood = StudentT.of([scale * np.sqrt(nu / (nu - 2))], nu=nu)
    options = {"weights": nn.PointWeights.init, "hidden_layer_sizes": ()}
    network = network_plan(model_of(d=1, likelihood=likelihood, **options), 3)
    mean = propagated(network.steps, network.propagation, X, None).mean[:, 0]
    parts = {"n": Networks((network,), identified=True)}
    found = Plan(Scaling.identity(3, 1), parts, {"n": 1.0}, squeeze=True).predict_dist(X)
    y = mean + np.linspace(-12.0, 12.0, len(X))
    truth = stats.t.logpdf(y, nu, mean, scale)
    np.testing.assert_allclose(found.logpdf(y), truth, rtol=0, atol=0.01)
