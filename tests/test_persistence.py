"""Model files: exact round trips, clean errors, atomic writes, and no way in for a hostile file."""

import json
import os
import pathlib
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

from varprop import (
    FAWNRegressor,
    Gaussian,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    Recipe,
    SampledVI,
    StopRule,
    load_model,
    nn,
    priors,
    propagate,
    register,
    regression_model,
    save_model,
)
from varprop.files import container
from varprop.files.container import ModelFileError
from varprop.nn.registry import registered

pytestmark = pytest.mark.usefixtures("as_users_run_it")
FIXTURES = pathlib.Path(__file__).parent / "fixtures"
VARIANTS = [
    {},
    {"weights": "bernoulli", "dtype": "float64", "prior": priors.FixedBernoulli(0.3)},
    {"n_members": 2, "n_restarts": 2, "output_covariance": True, "hidden_layer_sizes": [4, 3]},
    {"activation": nn.GELU(n_nodes=8), "objective": SampledVI(n_samples=2), "dropout": 0.2},
    {"prior": priors.LearnedGaussianPerLayer(2, std=0.3), "input_noise": 0.1, "drop_connect": 0.1},
    {"likelihood": "heteroscedastic", "recipe": Recipe(max_steps=9, stop=StopRule(tol=0.5))},
    {"likelihood": HeteroscedasticGaussian, "objective": "vi", "recipe": Recipe(stop=None)},
]


def fit(**options):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    y = pd.DataFrame({"u": X["a"], "v": 1e6 * X["b"]})
    settings = {"hidden_layer_sizes": (4,), "max_iter": 5, "random_state": 0} | options
    return FAWNRegressor(**settings).fit(X, y), X


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model, X = fit()
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    model.save(path)
    return path.read_bytes(), model, X


def load(content, folder):
    path = folder / "m.safetensors"
    path.write_bytes(content)
    return FAWNRegressor.load(path)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(options) or "default")
