"""The twin rule: whatever is random has an analytic form and a sampling form, and they agree.

One false-alarm rate is stated for the whole matrix of cases: with a fresh seed a correct library
fails with probability 1e-4, whichever case fails. Every comparison is Bonferroni-corrected to that.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import truth
import varprop
import varprop.nn
from varprop import Gaussian, JointGaussian, check, nn

pytestmark = pytest.mark.usefixtures("strict_promotion")

FALSE_ALARM = 1e-4
PER_CASE = FALSE_ALARM / len(cases.every())
# A variance has a relative standard error of sqrt(2 / n) = 0.28 %: 2 % is seven of them, and the
# threshold lies below six.
N_SAMPLES = 250_000


def seed(case) -> jax.Array:
    """A key of its own for each case, whatever is inserted before it in the list."""
    return jax.random.key(sum(map(ord, str(case))))


class Together(nn.AbstractLayer):
    """Layers that keep the shape, side by side on the same input: one program instead of twenty."""

    layers: tuple[nn.AbstractLayer, ...]

    def moments(self, x):
        parts = [layer.moments(x) for layer in self.layers]
        return Gaussian(
            jnp.concatenate([part.mean for part in parts], axis=-1),
            jnp.concatenate([part.var for part in parts], axis=-1),
        )

    def sample(self, key):
        keys = jax.random.split(key, len(self.layers))
        plain = [layer.sample(k) for layer, k in zip(self.layers, keys, strict=True)]
        return lambda x: jnp.concatenate([function(x) for function in plain], axis=-1)


@pytest.fixture(scope="module")
def elementwise():
    """One report for all activations and noise processes: the worst |z| per case, and its limit."""
    listed = [*cases.activations(), *cases.noises()]
    width = cases.MEANS.shape[-1]
    report = check(
        Together(tuple(case.make() for case in listed)),
        cases.uncertain(),
        jax.random.key(4),
        n_samples=N_SAMPLES,
        false_alarm=PER_CASE * len(listed),
        mean_slack=np.repeat([case.mean_slack for case in listed], width),
        var_slack=np.repeat([case.var_slack for case in listed], width),
    )
    z = np.maximum(np.abs(report.mean_z), np.abs(report.var_z)).max(axis=0)
    worst = z.reshape(len(listed), width).max(axis=1)
    return dict(zip(map(str, listed), worst, strict=True)), report.threshold


@pytest.mark.parametrize("case", [*cases.activations(), *cases.noises()], ids=str)
def test_activations_and_noise(case, elementwise):
    worst, limit = elementwise
    assert worst[str(case)] <= limit


@pytest.mark.parametrize("case", cases.layers(), ids=str)
def test_layers(case):
    report = check(
        case.make(),
        case.x(),
        seed(case),
        n_samples=N_SAMPLES,
        false_alarm=PER_CASE,
        mean_slack=case.mean_slack,
        var_slack=case.var_slack,
    )
    assert report.passed, str(report)


def agree(draws, mean, var, cov=None):
    """Whether draws have the claimed moments, at the rate of one case."""
    d = draws.shape[-1]
    n_compared = 2 * np.size(mean) + (0 if cov is None else d * (d - 1) // 2)
    limit = truth.threshold(PER_CASE, n_compared)
    z = [*truth.sampling_z(draws, mean, var)]
    if cov is not None:
        z.append(truth.covariance_z(draws, cov))
    return all(np.abs(part).max() <= limit for part in z)


@pytest.mark.parametrize("case", cases.weights(), ids=str)
def test_weights(case):
    weights = case.make()
    draws = jax.jit(jax.vmap(weights.sample))(jax.random.split(seed(case), N_SAMPLES))
    moments = weights.moments()
    assert draws.shape[1:] == weights.shape == moments.shape
    assert agree(draws, moments.mean, moments.variances())


@pytest.mark.parametrize("case", cases.variables(), ids=str)
def test_variables(case):
    variable = case.make()
    draws = variable.sample(seed(case), (N_SAMPLES, 1), np.float32)
    moments = variable.moments()
    assert agree(draws, moments.mean[None], moments.var[None])


@pytest.mark.parametrize("case", cases.distributions(), ids=str)
def test_distributions(case):
    distribution = case.make()
    draws = distribution.sample(seed(case), (N_SAMPLES,))
    cov = distribution.dense_cov() if isinstance(distribution, JointGaussian) else None
    assert agree(draws, distribution.mean, distribution.variances(), cov)


def public_classes():
    for module in (varprop, varprop.nn):
        for name, value in vars(module).items():
            if inspect.isclass(value) and not name.startswith("_"):
                yield value


def test_the_list_is_complete():
    """Every public class that can be drawn from has a case, and every case is of a public class."""
    random = {
        kind
        for kind in public_classes()
        if hasattr(kind, "sample") and not kind.__name__.startswith("Abstract")
    }
    listed = {case.kind for case in cases.every()}
    assert random == listed
    for case in cases.every():
        assert type(case.make()) is case.kind


def test_every_layer_is_public():
    """No concrete layer, weight or variable of the library is hidden from the list above."""

    def below(kind):
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    public = set(public_classes())
    for contract in (nn.AbstractLayer, nn.AbstractWeights, nn.AbstractVariable):
        for kind in below(contract):
            inside = kind.__module__.startswith("varprop.") and "<locals>" not in kind.__qualname__
            if inside and not kind.__name__.startswith("Abstract"):
                assert kind in public, kind


class Distorted(nn.AbstractLayer):
    """A layer whose analytic form is wrong by a chosen amount."""

    layer: nn.AbstractLayer
    var_factor: jax.Array  # arrays, so that all mutations share one compiled program
    shift: jax.Array
    cov_factor: jax.Array

    def __init__(self, layer, var_factor=1.0, shift=0.0, cov_factor=1.0):
        self.layer = layer
        self.var_factor, self.shift, self.cov_factor = (
            jnp.asarray(v, jnp.float32) for v in (var_factor, shift, cov_factor)
        )

    def moments(self, x):
        out = self.layer.moments(x)
        if isinstance(out, Gaussian):
            return Gaussian(out.mean + self.shift * out.var**0.5, self.var_factor * out.var)
        cov = out.dense_cov()
        diagonal = cov * np.eye(cov.shape[-1], dtype=cov.dtype)
        return JointGaussian(
            out.mean, self.var_factor * diagonal + self.cov_factor * (cov - diagonal)
        )

    def sample(self, key):
        return self.layer.sample(key)


NETWORK = next(case for case in cases.networks() if case.label == "Gaussian")
JOINT = next(case for case in cases.layers() if case.label == "more outputs than inputs")


@pytest.mark.parametrize(
    ("case", "mutation"),
    [
        (NETWORK, {"var_factor": 1.02}),
        (NETWORK, {"var_factor": 0.98}),
        (NETWORK, {"shift": 0.02}),
        (JOINT, {"var_factor": 1.02}),
        (JOINT, {"cov_factor": 0.95}),
    ],
    ids=str,
)
def test_the_comparison_has_power(case, mutation):
    """A variance wrong by 2 %, a mean by 2 % of the spread, a covariance by 5 %: all are seen."""
    report = check(
        Distorted(case.make(), **mutation),
        case.x(),
        seed(case),
        n_samples=N_SAMPLES,
        false_alarm=PER_CASE,
    )
    assert not report.passed
    assert "DISAGREES" in str(report)


def test_weights_and_distributions_have_power_too():
    weights = cases.weights()[0].make()
    draws = jax.jit(jax.vmap(weights.sample))(jax.random.split(seed("power"), N_SAMPLES))
    moments = weights.moments()
    assert not agree(draws, moments.mean, 1.02 * moments.var)
    joint = cases.distributions()[1].make()
    draws = joint.sample(seed("power"), (N_SAMPLES,))
    assert not agree(draws, joint.mean, 1.02 * joint.variances())
    assert not agree(draws, joint.mean, joint.variances(), 1.02 * joint.dense_cov())


@pytest.mark.usefixtures("x64")
def test_a_layer_in_float64():
    case = next(case for case in cases.layers() if case.kind is nn.JointDense)
    layer = case.make()
    assert layer.moments(case.x()).dtype == np.float64
    report = check(layer, case.x(), seed(case), n_samples=N_SAMPLES, false_alarm=PER_CASE)
    assert report.passed, str(report)


def test_a_draw_is_deterministic_and_plain():
    """`sample(key)` gives the same function for the same key, and another for another."""
    everything = next(c for c in cases.networks() if c.label.startswith("noise everywhere"))
    layer, x = everything.make(), jnp.asarray(cases.MEANS)
    plain = layer.sample(jax.random.key(0))
    np.testing.assert_array_equal(plain(x), layer.sample(jax.random.key(0))(x))
    assert not np.array_equal(plain(x), layer.sample(jax.random.key(1))(x))
    # One function for all rows: what it does to a row does not depend on the others.
    np.testing.assert_allclose(plain(x)[1], plain(x[1]), rtol=1e-5, atol=1e-6)
