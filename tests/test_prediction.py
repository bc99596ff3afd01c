"""`propagate`: the network's own moments in the user's units, whatever the blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny
from varprop import (
    ROPD,
    Data,
    Gaussian,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    Scaling,
    fit,
    propagate,
)
from varprop.training.result import _propagate_block

SCALING = Scaling(
    x_shift=np.array([3.0, -40.0]),
    x_scale=np.array([0.1, 20.0]),
    y_shift=np.array([5.0, -1e3]),
    y_scale=np.array([2.0, 50.0]),
)


@pytest.fixture(params=[False, True], ids=["diagonal", "joint"])
def model(request, x64):
    return tiny.model(n_outputs=2, joint=request.param)


def inputs(n):
    return np.random.default_rng(0).normal(SCALING.x_shift, SCALING.x_scale, (n, 2))


def by_hand(model, x, x_var=None):
    """The network's moments of standardized inputs, scaled back in NumPy."""
    x = (x - SCALING.x_shift) / SCALING.x_scale
    x_var = None if x_var is None else jnp.asarray(x_var / SCALING.x_scale**2)
    out = model.network.moments(Gaussian(jnp.asarray(x), x_var))
    scale = SCALING.y_scale
    cov = np.asarray(out.dense_cov() if hasattr(out, "dense_cov") else out.to_joint().dense_cov())
    return np.asarray(out.mean) * scale + SCALING.y_shift, cov * np.outer(scale, scale)


@pytest.mark.parametrize("uncertain", [False, True])
def test_gives_the_networks_moments_in_the_users_units(model, uncertain):
    x = inputs(20)
    x_var = np.tile([1e-3, 9.0], (20, 1)) if uncertain else None
    out = propagate(model, x, x_var=x_var, scaling=SCALING)
    mean, cov = by_hand(model, x, x_var)
    np.testing.assert_allclose(out.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(out.model_var, np.diagonal(cov, axis1=1, axis2=2), rtol=1e-11)
    noise = np.exp(2 * np.asarray(model.likelihood.log_std)) * SCALING.y_scale**2
    np.testing.assert_allclose(out.noise_var, np.tile(noise, (20, 1)), rtol=1e-14)
    np.testing.assert_allclose(out.output_cov, cov + np.diag(noise), rtol=1e-11, atol=1e-14)


def test_a_covariance_only_for_joint_outputs(model):
    joint = type(model.network.layers[-1]).__name__ == "JointDense"
    out = propagate(model, inputs(5), scaling=SCALING)
    assert out.is_joint == joint
    assert np.all((out.output_cov[:, 0, 1] != 0) == joint)


def test_everything_is_float64():
    """Also where the model is float32: it is NumPy's from there on."""
    out = propagate(tiny.model(n_outputs=2, joint=True), inputs(5), scaling=SCALING)
    parts = (out.mean, out.model_var, out.noise_var, out.output_cov)
    assert {part.dtype.name for part in parts} == {"float64"}


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 64, 65, 100])
def test_blocks_do_not_show(n):
    """Blocks of 32: none, part of one, exactly one, one row more, and so on."""
    model = tiny.model(n_outputs=2)
    x = inputs(100)
    whole = propagate(model, x, scaling=SCALING, block_rows=128)
    part = propagate(model, x[:n], scaling=SCALING, block_rows=32)
    assert part.mean.shape == part.var.shape == (n, 2)
    np.testing.assert_allclose(part.mean, whole.mean[:n], rtol=1e-5)
    np.testing.assert_allclose(part.var, whole.var[:n], rtol=1e-5)


def test_any_number_of_blocks_compiles_once():
    """And so do all row counts of a bucket."""
    model = tiny.model(hidden_layer_sizes=(3,))
    _propagate_block.clear_cache()  # another test may have compiled these shapes
    before = _propagate_block._cache_size()
    for n in (33, 64, 100, 1000):
        propagate(model, inputs(n), block_rows=32)
    for n in (1, 17, 32):
        propagate(model, inputs(n), block_rows=4096)
    assert _propagate_block._cache_size() == before + 1


def test_without_scaling_units_are_the_networks():
    model = tiny.model(n_outputs=2, joint=True)
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    out = propagate(model, x)
    direct = model.network.moments(jnp.asarray(x))
    np.testing.assert_allclose(out.mean, direct.mean, rtol=1e-5, atol=1e-6)
    noise = np.diag(np.asarray(model.likelihood.noise_var))
    np.testing.assert_allclose(out.output_cov, direct.dense_cov() + noise, rtol=1e-5, atol=1e-7)


def test_units_of_the_target_scale_the_answer(model):
    """y in another unit: mean and standard deviation follow, the shift is added."""
    x = inputs(10)
    factor = np.array([1e-3, 1e4])
    other = Scaling(
        SCALING.x_shift, SCALING.x_scale, SCALING.y_shift * factor + 7.0, SCALING.y_scale * factor
    )
    a, b = (propagate(model, x, scaling=scaling) for scaling in (SCALING, other))
    np.testing.assert_allclose(b.mean, a.mean * factor + 7.0, rtol=1e-12)
    np.testing.assert_allclose(b.var, a.var * factor**2, rtol=1e-12)
    np.testing.assert_allclose(b.noise_var, a.noise_var * factor**2, rtol=1e-12)


def test_units_of_the_inputs_do_not_matter(model):
    x, x_var = inputs(10), np.tile([1e-3, 9.0], (10, 1))
    factor = np.array([1e-9, 1e12])
    other = Scaling(
        SCALING.x_shift * factor, SCALING.x_scale * factor, SCALING.y_shift, SCALING.y_scale
    )
    a = propagate(model, x, x_var=x_var, scaling=SCALING)
    b = propagate(model, x * factor, x_var=x_var * factor**2, scaling=other)
    np.testing.assert_allclose(b.mean, a.mean, rtol=1e-9)
    np.testing.assert_allclose(b.var, a.var, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [GaussianLikelihood, HeteroscedasticGaussian])
def test_a_fit_predicts(likelihood):
    """In the user's units; of a row by itself what it says among others."""
    x, y = tiny.arrays(70)
    data = Data(100 * x, 1e4 + 50 * y)
    recipe = tiny.recipe(max_steps=600, batch_size=None)
    result = fit(
        tiny.model(likelihood=likelihood), data, ROPD(), key=jax.random.key(0), recipe=recipe
    )
    out = result.predictive(data.x)
    assert out.mean.shape == out.model_var.shape == out.noise_var.shape == (70, 1)
    np.testing.assert_allclose(result.predictive(data.x[3:4]).mean, out.mean[3:4], rtol=1e-6)
    assert 0.5 * data.y.std() < np.sqrt(np.mean(out.var)) < 1.1 * data.y.std()
    assert np.mean((data.y - out.mean) ** 2) < 0.9 * data.y.var()
    uncertain = result.predictive(data.x, x_var=np.full((70, 2), 50.0**2))
    assert np.all(uncertain.model_var > out.model_var)
    assert len(repr(result)) < 100


def test_a_row_too_far_out_is_named():
    x = inputs(5)
    x[3, 0] = 1e300
    with pytest.raises(ValueError, match="The prediction of row 3 is not finite"):
        propagate(tiny.model(n_outputs=2), x, scaling=SCALING)


def test_inputs_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"needs .*2"):
        propagate(tiny.model(), np.ones((4, 3)))