def test_round_trip_is_exact(options, tmp_path):
    model, X = fit(**options)
    path = tmp_path / "model.safetensors"
    model.save(path)
    other = FAWNRegressor.load(path)
    for mine, theirs in zip(model.predict(X, True), other.predict(X, True), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # What came as JAX arrays comes back as NumPy arrays.
    assert repr(other.get_params()).replace("(numpy)", "") == repr(model.get_params())
    assert set(vars(other)) == set(vars(model))
    for name in ("n_iter_", "loss_", "outcome_", "n_outputs_", "target_names_", "n_features_in_"):
        assert getattr(other, name) == getattr(model, name), name
    np.testing.assert_array_equal(other.feature_names_in_, model.feature_names_in_)
    np.testing.assert_array_equal(other.noise_std_, model.noise_std_)
    other.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    other.partial_fit(X, np.zeros((30, 2)))


def test_single_target(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = FAWNRegressor(3, max_iter=3, random_state=np.int64(1)).fit(X, X[:, 0])
    model.save(tmp_path / "m.safetensors")
    other = FAWNRegressor.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert other.predict(X).shape == (20,)


def test_what_cannot_be_saved(tmp_path, saved):
    _, model, _ = saved
    path = tmp_path / "m.safetensors"
    for options, sentence in [
        ({"activation": nn.GaussHermite(jnp.cos)}, "GaussHermite, which a model file cannot hold"),
        ({"random_state": np.random.RandomState(0)}, "random_state is a RandomState"),
    ]:
        other, _ = fit(**options)
        with pytest.raises(ModelFileError, match=sentence):
            other.save(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match=r"nowhere does not exist: nothing was written"):
        model.save(tmp_path / "nowhere" / "m.safetensors")


def test_settings_changed_after_fit_do_not_touch_what_was_trained(tmp_path):
    model, X = fit()
    model.set_params(hidden_layer_sizes=(9,), activation="tanh").save(tmp_path / "m.safetensors")
    other = FAWNRegressor.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="settings were changed: it cannot go on"):
        other.partial_fit(X, np.zeros((30, 2)))


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_crash_leaves_the_old_file_whole(saved, tmp_path, monkeypatch, failing):
    content, model, _ = saved
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("version", [1, 2])
def test_files_stay_readable(version):
    answer = json.loads((FIXTURES / f"regressor_format_{version}.json").read_text())
    model = FAWNRegressor.load(FIXTURES / f"regressor_format_{version}.safetensors")
    rows = pd.DataFrame(answer["X"], columns=["age", "size", "dose"])
    mean, cov = model.predict(rows, return_output_cov=True)
    # Another machine may round otherwise.
    np.testing.assert_allclose(mean, answer["mean"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(cov, answer["cov"], rtol=1e-4, atol=1e-6)
    assert model.target_names_ == ["mean", "sum"]


# ---- hostile files ------------------------------------------------------------------------------


def split(content):
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(outer, data):
    head = outer if isinstance(outer, bytes) else json.dumps(outer).encode()
    return struct.pack("<Q", len(head)) + head + data


def state(content):
    """Header and arrays of a file, for changing."""
    outer, _ = split(content)
    header = json.loads(outer["__metadata__"]["varprop"])["model"]
    return header, safetensors.numpy.load(content)


def with_content(outer, **changes):
    content = json.loads(outer["__metadata__"]["varprop"]) | changes
    return outer | {"__metadata__": {"varprop": json.dumps(content)}}


def resigned(header, arrays):
    """A file whose checksum is right whatever it holds, as an attacker would make it."""
    digest = container._digest(header, arrays)
    content = {"format": container.FORMAT, "model": header, "sha256": digest}
    outer, data = {"__metadata__": {"varprop": json.dumps(content)}}, b""
    for name, array in arrays.items():
        begin = len(data)
        data += array.tobytes()
        code = {"float32": "F32", "float64": "F64", "int32": "I32"}[array.dtype.name]
        outer[name] = {
            "dtype": code,
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    return join(outer, data)


def test_later_format_says_which_version_reads_it(saved, tmp_path):
    outer, data = split(saved[0])
    outer = with_content(outer, format=7)
    with pytest.raises(ModelFileError, match=r"has format 7, .* reads format 2.* varprop 0"):
        load(join(outer, data), tmp_path)


def layers(header):
    return header["members"][0]["fields"]["network"]["fields"]["layers"]["tuple"]


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, a: h.update({"class": "os.system"}), "no FAWNRegressor"),
        (lambda h, a: h.update(extra=1), "one too many"),
        (lambda h, a: h.pop("loss"), "lacks an entry"),
        (lambda h, a: h.update(n_iter=True), "n_iter in the header has the wrong type"),
        (lambda h, a: h.update(n_features=10**12), "out of range"),
        (lambda h, a: h.update(n_features=2**30, feature_names=None), "needed"),
        (lambda h, a: h.update(n_members=2**30), "fewer arrays"),
        (lambda h, a: h.update(y_ndim=1), "y_ndim"),
        (lambda h, a: h.update(dtype="float16"), "dtype or outcome"),
        (lambda h, a: h.update(feature_names=["a"]), "feature_names"),
        (lambda h, a: h.update(target_names=[1, 2]), "target_names"),
        (lambda h, a: h["params"].update(hack=1), "argument 'hack'"),
        (lambda h, a: h["params"].update(kl_weight=[1]), "argument kl_weight"),
        (lambda h, a: h["params"].update(activation={"class": "os"}), "activation: .* class 'os'"),
        (lambda h, a: h["params"].update(dropout={"class": "ReLU"}), "dropout: ReLU has other"),
        (lambda h, a: h["params"].update(likelihood={"type": "os"}), "likelihood: .* class 'os'"),
        (lambda h, a: h["members"][0]["fields"].update(network={"class": "Danger"}), "'Danger'"),
        (lambda h, a: h["members"][0]["fields"].pop("prior"), "Model has other fields"),
        (lambda h, a: h.update(members=h["members"] * 2), "more or fewer members|is missing"),
        (lambda h, a: h.update(members=[None]), "holds no model"),
        (lambda h, a: layers(h).append(layers(h)[0]), "is missing"),
        (lambda h, a: layers(h).reverse(), "can be built"),
        (
            lambda h, a: layers(h).insert(1, {"class": "GELU", "fields": {"n_nodes": 10**9}}),
            "n_nodes of GELU is out of range",
        ),
        (
            lambda h, a: h["params"].update(
                activation={"class": "GELU", "static": {"n_nodes": 10**9}}
            ),
            "argument activation: n_nodes of GELU is out of range",
        ),
        (
            lambda h, a: h["params"].update(activation={"class": "ReLU", "static": {"x": 1}}),
            "ReLU has other fields",
        ),
        (
            lambda h, a: h["params"].update(activation={"class": "LeakyReLU", "static": {}}),
            "negative_slope is missing",
        ),
        (lambda h, a: h["params"].update(hidden_layer_sizes={"list": [1] * 5000}), "256 layers"),
        (lambda h, a: a.pop("scaling.x_scale"), "scaling.x_scale is missing"),
        (lambda h, a: a.update(rogue=np.ones(1)), "'rogue' is unknown"),
        (lambda h, a: a.update({"params.x.y": np.ones(1)}), "is unknown"),
        (
            lambda h, a: a.update({"scaling.x_scale": np.ones(2, np.float32)}),
            "float32, but .* float64 are needed",
        ),
        (lambda h, a: a.update({"scaling.x_scale": np.ones(2, np.int32)}), "entry of array"),
        (lambda h, a: a.update({"scaling.x_scale": -np.ones(2)}), "not positive"),
        (lambda h, a: a.update({"scaling.x_shift": np.full(2, np.nan)}), "not finite"),
        (lambda h, a: a.update({"training.restart_losses": np.ones(3)}), "restarts are damaged"),
    ],
)
def test_files_that_lie(saved, tmp_path, change, sentence):
    header, arrays = state(saved[0])
    change(header, arrays)
    with pytest.raises(ModelFileError, match=sentence):
        load(resigned(header, arrays), tmp_path)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda o, d: b"", "cut short"),
        (lambda o, d: b"\xff" * 8, "cut short"),
        (lambda o, d: b"\xff" * 100, "cut short"),
        (lambda o, d: join(DEEP.encode(), d), "no valid JSON"),
        (lambda o, d: join(b"[]", d), "no JSON object"),
        (lambda o, d: join(b"\x80", d), "no valid JSON"),
        (lambda o, d: join(b'{"a": 1, "a": 2}', d), "occurs twice"),
        (lambda o, d: join(b'{"a": NaN}', d), "holds NaN"),
        (lambda o, d: join({}, d), "not written by varprop"),
        (lambda o, d: join(o | {"__metadata__": {}}, d), "not written by varprop"),
        (lambda o, d: join(with_content(o, format="x"), d), "no whole number"),
        (lambda o, d: join(with_content(o, model=[]), d), "lacks an entry"),
        (lambda o, d: join(with_content(o, more=1), d), "one too many"),
        (lambda o, d: join(o | {"__metadata__": {"varprop": DEEP}}, d), "JSON"),
        (lambda o, d: join(o | {"__metadata__": {"varprop": 3}}, d), "not text"),
        (lambda o, d: join(o | {"x": 1}, d), "entry of array 'x'"),
        (
            lambda o, d: join(
                o | {"x": {"dtype": "F64", "shape": [2**47] * 3, "data_offsets": [0, 8]}}, d
            ),
            "does not fit",
        ),
        (
            lambda o, d: join(o | {"x": {"dtype": "F64", "shape": [0], "data_offsets": [9, 9]}}, d),
            "overlap",
        ),
        (lambda o, d: join(o, d[:-8]), "but the file has"),
        (lambda o, d: join(o, d + b"0"), "but the file has"),
        (lambda o, d: join(o, bytes(len(d))), "checksum"),
        (lambda o, d: struct.pack("<Q", 2**40) + b"{}", "cut short"),
        (lambda o, d: struct.pack("<Q", 10**8 + 1) + bytes(10**8 + 2), "more than"),
    ],
)
def test_damaged_files(saved, tmp_path, make, sentence):
    with pytest.raises(ModelFileError, match=sentence):
        load(make(*split(saved[0])), tmp_path)


