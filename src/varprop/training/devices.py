"""The devices that share a training run, and what several processes must agree on.

Every device holds all rows, all parameters and the order of rows; of each batch it works on its
part, and the gradient is summed over the devices. Which rows make up a batch, and every draw, are
those of a run on one device.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from varprop.training.distributed import DistributedError, loss_of_another

_AXIS = "rows"


def data_mesh(devices: Sequence[jax.Device]) -> Mesh | None:
    """Return the mesh of these devices; None for JAX's usual one, where nothing is to be shared.

    Examples
    --------
    >>> data_mesh(jax.devices()[:1]) is None
    True
    """
    if list(devices) == jax.local_devices()[:1]:
        return None
    if not devices:
        raise ValueError("devices must name at least one device; jax.devices() lists them.")
    taking_part = {device.process_index for device in devices}
    if taking_part != {jax.process_index()} and len(taking_part) != jax.process_count():
        raise ValueError(
            "devices must be those of this process, jax.local_devices(), or some of every process: "
            f"these are of processes {sorted(taking_part)} of {jax.process_count()}."
        )
    # Auto: the compiler follows the placement of the batch through the whole step.
    return jax.make_mesh((len(devices),), (_AXIS,), axis_types=(AxisType.Auto,), devices=devices)


def spans_processes(mesh: Mesh | None) -> bool:
    """Whether several processes take part in the run."""
    return mesh is not None and len({d.process_index for d in mesh.devices.flat}) > 1


def split_over(mesh: Mesh) -> NamedSharding:
    """Return the placement of a batch: each device has its part of the rows."""
    return NamedSharding(mesh, PartitionSpec(_AXIS))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the placement of all else: every device has it whole."""
    return NamedSharding(mesh, PartitionSpec())


def on_devices(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Return the arrays of a tree on every device of the mesh, the same in all processes."""
    if mesh is None:
        return jax.device_put(tree)
    whole = replicated(mesh)

    def place(leaf: Any) -> Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = place(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        if not spans_processes(mesh):
            return jax.device_put(leaf, whole)
        array = np.asarray(leaf)
        # device_put would compare the values of all processes, with a message for every array.
        return jax.make_array_from_callback(array.shape, whole, lambda index: array[index])

    return jax.tree.map(place, tree)


def over_devices(
    value_and_gradient: Callable[..., Any], mesh: Mesh, *, draws_for_rows: bool
) -> Callable[..., Any]:
    """Share the rows of a batch among the devices, and sum what they find.

    Parameters
    ----------
    value_and_gradient
        Takes parameters, what is given whole to every device, row numbers, their weights, the
        number of the draw and the KL weight. The last enters linearly: every device has its part of
        the KL divergence as well.
    mesh
        The devices.
    draws_for_rows
        Whether it may draw something for every row. A device would then draw for its own what
        another draws for others; so the partition is left to the compiler, which keeps the meaning
        of the whole, at the price of a message for each of the model's arrays.
    """

    def evened(chosen: Array, weight: Array) -> tuple[Array, Array]:
        missing = -chosen.shape[0] % mesh.size  # filled up with rows of weight 0
        return jnp.pad(chosen, (0, missing), mode="edge"), jnp.pad(weight, (0, missing))

    def by_compiler(params, given, chosen, weight, draw, kl_weight):
        # All that follows from the rows is spread like them.
        batch = jax.lax.with_sharding_constraint(evened(chosen, weight), split_over(mesh))
        found = value_and_gradient(params, given, *batch, draw, kl_weight)
        return jax.lax.with_sharding_constraint(found, replicated(mesh))

    def part(*arguments):
        *others, kl_weight = arguments
        loss, gradient = value_and_gradient(*others, kl_weight / mesh.size)
        # One message for both: each costs as much as some thousand numbers.
        total = jax.lax.psum(jnp.concatenate([loss[None], gradient]), _AXIS)
        return total[0], total[1:]

    def by_hand(params, given, chosen, weight, draw, kl_weight):
        whole, split = PartitionSpec(), PartitionSpec(_AXIS)
        return jax.shard_map(
            part,
            mesh=mesh,
            in_specs=(whole, whole, split, split, whole, whole),
            out_specs=(whole, whole),
            check_vma=False,
        )(params, given, *evened(chosen, weight), draw, kl_weight)

    return by_compiler if draws_for_rows else by_hand


@contextlib.contextmanager
def losses_named(*, shared: bool = True) -> Iterator[None]:
    """Turn JAX's error about a message that did not arrive into a sentence about its cause.

    In a run that no other process shares, errors are what they are.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Where gloo fails before the program runs, JAX makes a ValueError of it.
        failed = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
        if not shared or not failed:
            raise
        raise loss_of_another() from error


def largest_of_all(value: int) -> int:
    """Return the largest of the values that all processes give."""
    with losses_named():
        return int(np.max(multihost_utils.process_allgather(np.int32(value))))


def from_first(payload: bytes) -> bytes:
    """Return the bytes that process 0 gives; those of the others are not looked at."""
    with losses_named():
        size = int(multihost_utils.broadcast_one_to_all(np.int32(len(payload))))
        mine = payload if jax.process_index() == 0 else bytes(size)
        told = multihost_utils.broadcast_one_to_all(np.frombuffer(mine, np.uint8))
    return np.asarray(told, np.uint8).tobytes()


def require_same(digest: str, what: str) -> None:
    """Raise in every process unless all of them come with the digest of process 0."""
    first = json.loads(from_first(json.dumps(digest).encode()))
    if largest_of_all(int(first != digest)):
        raise DistributedError(
            f"the processes were given different {what}: each must have the same as process 0."
        )
