"""Exports to C and JavaScript give what Python gives: by the compiler at hand, and by node.

Python's side is the plan run by NumPy, and its quantiles are found by other means; that plans are
what JAX says is `test_plans`.
"""

import ctypes
import dataclasses
import json
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from cli_runs import run, run_json, sentence, workplace
from varprop import (
    GaussianLikelihood,
    HeteroscedasticGaussian,
    StackedRegressor,
    export,
    likelihoods,
    nn,
    regression_model,
)
from varprop.data.statistics import Scaling
from varprop.exports.c import identifier, to_c
from varprop.exports.columns import Column, Columns
from varprop.exports.export import ExportError
from varprop.exports.javascript import to_javascript
from varprop.files.planning import network_plan
from varprop.plans.budget import variance_budget
from varprop.plans.plan import Networks, Plan
from varprop.predictive.simple import LinearModel, constant_var
from varprop.tables.columns import CategoryColumn
from varprop.tables.model import TableModel

CC, NODE = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"), shutil.which("node")
# Types are checked at run time elsewhere: here it took most of the time.
pytestmark = pytest.mark.usefixtures("as_users_run_it")
needs_c = pytest.mark.skipif(not CC, reason="there is no C compiler")
needs_node = pytest.mark.skipif(not NODE, reason="there is no node")
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-shared", "-fPIC"]
# What is asked for; what is found is 2e-15 and 5e-7.
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
LEVELS = np.array([0.05, 0.6, 0.999])
RNG = np.random.default_rng(0)
SHIFT, SCALE = np.array([1.7e9, 0.0, -5.0]), np.array([1e-3, 1.0, 100.0])
X = np.vstack([RNG.normal(size=(40, 3)), [[6.0, -9.0, 4.0]]]) * SCALE + SHIFT


def wide(key, shape):
    return nn.GaussianWeights.init(key, shape, scale=0.7, std=0.3)


class Box(nn.AbstractActivation):
    """A user's own function, by a condition of two parts."""

    def __call__(self, x):
        return jnp.where((x > -1) & (x < 1), x, 0.5 * jnp.tanh(x))

    def uncertain_moments(self, mean, var):
        return self(mean), var


def network(d=1, likelihood=GaussianLikelihood, end=None, seed=1, **options):
    settings = {"hidden_layer_sizes": (4,), "weights": wide, "key": jax.random.key(seed)}
    with jax.enable_x64(True):
        model = regression_model(3, d, likelihood=likelihood, **settings | options)
        if end is not None:
            model = dataclasses.replace(model, likelihood=end)
        return network_plan(model, 3)


def plan_of(*networks, d=1, classes=(), weights=None, linear=False):
    """A plan of networks, a linear model and a constant one, without a fit."""
    scaling = Scaling(SHIFT, SCALE, np.array([3.0, -1e4])[:d], np.array([0.5, 2e3])[:d])
    share = [dataclasses.replace(one, share=1 / len(networks)) for one in networks]
    parts = {"network": Networks(tuple(share), identified=True), "constant": None}
    weights = weights or {"network": 0.9, "constant": 0.1}
    if linear:
        rng = np.random.default_rng(2)
        root = rng.normal(size=(d, 3, 3))
        cov = root @ root.transpose(0, 2, 1) / 9
        numbers = rng.normal(size=(d, 3)), rng.normal(size=d), np.full(d, 0.3), cov
        parts["linear"] = LinearModel(scaling, np.full(3, 0.1), *numbers)
        weights = {"network": 0.6, "linear": 0.3, "constant": 0.1}
    more = {}
    if classes:
        shares = np.arange(1.0, len(classes) + 1)
        more = {"classes_": np.array(classes), "constant_numbers_": shares / shares.sum()}
    return Plan(scaling, parts, weights, d == 1, n_seen_=30, **more)