def mutate(content, rng):
    """One of many ways to damage a file."""
    kind = rng.integers(8)
    data = bytearray(content)
    head = 8 + struct.unpack("<Q", content[:8])[0]
    if kind == 0:  # cut
        return content[: rng.integers(len(content))]
    if kind == 1:  # flip some bits anywhere
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        return bytes(data)
    if kind == 2:  # flip a bit of the header
        data[rng.integers(head)] ^= 1 << rng.integers(8)
        return bytes(data)
    if kind == 3:  # another length of the header
        data[:8] = struct.pack("<Q", int(rng.integers(2 ** rng.integers(1, 63))))
        return bytes(data)
    if kind == 4:  # take out, double or exchange a piece
        a, b = sorted(int(i) for i in rng.integers(len(data), size=2))
        b = min(b, a + 200)
        return bytes(data[:a] + data[b:]) if rng.random() < 0.5 else bytes(data[:b] + data[a:])
    if kind == 5:  # a character of the header by another one that JSON knows
        data[rng.integers(8, head)] = rng.choice(list(b'{}[]",:0123456789eE+-.nulltrue'))
        return bytes(data)
    if kind == 6:  # a huge number or a deep list in place of some number
        text = content[8:head].decode()
        places = [i for i, c in enumerate(text) if c.isdigit()]
        at = int(rng.choice(places))
        new = rng.choice(["9" * 30, "-1", "1e999", "[" * 5000, "null", '"F16"', "0.5", "true"])
        return join((text[:at] + new + text[at + 1 :]).encode(), content[head:])
    names = [b"member.0", b"scaling", b"F32", b"F64", b"mean", b"log_std", b"relu", b"class"]
    old = names[rng.integers(len(names))]
    new = rng.choice([b"os.system", b"member.1", b"BF16", b"", b"__reduce__", b"tanh"])
    return join(content[8:head].replace(old, new, 1), content[head:])


