"""Filling buffers of rows on a thread of their own, while the one before is trained on.

Where several processes share a run, each reads its part of every buffer, and hands it to the others
when the buffer is taken.
"""

from __future__ import annotations

import dataclasses
import functools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from varprop.data.source import AbstractSource, SourceError
from varprop.training.devices import on_devices, replicated, spans_processes, split_over
from varprop.training.plan import Plan
from varprop.training.program import Rows

#: Buffers alive at any moment: one to train on, one being filled or waiting.
N_BUFFERS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Buffer:
    """Rows on the devices; those beyond `n_rows` are copies of others, valid numbers."""

    rows: Rows
    n_rows: int


class BufferReader:
    """Reads the buffers of a plan in order, one ahead of whoever takes them.

    Parameters
    ----------
    source, plan, dtype
        What to read, in which order and as what.
    first, last
        Numbers of the first buffer and of the one after the last.
    shuffle
        Whether blocks come in the order of the epoch or as they are.
    mesh
        The devices the rows are for, each of which gets all of them; JAX's usual one unless given.
    """

    def __init__(
        self,
        source: AbstractSource,
        plan: Plan,
        dtype: np.dtype,
        *,
        first: int,
        last: int,
        shuffle: bool,
        mesh: Mesh | None = None,
    ):
        self._source, self._plan, self._dtype = source, plan, dtype
        self._first, self._last, self._shuffle, self._mesh = first, last, shuffle, mesh
        self._part = _part_of_process(plan.buffer_rows, mesh)
        self._slots = threading.Semaphore(N_BUFFERS)
        self._ready: queue.SimpleQueue[Buffer | BaseException] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="varprop-reader", daemon=True)
        self._thread.start()

    def take(self) -> Buffer:
        """Wait for the next buffer, or raise what reading it raised."""
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        if spans_processes(self._mesh):
            assert self._mesh is not None
            return dataclasses.replace(item, rows=_exchange(self._mesh)(item.rows))
        return item

    def release(self) -> None:
        """Say that the buffer taken last is no longer in use."""
        self._slots.release()

    def close(self) -> None:
        """Stop reading and wait for the thread to end."""
        self._closed = True
        self._slots.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            for number in range(self._first, self._last):
                epoch, place = divmod(number, self._plan.n_buffers)
                if place == 0 or number == self._first:
                    parts = [self._rows_of(g) for g in range(place, self._plan.n_buffers)]
                    pieces = _Pieces(self._read(epoch, parts))
                self._slots.acquire()
                if self._closed:
                    return
                # Straight into the queue: a name here would keep a third buffer alive.
                self._ready.put(self._fill(pieces, place))
        except BaseException as error:  # raised again by `take`
            self._ready.put(error)

    def _rows_of(self, place: int) -> tuple[int, int]:
        """Return the rows of an epoch, first and end, that this process reads for a buffer."""
        start, n_rows = place * self._plan.buffer_rows, self._plan.rows_of(place)
        first, end = (min(row, n_rows) for row in self._part)
        # Where the last buffer of an epoch leaves nothing for this process, any row will do.
        return (start + first, start + end) if first < end else (start, start + 1)

    def _read(self, epoch: int, parts: list[tuple[int, int]]) -> Iterator[np.ndarray]:
        """Yield these rows of an epoch; blocks that have none of them are not read."""
        n_blocks = len(self._plan.block_rows)
        end = 0
        for block in self._plan.order(epoch) if self._shuffle else range(n_blocks):
            row, end = end, end + self._plan.block_rows[block]
            wanted = [(a, b) for a, b in parts if a < end and b > row]
            if not wanted:
                continue
            for piece in self._source.read(int(block), self._dtype):
                if self._closed:
                    return
                for a, b in wanted:
                    if a < row + len(piece) and b > row:
                        yield piece[max(0, a - row) : b - row]
                row += len(piece)
                if row >= wanted[-1][1]:
                    break

    def _fill(self, pieces: _Pieces, place: int) -> Buffer:
        n_inputs, n_outputs = len(self._source.features), len(self._source.targets)
        size = self._part[1] - self._part[0]
        first, end = self._rows_of(place)
        n_rows = end - first
        x = _aligned((size, n_inputs), self._dtype)
        y = _aligned((size, n_outputs), self._dtype)
        weight = None if self._source.weight is None else _aligned((size,), self._dtype)
        done = 0
        while done < n_rows and not self._closed:
            piece = pieces.take(n_rows - done)
            part = slice(done, done + len(piece))
            x[part] = piece[:, :n_inputs]
            y[part] = piece[:, n_inputs : n_inputs + n_outputs]
            if weight is not None:
                weight[part] = piece[:, -1]
            done += len(piece)
        for array in (x, y, weight):
            if array is not None:
                array[done:] = array[0]
        # JAX's switch for float64 belongs to a thread, and this one is new.
        with jax.enable_x64(self._dtype == np.float64):
            x_, y_, weight_ = _placed((x, y, weight), self._mesh, self._part)
        return Buffer(Rows(x_, y_, weight_, None), self._plan.rows_of(place))


def _part_of_process(n_rows: int, mesh: Mesh | None) -> tuple[int, int]:
    """Return the rows of a buffer, first and end, that this process reads: all if it is alone."""
    if not spans_processes(mesh):
        return 0, n_rows
    assert mesh is not None
    parts = split_over(mesh).addressable_devices_indices_map((_even(n_rows, mesh),)).values()
    bounds = [part[0].indices(_even(n_rows, mesh))[:2] for part in parts if part is not None]
    return min(first for first, _ in bounds), max(end for _, end in bounds)


def _even(n_rows: int, mesh: Mesh) -> int:
    return -(-n_rows // mesh.size) * mesh.size


def _placed(
    arrays: tuple[np.ndarray | None, ...], mesh: Mesh | None, part: tuple[int, int]
) -> tuple[Any, ...]:
    """Put what this process has read on its devices; `_exchange` makes it whole on all."""
    if not spans_processes(mesh):
        return on_devices(arrays, mesh)
    assert mesh is not None
    first, end = part
    n_parts = mesh.size // sum(d.process_index == jax.process_index() for d in mesh.devices.flat)

    def place(array: np.ndarray) -> Array:
        shape = ((end - first) * n_parts, *array.shape[1:])

        def cut(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            start, stop, _ = index[0].indices(shape[0])
            return array[start - first : stop - first]

        return jax.make_array_from_callback(shape, split_over(mesh), cut)

    return jax.tree.map(place, arrays)


@functools.cache
def _exchange(mesh: Mesh) -> Callable[[Rows], Rows]:
    return jax.jit(lambda rows: rows, out_shardings=replicated(mesh))


class _Pieces:
    """Pieces cut to size: what is beyond the end of a buffer is kept for the next."""

    def __init__(self, pieces: Iterator[np.ndarray]):
        self._pieces = pieces
        self._rest = np.empty((0, 0))

    def take(self, at_most: int) -> np.ndarray:
        while not len(self._rest):
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                raise SourceError("the source has fewer rows than it said: start again.") from None
        piece, self._rest = self._rest[:at_most], self._rest[at_most:]
        return piece


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an empty array that begins at a multiple of 64 bytes: JAX on a CPU copies others."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(dtype).reshape(shape)