def cases():
    """Return plans by name: every activation and propagation, likelihoods, mixtures."""
    found = {}
    activations = [nn.Identity, nn.ReLU, nn.LeakyReLU, nn.Heaviside, nn.Erf, nn.Sigmoid, nn.Tanh]
    for kind in [*activations, nn.GELU, nn.SiLU, nn.Softplus, Box]:
        deep = network(activation=kind(), hidden_layer_sizes=(4, 3))
        found[kind.__name__] = plan_of(deep)
    for how in ("second-order", "independent"):
        found[how] = plan_of(network(propagation=how, hidden_layer_sizes=(4, 3)))
    own = nn.GaussHermite(jnp.cos)
    found["own"] = plan_of(network(activation=own, input_noise=nn.Dropout(0.1)))
    found["joint"] = plan_of(network(2, joint=True), network(2, joint=True, seed=2), d=2)
    noisy = {"d": 2, "likelihood": HeteroscedasticGaussian}
    found["noise"] = plan_of(network(**noisy), d=2, linear=True)
    found["student"] = plan_of(network(likelihood=likelihoods.StudentT), network(seed=3))
    ends = [
        likelihoods.YeoJohnsonLikelihood(GaussianLikelihood(np.array([s])), jnp.array([odds]))
        for s, odds in ((0.6, -0.7), (0.9, 1.5))
    ]
    skewed = [network(end=end, seed=4) for end in ends]
    found["skewed"] = plan_of(*skewed, network(), linear=True)
    two, three = ("no", "yes"), ("a", "b", "c")
    logit, probit = (
        likelihoods.BernoulliLikelihood(0.4),
        likelihoods.BernoulliLikelihood(-0.4, link="probit"),
    )
    found["logit"] = plan_of(network(end=logit), network(end=logit, seed=2), classes=two)
    found["probit"] = plan_of(network(end=probit), classes=two)
    softmax = likelihoods.Categorical([0.1, -2.0, 0.7])
    found["softmax"] = plan_of(network(3, end=softmax, joint=True), classes=three)
    found["ordinal"] = plan_of(network(end=likelihoods.Ordinal([-1.5, 0.2])), classes=three)
    return found


@pytest.fixture(scope="module")
def plans():
    """Plans, and what each says of the rows."""
    return {name: (plan, expected(plan, X)) for name, plan in cases().items()}


def expected(plan, rows):
    """Return all that an export says of rows, (rows, numbers)."""
    dist = plan if hasattr(plan, "mean") or hasattr(plan, "proba") else plan.predict_dist(rows)
    if hasattr(dist, "proba"):
        return np.column_stack([dist.proba, dist.aleatoric])
    n, d = len(rows), np.size(dist.mean) // len(rows)
    mean, std = dist.mean.reshape(n, d), dist.std.reshape(n, d)
    at = mean + 0.7 * std
    cdf = dist.cdf(at.reshape(dist.mean.shape)).reshape(n, d)
    density = np.exp(dist.marginal_logpdf(at.reshape(dist.mean.shape))).reshape(n, d) * std
    return np.hstack([mean, std, cdf, density, dist.quantile(LEVELS).reshape(n, -1)])


