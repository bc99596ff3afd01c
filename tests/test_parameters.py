"""Which arrays of a model are learned, and taking a model apart and putting it together again."""

import collections
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varprop import nn
from varprop.nn.parameters import constant, count_parameters, take_apart, trainable_mask

pytestmark = pytest.mark.usefixtures("strict_promotion")


class Inner(eqx.Module):
    learned: jax.Array
    fixed: jax.Array = constant()
    name: str = "inner"


class Outer(eqx.Module):
    free: Inner
    frozen: Inner = constant()  # everything below is fixed, whatever it says of itself
    count: int = eqx.field(static=True, default=3)


def outer():
    one, two = jnp.ones(2), jnp.ones(3)
    return Outer(Inner(one, two), Inner(one, two))


def test_mask_of_nested_modules():
    mask = trainable_mask(outer())
    assert mask.free.learned is True
    assert mask.free.fixed is False
    assert mask.free.name is False
    assert mask.frozen.learned is mask.frozen.fixed is False
    assert count_parameters(outer()) == 2


Pair = collections.namedtuple("Pair", "a b")


def test_mask_reaches_into_containers():
    tree = {"list": [outer()], "tuple": (outer(), jnp.arange(3)), "pair": Pair(outer(), 1.0)}
    mask = trainable_mask(tree)
    for part in (mask["list"][0], mask["tuple"][0], mask["pair"].a):
        assert part.free.learned is True
        assert part.free.fixed is part.frozen.learned is False
    assert mask["tuple"][1] is False  # whole numbers are not trained
    assert mask["pair"].b is False  # nor are Python's floats
    assert count_parameters(tree) == 6


def test_what_a_network_trains():
    """Weights and biases; neither noise, nor slopes, nor tables, nor random draws."""
    net = eqx.filter_eval_shape(
        lambda key: nn.mlp(
            3,
            2,
            key=key,
            hidden_layer_sizes=(5,),
            activation=nn.LeakyReLU(),
            hidden_noise=nn.Dropout(0.1),
            weight_noise=nn.GaussianWeightNoise(0.1),
        ),
        jax.random.key(0),
    )
    arrays = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), net)
    assert count_parameters(arrays) == 2 * (3 * 5 + 5 + 5 * 2 + 2)


def test_taking_apart_and_putting_together():
    tree = {"outer": outer(), "key": jax.random.key(0), "ints": jnp.arange(4)}
    structure, params, constants = take_apart(tree)
    np.testing.assert_array_equal(params, np.ones(2))
    again = structure.build(params, constants)
    assert eqx.tree_equal(again, tree)
    changed = structure.build(jnp.asarray([5.0, 6.0]), constants)
    np.testing.assert_array_equal(changed["outer"].free.learned, [5.0, 6.0])
    np.testing.assert_array_equal(changed["outer"].frozen.learned, [1.0, 1.0])
    # Equal structures are one key of a cache, so that they share a compiled program.
    assert hash(structure) == hash(take_apart(tree)[0])
    assert structure == take_apart(tree)[0]
    # One vector's gradient is that of the parts.
    slope = jax.grad(lambda p: jnp.sum(structure.build(p, constants)["outer"].free.learned ** 2))
    np.testing.assert_array_equal(slope(params), [2.0, 2.0])


def test_a_model_that_cannot_be_trained():
    with pytest.raises(ValueError, match=r"^the model has nothing to train\.$"):
        take_apart({"a": jnp.arange(3)})
    mixed = {"a": jnp.ones(2), "b": jnp.ones(2, jnp.bfloat16)}
    sentence = "all parameters of a model must have one dtype, but there are bfloat16 and float32."
    with pytest.raises(TypeError, match="^" + re.escape(sentence) + "$"):
        take_apart(mixed)
