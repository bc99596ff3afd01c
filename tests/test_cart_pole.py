"""What benchmarks/cart_pole.py plans by: one step of the propagated state, against other truths."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varprop import nn

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def cart_pole():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import cart_pole
    finally:
        sys.path.remove(str(BENCHMARKS))
    return cart_pole


def rescaled(cart_pole, network, rng):
    """Return a network of the change of the state, in units that differ from one another."""
    scales = rng.uniform(0.5, 2.0, 5), rng.uniform(0.05, 0.2, 4)
    shifts = rng.normal(size=5), 0.1 * rng.normal(size=4)
    return cart_pole.Rescaled(
        network,
        jnp.full(4, 0.01),
        *(jnp.asarray(x) for x in (shifts[0], scales[0], shifts[1], scales[1])),
    )


def changed(model, network, states, pushes):
    """Return the states after pushes by one plain network, rows (n, 4)."""
    _, v, angle, turn = states.T
    features = jnp.stack([v, jnp.sin(angle), jnp.cos(angle), turn, pushes], axis=1)
    out = network((features - model.x_shift) / model.x_scale)
    return states + model.y_shift + model.y_scale * out


def test_a_known_state_gets_what_drawn_networks_make_of_it(cart_pole):
    """Means and variances within 4.9 standard errors: 8 comparisons, one false alarm in 1e5."""
    rng, n = np.random.default_rng(0), 20_000
    with jax.enable_x64(True):
        network = nn.mlp(5, 4, key=jax.random.key(0), hidden_layer_sizes=(20,))
        model = rescaled(cart_pole, network, rng)
        state, push = jnp.asarray(rng.normal(size=(1, 4))), jnp.array([2.0])
        mean, cov = cart_pole.next_moments(model, state.T, jnp.zeros((4, 4, 1)), push)
        drawn = jax.vmap(lambda key: changed(model, network.sample(key), state, push)[0])(
            jax.random.split(jax.random.key(1), n)
        )
        noise = np.asarray(model.y_scale) ** 2 * 0.01
    drawn, var = np.asarray(drawn), np.diagonal(np.asarray(cov)[..., 0]) - noise
    z = (drawn.mean(axis=0) - np.asarray(mean)[:, 0]) / (drawn.std(axis=0) / np.sqrt(n))
    assert np.abs(z).max() < 4.9
    squares = (drawn - drawn.mean(axis=0)) ** 2
    z = (squares.mean(axis=0) - var) / (squares.std(axis=0) / np.sqrt(n))
    assert np.abs(z).max() < 4.9


def test_a_little_covariance_goes_by_the_jacobian(cart_pole):
    """Of a network that is known and smooth, to first order in the state's covariance."""
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        network = nn.mlp(
            5,
            4,
            key=jax.random.key(2),
            hidden_layer_sizes=(20,),
            activation=nn.Erf(),
            weights=nn.PointWeights.init,
        )
        model = rescaled(cart_pole, network, rng)
        state, push = jnp.asarray(rng.normal(size=4)), jnp.array([-3.0])
        root = 1e-4 * jnp.asarray(rng.normal(size=(4, 4)))
        start = (root @ root.T)[..., None]
        mean, cov = cart_pole.next_moments(model, state[:, None], start, push)

        def plain(state):
            return changed(model, network.sample(jax.random.key(0)), state[None], push)[0]

        by_state = np.asarray(jax.jacfwd(plain)(state))
        expected = by_state @ np.asarray(start)[..., 0] @ by_state.T
        found = np.asarray(cov)[..., 0] - np.diag(np.asarray(model.y_scale) ** 2 * 0.01)
        np.testing.assert_allclose(np.asarray(mean)[:, 0], plain(state), rtol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_expected_cost_is_that_of_drawn_states(cart_pole):
    """By quadrature over the angle, the only one that is not a square."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    mean, var = np.array([0.3, 2.0, 1.5]), np.array([0.2, 0.7, 0.4])  # position, angle, turning
    angles = mean[1] + np.sqrt(var[1]) * nodes
    cosine = weights @ np.cos(angles) / weights.sum()
    found = cart_pole.cost(
        mean[0], var[0], np.cos(mean[1]) * np.exp(-0.5 * var[1]), mean[2], var[2]
    )
    expected = 1 + cosine + 0.1 * (0.3**2 + 0.2) + 0.003 * (1.5**2 + 0.4)
    assert found == pytest.approx(expected, rel=1e-12)