def check(got, want, plan, tolerance):
    """Means and quantiles in units of how large they are beside the spread; all else relative."""
    assert got.shape == want.shape
    if len(plan.classes_):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 1e-3)
        return
    d = plan.n_outputs_
    np.testing.assert_allclose(got[:, d : 4 * d], want[:, d : 4 * d], rtol=tolerance)
    std = want[:, d : 2 * d]
    for place in (slice(0, d), slice(4 * d, None)):
        found, real = got[:, place], want[:, place]
        size = np.maximum(np.repeat(std, found.shape[1] // d, axis=1), np.abs(real))
        assert np.abs((found - real) / size).max() < tolerance


# ---- C ------------------------------------------------------------------------------------------


def wrapper(p, classes):
    """A function of C that predicts rows and writes down what `expected` returns."""
    if classes:
        body = (
            f"for (int k = 0; k < {p}_CLASSES; k++) *o++ = f.probability[k];\n*o++ = f.aleatoric;"
        )
    else:
        levels = ", ".join(map(repr, LEVELS.tolist()))
        over = f"for (int t = 0; t < {p}_TARGETS; t++)"
        at = "f.mean[t] + 0.7 * f.std[t]"
        body = f"""
        static const double level[] = {{ {levels} }};
        {over} *o++ = f.mean[t];
        {over} *o++ = f.std[t];
        {over} *o++ = {p}_cdf(&f, t, {at});
        {over} *o++ = {p}_density(&f, t, {at}) * f.std[t];
        {over} for (int i = 0; i < {len(LEVELS)}; i++) *o++ = {p}_quantile(&f, t, level[i]);"""
    return f"""
    #include "{p}.h"
    int run_{p}(int n, const double *x, double *o);
    int run_{p}(int n, const double *x, double *o) {{
      for (int i = 0; i < n; i++, x += {p}_COLUMNS) {{
        {p}_prediction f;
        int bad = {p}_predict(x, &f);
        if (bad) return bad;
        {body}
      }}
      return 0;
    }}
    """


def compiled(folder, headers, classes=()):
    """Compile headers, by their names, and return the library; a warning is an error."""
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    parts = [wrapper(name, name in classes) for name in headers]
    (folder / "all.c").write_text("\n".join(parts))
    command = [CC, *FLAGS, "all.c", "-o", "all.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "all.so"))


def in_c(library, name, rows, width):
    """Return what a compiled model says of rows, and its code."""
    rows, out = np.ascontiguousarray(rows, np.float64), np.full((len(rows), width), np.nan)
    pointers = (a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (rows, out))
    return out, getattr(library, f"run_{name}")(len(rows), *pointers)


@needs_c
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_c_says_what_python_says(plans, tmp_path, dtype):
    names = {name: f"m_{identifier(name)}" for name in plans}
    headers = {
        names[name]: to_c(plan, Columns.of_plan(plan), name=names[name], dtype=dtype)
        for name, (plan, _) in plans.items()
    }
    real = {"float64": "double", "float32": "float"}[dtype]
    assert f"typedef {real} m_ReLU_real;" in headers["m_ReLU"]
    classes = [names[name] for name, (plan, _) in plans.items() if len(plan.classes_)]
    library = compiled(tmp_path, headers, classes)
    for name, (plan, want) in plans.items():
        got, code = in_c(library, names[name], X, want.shape[1])
        assert code == 0, name
        try:
            check(got, want, plan, TOLERANCE[dtype])
        except AssertionError as error:
            raise AssertionError(name) from error


# ---- JavaScript ---------------------------------------------------------------------------------

SCRIPT = """
import fs from "fs";
const given = JSON.parse(fs.readFileSync("given.json"));
const said = {};
for (const [name, rows] of Object.entries(given.rows)) {
  const m = await import(`./${name}.mjs`);
  said[name] = rows.map((row) => {
    const f = m.predict(row);
    if (f.probability) return [...f.probability, f.aleatoric];
    const at = f.mean.map((mean, t) => mean + 0.7 * f.std[t]);
    return [...f.mean, ...f.std, ...at.map((y, t) => m.cdf(f, y, t)),
      ...at.map((y, t) => m.density(f, y, t) * f.std[t]),
      ...f.mean.flatMap((_, t) => given.levels.map((level) => m.quantile(f, level, t)))];
  });
}
console.log(JSON.stringify(said));
"""


def in_javascript(folder, modules, rows):
    """Return what modules, by their names, say of rows, which may differ between them."""
    for name, text in modules.items():
        (folder / f"{name}.mjs").write_text(text)
    given = {name: np.asarray(part).tolist() for name, part in rows.items()}
    (folder / "given.json").write_text(json.dumps({"levels": LEVELS.tolist(), "rows": given}))
    (folder / "run.mjs").write_text(SCRIPT)
    done = subprocess.run([NODE, "run.mjs"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: np.array(part) for name, part in json.loads(done.stdout).items()}


@needs_node
def test_javascript_says_what_python_says(plans, tmp_path):
    modules = {
        name: to_javascript(plan, Columns.of_plan(plan), name=name, dtype="float64")
        for name, (plan, _) in plans.items()
    }
    found = in_javascript(tmp_path, modules, dict.fromkeys(plans, X))
    for name, (plan, want) in plans.items():
        try:
            check(found[name], want, plan, 1e-9)
        except AssertionError as error:
            raise AssertionError(name) from error


# ---- tables -------------------------------------------------------------------------------------


def table(n, rng, cities):
    """Rows of houses as users have them: some numbers missing, and what exports take of them."""
    size, rooms = rng.uniform(10, 250, n), rng.integers(0, 9, n).astype(float)
    rooms[rng.uniform(size=n) < 0.2] = np.nan
    city = rng.integers(len(cities), size=n)
    cells = {
        "id": pa.array([f"n{i}" for i in range(n)]),
        "size": size,
        "rooms": pa.array(rooms, from_pandas=True),
        "city": pa.array([cities[i] for i in city]),
    }
    return pa.table(cells), np.column_stack([size, rooms, city])


@pytest.fixture(scope="module")
def imputing():
    """A model of a table with a category, holes in a column of numbers, and 10,000 new rows."""
    path = workplace() / "impute.safetensors"
    model = TableModel.load_plan(path)
    (city,) = (c for c in model.preprocessing.inputs if isinstance(c, CategoryColumn))
    cells, given = table(10_000, np.random.default_rng(1), city.levels)
    dist = model.predict_dist(model.preprocessing.encode(cells, str), str)
    want = expected(dist, given)
    assert 0.1 < np.isnan(given).any(axis=1).mean() < 0.3
    return path, model, city.levels, given, want


@needs_c
@pytest.mark.parametrize("precision", ["double", "float"])
def test_a_table_of_10_000_rows_in_c(imputing, tmp_path, precision):
    path, model, levels, given, want = imputing
    target = tmp_path / "houses.h"
    found = run_json("export", path, "--to", "c", "-o", target, "--precision", precision)
    assert found == {"output": str(target), "to": "c", "bytes": target.stat().st_size}
    library = compiled(tmp_path, {"houses": target.read_text()})
    got, code = in_c(library, "houses", given, want.shape[1])
    assert code == 0
    dtype = {"double": "float64", "float": "float32"}[precision]
    check(got, want, model.regressor, TOLERANCE[dtype])
    # What it does not take: another code, none, what is no number.
    for column, value in ((2, len(levels)), (2, 0.5), (2, np.nan), (0, np.inf)):
        row = np.where(np.arange(3) == column, value, given[:1])
        assert in_c(library, "houses", row, want.shape[1])[1] == column + 1


@needs_node
def test_a_table_in_javascript(imputing, tmp_path):
    path, model, levels, given, want = imputing
    export(path, tmp_path / "houses.js", to="js")
    rows = [
        [size, None if np.isnan(rooms) else rooms, levels[int(city)]]
        for size, rooms, city in given[:500]
    ]
    modules = {"houses": (tmp_path / "houses.js").read_text()}
    (tmp_path / "x").mkdir()
    found = in_javascript(tmp_path / "x", modules, {"houses": np.array(rows, object)})
    check(found["houses"], want[:500], model.regressor, 1e-9)
    refused = """
      import { predict } from "./houses.mjs";
      for (const row of [{ size: 9, rooms: 2, city: "Rom" }, [9, "2", "Ulm"], [null, 1, 1]]) {
        try { predict(row); } catch (error) { console.log(error.name + ": " + error.message); }
      }"""
    (tmp_path / "x" / "bad.mjs").write_text(refused)
    command = [NODE, "bad.mjs"]
    said = subprocess.run(command, cwd=tmp_path / "x", capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [
        'RangeError: city is "Rom", which the training data did not have',
        'RangeError: rooms is "2", no number',
        "RangeError: city is 1, which the training data did not have",
    ]


def test_a_table_in_onnx(imputing, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path, _, levels, given, want = imputing
    export(path, tmp_path / "houses.onnx", to="onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "houses.onnx", providers=["CPUExecutionProvider"]
    )
    whole = ~np.isnan(given).any(axis=1)
    mean, std = session.run(["mean", "std"], {"X": given[whole]})
    np.testing.assert_allclose(np.hstack([mean, std]), want[whole, :2], rtol=1e-9)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["levels"]) == {"city": list(levels)}
    assert metadata["feature_names"].split("\n") == ["size", "rooms", "city"]


# ---- names, and what is refused -----------------------------------------------------------------

HOSTILE = [
    '*/ int x; /* "quoted" \\',
    "line\none */ more ??/",
    "</script><script>alert(1)</script>",
    "size", "Size ", "größe", "=cmd()|'x'", "${x}`", "2nd", "max", "\u2028\u202e",
]  # fmt: skip


def hostile_plan():
    plan = plan_of(network())
    levels = (None, 'a"b', "*/", "??/\\", "é\n")
    inputs = [Column(name, (0.0,), (1.0,)) for name in HOSTILE]
    inputs.append(Column('c"*/', (0.2,) * 5, (0.1,) * 5, levels))
    n = len(HOSTILE) + 5
    scaling = Scaling(np.zeros(n), np.ones(n), np.zeros(1), np.ones(1))
    line = LinearModel(
        scaling, np.zeros(n), np.ones((1, n)), np.zeros(1), np.ones(1), np.eye(n)[None]
    )
    plan = dataclasses.replace(
        plan, scaling_=scaling, parts={"linear": line}, weights_={"linear": 1.0}
    )
    return plan, Columns(tuple(inputs), ('price */ "\n',)), levels


@needs_c
def test_hostile_names_in_c(tmp_path):
    plan, columns, levels = hostile_plan()
    text = to_c(plan, columns, name='*/ evil "', dtype="float64")
    assert "??" not in text
    (tmp_path / "evil.h").write_text(text)
    literal = ", ".join(
        '"' + "".join(f"\\{b:03o}" for b in (s or "").encode()) + '"' for s in levels
    )
    (tmp_path / "main.c").write_text(f"""
    #include <stdio.h>
    #include "evil.h"
    int main(void) {{
      static const char *const level[] = {{ {literal} }};
      for (int i = 0; i < evil_COLUMNS; i++) {{ fputs(evil_column(i), stdout); putchar(0); }}
      fputs(evil_target(0), stdout);
      for (int i = 0; i < 5; i++) if (evil_code(evil_c_2, level[i]) != i) return 1;
      if (evil_size != 3 || evil_Size != 4 || evil_max_2 != 9) return 2;
      return evil_code(evil_c_2, "none") != -1;
    }}""")
    command = [
        CC,
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        "main.c",
        "-o",
        "main",
        "-lm",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [*HOSTILE, 'c"*/', 'price */ "\n']


@needs_node
def test_hostile_names_in_javascript(tmp_path):
    plan, columns, levels = hostile_plan()
    text = to_javascript(plan, columns, name="evil */", dtype="float32")
    assert "</script" not in text
    assert text.isascii()
    rows = [[*[0.5] * len(HOSTILE), level] for level in levels]
    found = in_javascript(tmp_path, {"evil": text}, {"evil": np.array(rows, object)})
    assert found["evil"][:, 0] == pytest.approx(0.5 * len(HOSTILE) + 1)


def test_identifiers():
    assert identifier("a  b//c") == "a_b_c"
    assert identifier("***") == "x"


def test_what_cannot_be_exported_is_named(tmp_path):
    X, y = np.linspace(0, 1, 30)[:, None], np.linspace(0, 1, 30)
    model = StackedRegressor([]).fit(X, y)
    path = tmp_path / "m"
    with pytest.raises(ExportError, match="to must be 'c', 'js', 'onnx', 'page', not 'cobol'"):
        export(model, path, to="cobol")
    with pytest.raises(ExportError, match="dtype must be 'float64' or 'float32', not 'int8'"):
        export(model, path, to="c", dtype="int8")
    with pytest.raises(ExportError, match="only C and JavaScript can be float32"):
        export(model, path, to="onnx", dtype="float32")
    assert not path.exists()


def test_the_command_refuses_in_one_sentence(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bad.safetensors").write_bytes(b"\x08" + bytes(30))
    good = workplace() / "impute.safetensors"
    out = ("--to", "c", "-o", tmp_path / "m.h")
    assert "is a table, not a model file" in sentence("export", tmp_path / "t.csv", *out, code=3)
    assert "there is no file" in sentence("export", tmp_path / "none", *out, code=3)
    sentence("export", tmp_path / "bad.safetensors", *out, code=3)
    assert "there is no folder" in sentence(
        "export", good, "--to", "c", "-o", tmp_path / "no" / "m.h", code=4
    )
    assert "is also read" in sentence("export", good, "--to", "c", "-o", good, code=2)
    assert run("export", good, "--to", "fortran", "-o", tmp_path / "m.h", code=2).stdout == ""
    onnx = ("--to", "onnx", "-o", tmp_path / "m.onnx", "--precision", "float")
    assert "only C and JavaScript can be float32" in sentence("export", good, *onnx, code=3)
    assert not (tmp_path / "m.h").exists()


@needs_node
def test_the_budget_in_javascript_is_that_of_python(tmp_path):
    """By layers where the model tells its doubt from noise; of two members, and a linear model."""
    deep = {"hidden_layer_sizes": (4, 3), "hidden_noise": nn.Dropout(0.2)}
    plan = plan_of(network(**deep), network(seed=2, **deep), linear=True)
    (tmp_path / "m.mjs").write_text(
        to_javascript(plan, Columns.of_plan(plan), name="m", dtype="float64")
    )
    (tmp_path / "rows.json").write_text(json.dumps(X.tolist()))
    (tmp_path / "run.mjs").write_text("""
      import { predict, budget } from "./m.mjs";
      import fs from "fs";
      const rows = JSON.parse(fs.readFileSync("rows.json"));
      console.log(JSON.stringify(rows.map((row) => Object.fromEntries(budget(predict(row))))));
    """)
    done = subprocess.run([NODE, "run.mjs"], cwd=tmp_path, capture_output=True, check=True)
    found = {name: [] for name in json.loads(done.stdout)[0]}
    for row in json.loads(done.stdout):
        for name, values in found.items():
            values.append(row.get(name, 0.0))
    # By hand: parts of the mixture in the target's units, those of networks by layer.
    x, scale = (X - SHIFT) / SCALE, plan.scaling_.y_scale[0] ** 2
    expected = {"noise": 0.1 * constant_var(30) + 0.3 * 0.3 + np.zeros(len(X))}
    for one in plan.parts["network"].members:
        for name, part in variance_budget(one.steps, x).items():
            expected[name] = expected.get(name, 0.0) + 0.3 * part[:, 0]
        expected["noise"] += 0.3 * one.numbers["noise_var"][0]
    apart = x - 0.1
    cov = plan.parts["linear"].cov[0]
    expected["linear coefficients"] = 0.3 * np.sum((apart @ cov) * apart, axis=1)
    dist = plan.predict_dist(X)
    expected["members disagree"] = dist.var / scale - sum(expected.values())
    assert set(found) == set(expected)
    assert {"weights of layer 3", "noise after layer 1"} < set(found)
    for name, values in found.items():
        np.testing.assert_allclose(values, scale * expected[name], rtol=1e-8)


@needs_node
def test_noise_and_model_are_not_told_apart_where_the_objective_does_not(tmp_path):
    """As Python has it, and whatever a missing number adds is told where they are."""
    plan = plan_of(network())
    network_part = dataclasses.replace(plan.parts["network"], identified=False)
    untold = dataclasses.replace(plan, parts={**plan.parts, "network": network_part})
    columns = dataclasses.replace(Columns.of_plan(plan), impute=True)
    for name, each in (("told", plan), ("untold", untold)):
        text = to_javascript(each, columns, name=name, dtype="float64")
        (tmp_path / f"{name}.mjs").write_text(text)
    (tmp_path / "run.mjs").write_text("""
      import * as told from "./told.mjs";
      import * as untold from "./untold.mjs";
      const row = [1.7e9, 0.5, null];
      const all = [told, untold].map((m) => [m.budget(m.predict(row)), m.predict(row).std[0]]);
      console.log(JSON.stringify(all));
    """)
    done = subprocess.run([NODE, "run.mjs"], cwd=tmp_path, capture_output=True, check=True)
    (parts, std), (whole, same) = json.loads(done.stdout)
    assert std == pytest.approx(same)
    assert sum(v for _, v in parts) == pytest.approx(std**2)
    assert sum(v for _, v in whole) == pytest.approx(std**2)
    assert [name for name, _ in whole] == ["weights and noise, not told apart", "members disagree"]
    assert "unknown inputs" in dict(parts)
    x, var = np.array([[0.0, 0.5, 0.0]]), np.array([[0.0, 0.0, 1.0]])
    (member,) = plan.parts["network"].members
    want = variance_budget(member.steps, x, var)["unknown inputs"][0, 0]
    assert dict(parts)["unknown inputs"] == pytest.approx(0.9 * 0.25 * want)