def test_mutated_files(saved, tmp_path):
    n = 2_000
    content, model, X = saved
    truth = model.predict(X)
    rng = np.random.default_rng(0)
    path = tmp_path / "m.safetensors"
    refused = 0
    for _ in range(n):
        path.write_bytes(mutate(content, rng))
        try:
            other = FAWNRegressor.load(path)
        except ModelFileError:
            refused += 1
        else:
            np.testing.assert_array_equal(other.predict(X), truth)
    assert refused > 0.9 * n


def test_mutated_headers_with_a_right_checksum(saved, tmp_path):
    # What the checksum cannot catch: any value of the header replaced, then signed anew. The file
    # is refused, or is another valid model that can predict.
    content, _, X = saved
    header, arrays = state(content)
    values = [
        None,
        True,
        -1,
        0,
        1,
        3,
        2**31,
        2**70,
        0.5,
        1e300,
        "",
        "a",
        [],
        [1],
        {},
        {"class": "a"},
    ]
    places = [(header_key, None) for header_key in header]
    places += [("params", name) for name in header["params"]]
    refused = loaded = 0
    for key, inner in places:
        for value in values:
            changed = json.loads(json.dumps(header))
            if inner is None:
                changed[key] = value
            else:
                changed[key][inner] = value
            try:
                other = load(resigned(changed, arrays), tmp_path)
            except ModelFileError:
                refused += 1
            else:
                loaded += 1
                if key != "feature_names":
                    assert np.isfinite(other.predict(X)).all()
    assert refused > loaded > 0


# ---- any model ----------------------------------------------------------------------------------


class Unregistered(nn.AbstractActivation):
    """The square, which no file may name."""

    def __call__(self, x):
        return x**2

    def uncertain_moments(self, mean, var):
        return mean**2 + var, 2 * var * (var + 2 * mean**2)


@register()
class Registered(nn.AbstractActivation):
    """The square, with a scale of its own that a file must keep."""

    scale: jax.Array = nn.constant()

    def __call__(self, x):
        return self.scale * x**2

    def uncertain_moments(self, mean, var):
        return self.scale * (mean**2 + var), self.scale**2 * 2 * var * (var + 2 * mean**2)


