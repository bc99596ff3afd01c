"""Which arrays of a model are learned, and a model taken apart into these and the rest.

Every floating array in a model is a parameter unless the class that holds it declares the field
with `constant()`: a dropout rate or a grid of a table is data, not something to train.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import Array, Float, PyTree

from varprop.moments.checks import array_module


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


def trainable_mask(tree: PyTree) -> PyTree:
    """Return the tree with True at every array to be learned and False elsewhere.

    It is the filter for `equinox.partition(model, trainable_mask(model))`.
    """

    def learned(path: tuple, leaf: Any) -> bool:
        node = tree
        for key in path:
            if isinstance(key, GetAttrKey):
                field = getattr(node, "__dataclass_fields__", {}).get(key.name)
                if field is not None and not field.metadata.get("trainable", True):
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


@dataclasses.dataclass(frozen=True)
class Structure:
    """The static part of a model: hashable, so that equal ones share a compiled program."""

    treedef: Any
    kinds: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    static: tuple[Any, ...]

    def build(self, params: Float[Array | np.ndarray, " p"], constants: list[Array]) -> Any:
        """Put the tree together again, with NumPy arrays (which compiles nothing) if given one."""
        sizes = [int(np.prod(shape, dtype=int)) for shape in self.shapes]
        if isinstance(params, np.ndarray):
            pieces: Sequence[Any] = np.split(params, np.cumsum(sizes)[:-1])
        else:
            # The derivative of one split is one concatenation; slices would give padded sums.
            pieces = jax.lax.split(params, sizes)
        parts = zip(pieces, self.shapes, strict=True)
        learned = iter(part.reshape(shape) for part, shape in parts)
        sources = {"param": learned, "constant": iter(constants), "static": iter(self.static)}
        return jax.tree.unflatten(self.treedef, [next(sources[kind]) for kind in self.kinds])


def take_apart(tree: PyTree) -> tuple[Structure, Float[Array, " p"], list[Array]]:
    """Split a model into structure, all parameters as one vector, and arrays that are not trained.

    One vector makes the optimizer a handful of kernels instead of a handful per array.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> structure, params, constants = take_apart({"a": jnp.ones((2, 2)), "b": jnp.arange(3)})
    >>> params.shape, len(constants)
    ((4,), 1)
    >>> structure.build(params + 1, constants)["a"].tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    leaves, treedef = jax.tree.flatten(tree)
    mask = jax.tree.leaves(trainable_mask(tree))
    kinds, shapes, static, params, constants = [], [], [], [], []
    for leaf, learned in zip(leaves, mask, strict=True):
        if learned:
            kinds.append("param")
            shapes.append(tuple(leaf.shape))
            params.append(leaf)
        elif eqx.is_array(leaf):
            kinds.append("constant")
            constants.append(leaf)
        else:
            kinds.append("static")
            static.append(leaf)
    if not params:
        raise ValueError("the model has nothing to train.")
    if len({leaf.dtype for leaf in params}) > 1:
        raise TypeError(
            "all parameters of a model must have one dtype, but there are "
            + " and ".join(sorted({leaf.dtype.name for leaf in params}))
            + "."
        )
    structure = Structure(treedef, tuple(kinds), tuple(shapes), tuple(static))
    xp = array_module(*params)
    return structure, jnp.asarray(xp.concatenate([xp.ravel(leaf) for leaf in params])), constants
