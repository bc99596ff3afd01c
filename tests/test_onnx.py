"""The exported graph, run in onnxruntime, gives what the model gives."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pandas as pd
import pytest

from varprop import FAWNClassifier, FAWNRegressor, StackedClassifier, export, nn
from varprop.exports.columns import Columns
from varprop.exports.onnx import to_onnx
from varprop.files.planning import plan_of

pytestmark = pytest.mark.usefixtures("as_users_run_it")
ACTIVATIONS = ["relu", "leaky_relu", "identity", "logistic", "tanh"]
ACTIVATIONS += ["erf", "gelu", "silu", "softplus"]


def data(n_outputs=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) * [1e-3, 1.0, 100.0] + [1.7e9, 0.0, -5.0]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, np.column_stack([np.sin(z[:, 0]), 1e6 * z[:, 1] * z[:, 2]])[:, :n_outputs]


def graph(model):
    plan = plan_of(model)
    return to_onnx(plan, Columns.of_plan(plan)).SerializeToString()


def compare(model, X):
    session = onnxruntime.InferenceSession(graph(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(None, {"X": np.asarray(X)}), strict=True))
    dist = model.predict_dist(X)
    shape = got["mean"].shape
    scale = np.abs(dist.mean).max(axis=0)  # a mean may be as near to 0 as it likes
    np.testing.assert_allclose(
        got["mean"] / scale, (dist.mean / scale).reshape(shape), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(got["std"], dist.std.reshape(shape), rtol=1e-5)
    if "cov" in got:
        root = np.sqrt(np.einsum("ni,nj->nij", dist.var, dist.var))
        np.testing.assert_allclose(got["cov"] / root, dist.output_cov / root, rtol=1e-5, atol=1e-5)
    return names


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    # Two hidden layers: the second sees uncertain inputs. Noise on the inputs lets the first too.
    X, y = data()
    model = FAWNRegressor((5, 4), activation=activation, max_iter=20, random_state=0, dropout=0.1)
    assert compare(model.fit(X, y), X) == ["mean", "std"]


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "bernoulli"},
        {"output_covariance": True, "n_members": 3},
        {"dtype": "float64", "activation": "erf", "input_noise": 0.3},
        {"dtype": "float64", "activation": "softplus", "drop_connect": 0.2},
        {"activation": nn.Heaviside(), "output_covariance": True},
        {"hidden_layer_sizes": (), "output_covariance": True},
        {"n_members": 2},
    ],
    ids=str,
)
def test_structures(options):
    X, y = data()
    model = FAWNRegressor(**{"hidden_layer_sizes": 6, "max_iter": 200, "random_state": 0} | options)
    names = compare(model.fit(X, y), X)
    assert ("cov" in names) == bool(options.get("output_covariance"))


def test_single_target_frame_and_file(tmp_path):
    X, y = data(1)
    frame = pd.DataFrame(X, columns=["t", "a", "b"])
    model = FAWNRegressor(4, max_iter=20, random_state=0).fit(frame, pd.Series(y[:, 0], name="u"))
    compare(model, frame)
    export(model, tmp_path / "model.onnx", to="onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    assert session.get_modelmeta().custom_metadata_map == {
        "feature_names": "t\na\nb",
        "target_names": "u",
    }
    assert session.run(["mean"], {"X": X[:7]})[0].shape == (7, 1)


@pytest.mark.parametrize("objective", ["vi", "ropd"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_noise_that_depends_on_the_input(objective, n_outputs):
    X, y = data(n_outputs)
    options = {"likelihood": "heteroscedastic", "objective": objective, "n_members": 2}
    model = FAWNRegressor(6, max_iter=50, random_state=0, **options).fit(X, y)
    compare(model, X)


def test_heavy_tails():
    X, y = data()
    options = {"likelihood": "student-t", "max_iter": 50, "random_state": 0}
    for covariance in (False, True):
        model = FAWNRegressor(6, output_covariance=covariance, **options).fit(X, y)
        compare(model, X)


@pytest.mark.parametrize("kind", ["logit", "probit", "softmax", "ordinal", "stack"])
def test_classes(kind, tmp_path):
    X, y = data(1)
    two = kind in ("logit", "probit")
    labels = np.array(["a", "b", "c"])[np.digitize(y[:, 0], [0.0] if two else [-0.6, 0.6])]
    options = {"hidden_layer_sizes": 5, "max_iter": 60}
    if kind == "stack":
        networks = [("one", FAWNClassifier(**options)), ("two", FAWNClassifier((), max_iter=60))]
        model = StackedClassifier(networks, random_state=0).fit(X, labels)
        model.weights_ = {"one": 0.5, "two": 0.3, "constant": 0.2}
    else:
        options |= {"output_covariance": kind == "softmax", "n_members": 2}
        model = FAWNClassifier(**options, likelihood=kind, random_state=0).fit(X, labels)
        model.trust_ = 0.8
    export(model, tmp_path / "m.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["probabilities", "aleatoric"]
    probabilities, aleatoric = session.run(None, {"X": X})
    dist = model.predict_dist(X)
    np.testing.assert_allclose(probabilities, dist.proba, rtol=5e-5, atol=1e-6)
    np.testing.assert_allclose(aleatoric[:, 0], dist.aleatoric, rtol=5e-4, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"] == "\n".join(model.classes_)


def test_likelihoods_without_a_graph_are_refused(tmp_path):
    X, y = data(1)
    model = FAWNRegressor(3, likelihood="log-normal", max_iter=2).fit(X, np.exp(y))
    with pytest.raises(ValueError, match="likelihood LogNormal has no plan"):
        export(model, tmp_path / "m.onnx", to="onnx")
    assert not list(tmp_path.iterdir())


def test_functions_of_users_are_traced():
    """Whatever JAX can trace and ONNX can say is exported: no list of classes has to know it."""
    X, y = data()
    compare(FAWNRegressor(3, activation=nn.GaussHermite(jnp.cos), max_iter=20).fit(X, y), X)


def test_what_onnx_cannot_say_is_refused(tmp_path):
    X, y = data()
    model = FAWNRegressor(3, activation=nn.GaussHermite(jax.lax.lgamma), max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="uses the operation 'lgamma', which cannot be written"):
        export(model, tmp_path / "model.onnx", to="onnx")
    assert not list(tmp_path.iterdir())


class Box(nn.AbstractActivation):
    """What lies between -1 and 1, by a condition of two parts; as if inputs were known."""

    def __call__(self, x):
        return jnp.where((x > -1) & (x < 1), x, 0.0)

    def uncertain_moments(self, mean, var):
        return self(mean), var


class Loop(nn.AbstractActivation):
    """Three times a half, in a loop that ONNX export does not know."""

    def __call__(self, x):
        return jax.lax.fori_loop(0, 3, lambda i, x: 0.5 * x, x)

    def uncertain_moments(self, mean, var):
        return self(mean), var


def test_conditions_are_exported_and_loops_are_refused():
    X, y = data()
    compare(FAWNRegressor(3, activation=Box(), max_iter=5).fit(X, y), X)
    model = FAWNRegressor(3, activation=Loop(), max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="uses the operation 'scan'"):
        graph(model)
