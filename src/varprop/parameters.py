"""Which arrays of a model are learned.

Every floating array in a model is a parameter unless the class that holds it declares the field
with `constant()`: a dropout rate or a grid of a table is data, not something to train.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import PyTree


def constant(**options: Any) -> Any:
    """Declare a field of an `equinox.Module` that holds arrays, but none to be trained.

    Examples
    --------
    >>> import equinox as eqx, jax
    >>> class Scale(eqx.Module):
    ...     by: jax.Array = constant()
    >>> trainable_mask(Scale(jax.numpy.ones(3))).by
    False
    """
    metadata = {**options.pop("metadata", {}), "trainable": False}
    return eqx.field(metadata=metadata, **options)


def _is_constant(owner: Any, name: str) -> bool:
    if not dataclasses.is_dataclass(owner):
        return False
    return any(
        field.name == name and not field.metadata.get("trainable", True)
        for field in dataclasses.fields(owner)
    )


def trainable_mask(tree: PyTree) -> PyTree:
    """Return the tree with True at every array to be learned and False elsewhere.

    It is the filter for `equinox.partition(model, trainable_mask(model))`.
    """

    def learned(path: tuple, leaf: Any) -> bool:
        node = tree
        for key in path:
            if isinstance(key, GetAttrKey):
                if _is_constant(node, key.name):
                    return False
                node = getattr(node, key.name)
            elif isinstance(key, SequenceKey):
                node = node[key.idx]
            elif isinstance(key, DictKey):
                node = node[key.key]
            else:  # a container of someone else's: what it holds is judged by its dtype alone
                break
        return eqx.is_inexact_array(leaf)

    return jax.tree_util.tree_map_with_path(learned, tree)


def count_parameters(tree: PyTree) -> int:
    """Return the number of learned scalars in a model.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> count_parameters({"a": jnp.ones((3, 2)), "b": jnp.arange(4)})
    6
    """
    learned = eqx.filter(tree, trainable_mask(tree))
    return sum(leaf.size for leaf in jax.tree.leaves(learned))
