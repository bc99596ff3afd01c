"""Exports to C and JavaScript give what Python gives: compiled by the compiler at hand, run by node.

Python's side is the plan run by NumPy, and its quantiles are found by other means; that plans are
what JAX says is `test_plans`.
"""

import ctypes
import dataclasses
import json
import pathlib
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
from varprop.plans.plan import Networks, Plan
from varprop.predictive.simple import LinearModel
from varprop.tables.columns import CategoryColumn
from varprop.tables.model import TableModel

CC, NODE = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"), shutil.which("node")
needs_c = pytest.mark.skipif(not CC, reason="there is no C compiler")
needs_node = pytest.mark.skipif(not NODE, reason="there is no node")
FLAGS = "-std=c99 -Wall -Wextra -pedantic -Werror -O1 -shared -fPIC".split()
LEVELS = np.array([0.05, 0.5, 0.95, 0.999])
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
    logit, probit = likelihoods.BernoulliLikelihood(0.4), likelihoods.BernoulliLikelihood(-0.4, link="probit")
    found["logit"] = plan_of(network(end=logit), network(end=logit, seed=2), classes=two)
    found["probit"] = plan_of(network(end=probit), classes=two)
    softmax = likelihoods.Categorical([0.1, -2.0, 0.7])
    found["softmax"] = plan_of(network(3, end=softmax, joint=True), classes=three)
    found["ordinal"] = plan_of(network(end=likelihoods.Ordinal([-1.5, 0.2])), classes=three)
    return found


@pytest.fixture(scope="module")
def plans():
    return cases()


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
    for found, real in ((got, want),):
        places = [found[:, :d] - real[:, :d], found[:, 4 * d :] - real[:, 4 * d :]]
        assert np.abs(places[0] / np.maximum(std, np.abs(real[:, :d]))).max() < tolerance
        size = np.maximum(np.repeat(std, len(LEVELS), axis=1), np.abs(real[:, 4 * d :]))
        assert np.abs(places[1] / size).max() < tolerance


# ---- C --------------------------------------------------------------------------------------------


def wrapper(p, classes):
    """A function of C that predicts rows and writes down what `expected` returns."""
    if classes:
        body = f"for (int k = 0; k < {p}_CLASSES; k++) *o++ = f.probability[k]; *o++ = f.aleatoric;"
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
        for name, plan in plans.items()
    }
    assert ("double" in headers["m_ReLU"].split("_real;")[0].split("typedef")[-1]) == (
        dtype == "float64"
    )
    classes = [names[name] for name, plan in plans.items() if len(plan.classes_)]
    library = compiled(tmp_path, headers, classes)
    for name, plan in plans.items():
        want = expected(plan, X)
        got, code = in_c(library, names[name], X, want.shape[1])
        assert code == 0, name
        try:
            check(got, want, plan, TOLERANCE[dtype].get(name, TOLERANCE[dtype][""]))
        except AssertionError as error:
            raise AssertionError(name) from error


# What float can hold is 6e-8; exceptions say how much of it a sum loses.
TOLERANCE = {
    "float64": {"": 1e-9},
    "float32": {"": 1e-5},
}