@pytest.mark.parametrize("likelihood", [GaussianLikelihood, HeteroscedasticGaussian])
def test_any_model_of_registered_classes_is_kept_to_the_bit(likelihood, tmp_path):
    model = regression_model(
        3,
        2,
        key=jax.random.key(0),
        likelihood=likelihood,
        activation=Registered(jnp.asarray(0.3)),
        hidden_layer_sizes=(4, 3),
        hidden_noise=nn.Dropout(0.1),
        prior=priors.LearnedGaussianPerLayer(3),
    )
    save_model(model, tmp_path / "m.safetensors")
    other = load_model(tmp_path / "m.safetensors")
    assert jax.tree.structure(other) == jax.tree.structure(model)
    for mine, theirs in zip(jax.tree.leaves(model), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    x = np.ones((4, 3))
    np.testing.assert_array_equal(propagate(other, x).var, propagate(model, x).var)


def test_a_class_that_is_not_registered_is_one_sentence_either_way(tmp_path):
    path = tmp_path / "m.safetensors"
    model = regression_model(3, 1, key=jax.random.key(0), activation=Unregistered())
    with pytest.raises(ModelFileError, match=r"layers.1 is a Unregistered.* varprop\.register"):
        save_model(model, path)
    assert not path.exists()
    model = regression_model(3, 1, key=jax.random.key(0), activation=Registered(jnp.ones(())))
    save_model(model, path)
    content = path.read_bytes()
    header, arrays = state(content)
    text = json.dumps(header).replace("Registered", "Elsewhere")
    path.write_bytes(resigned(json.loads(text), arrays))
    with pytest.raises(ModelFileError, match="class 'Elsewhere', which is not known here"):
        load_model(path)


def test_files_of_models_and_of_regressors_are_told_apart(saved, tmp_path):
    (tmp_path / "r.safetensors").write_bytes(saved[0])
    with pytest.raises(ModelFileError, match="no bare model, but 'FAWNRegressor'"):
        load_model(tmp_path / "r.safetensors")
    save_model(regression_model(3, 1, key=jax.random.key(0)), tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match="no FAWNRegressor: 'Model'"):
        FAWNRegressor.load(tmp_path / "m.safetensors")


def test_what_is_written_can_be_read(tmp_path):
    path = tmp_path / "m.safetensors"
    noisy = regression_model(3, 1, key=jax.random.key(0), input_noise=nn.GaussianWeightNoise(0.1))
    save_model(noisy, path)  # whose first array is no matrix of weights
    assert load_model(path).likelihood.n_targets == 1
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = FAWNRegressor(np.array([3]), max_iter=2, recipe=Recipe(max_steps=np.int64(9)))
    model.fit(X, X[:, 0]).save(path)
    np.testing.assert_array_equal(FAWNRegressor.load(path).predict(X), model.predict(X))


@register()
class Scaled(nn.AbstractVariable):
    """A variable with a plain number of its own."""

    scale: float
    axis: int = -1

    def moments(self):
        return Gaussian(jnp.zeros(()), 2 * self.scale**2)

    def sample(self, key, shape, dtype):
        return self.scale * jax.random.laplace(key, shape, dtype)


def test_plain_numbers_of_a_class_are_kept_and_not_trained(tmp_path):
    path = tmp_path / "m.safetensors"
    noise = nn.AdditiveNoise(Scaled(0.5))
    model = regression_model(3, 1, key=jax.random.key(0), hidden_noise=noise)
    save_model(model, path)
    other = load_model(path)
    assert other.network.layers[2].eps.scale == 0.5
    assert isinstance(other.network.layers[2].eps.scale, float)
    model = regression_model(
        3, 1, key=jax.random.key(0), hidden_noise=nn.AdditiveNoise(Scaled(float("inf")))
    )
    with pytest.raises(ModelFileError, match="scale is inf"):
        save_model(model, path)


def test_a_name_of_the_library_is_taken():
    """A noise variable and a likelihood were once both called Bernoulli, and the later one won."""
    before = registered("Bernoulli")
    assert before is nn.Bernoulli
    with pytest.raises(ValueError, match=r"the name Bernoulli is taken by varprop\.nn\.variables"):
        register()(type("Bernoulli", (), {}))
    assert registered("Bernoulli") is before
