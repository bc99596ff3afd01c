"""Buffers of standardized rows on the devices: one that stays, or many that are read ahead.

Where all rows fit one buffer it is filled once and kept. Otherwise a thread of its own fills the
next while the one before is trained on. Where several processes share a run, each reads its part of
every buffer, and hands it to the others when the buffer is taken.
"""

from __future__ import annotations

import dataclasses
import functools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from varprop.data.source import PIECE_ROWS, AbstractSource, Rows, SourceError, check_columns
from varprop.data.statistics import Scaling, Statistics
from varprop.training.devices import on_devices, replicated, spans_processes, split_over
from varprop.training.schedule import Plan

#: Buffers alive at any moment: one to train on, one being filled or waiting.
N_BUFFERS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Feed:
    """What a lane is fed: a source, scaled, in the buffers of a plan, on some devices.

    Attributes
    ----------
    source, plan, scaling, dtype
        What to read, in which order, how to scale it and as what.
    statistics
        Of the source.
    mesh
        The devices the rows are for, each of which gets all of them; JAX's usual one unless given.
    """

    source: AbstractSource
    plan: Plan
    scaling: Scaling
    dtype: np.dtype
    statistics: Statistics
    mesh: Mesh | None = None

    @functools.cached_property
    def resident(self) -> Rows | None:
        """The rows on the devices, if all fit one buffer."""
        if self.plan.n_buffers > 1:
            return None
        if self.mesh is None or not spans_processes(self.mesh):
            blocks = range(len(self.plan.block_rows))
            pieces = (piece for block in blocks for piece in self.source.read(block))
            return on_devices(self.fill(pieces, self.plan.buffer_rows), self.mesh)
        reader = BufferReader(self, first=0, last=1, shuffle=False)
        try:
            return reader.take()
        finally:
            reader.close()

    def fill(self, pieces: Iterable[Rows], size: int) -> Rows:
        """Return a buffer of scaled rows; those beyond what there is are copies of the first."""
        source, dtype = self.source, self.dtype
        n, d = len(source.features), len(source.targets)
        buffer = Rows(
            _aligned((size, n), dtype),
            _aligned((size, d), dtype),
            None if source.weight_name is None else _aligned((size,), dtype),
            _aligned((size, n), dtype) if source.uncertain else None,
        )
        done = 0
        for piece in pieces:
            # Scaled while it is still in float64, a bounded number of rows at a time.
            for start in range(0, len(piece.x), PIECE_ROWS):
                part = self.scaling.rows(piece.part(slice(start, start + PIECE_ROWS)), dtype)
                for room, content in zip(buffer, part, strict=True):
                    if room is not None:
                        room[done : done + len(part.x)] = content
                done += len(part.x)
        for room in buffer:
            if room is not None:
                room[done:] = room[0]
        return buffer


class BufferReader:
    """Reads the buffers of a feed in order, one ahead of whoever takes them.

    Parameters
    ----------
    feed
        What to read.
    first, last
        Numbers of the first buffer and of the one after the last.
    shuffle
        Whether blocks come in the order of the epoch or as they are.
    """

    def __init__(self, feed: Feed, *, first: int, last: int, shuffle: bool):
        self._feed, self._plan = feed, feed.plan
        self._first, self._last, self._shuffle = first, last, shuffle
        self._part = _part_of_process(feed.plan.buffer_rows, feed.mesh)
        self._slots = threading.Semaphore(N_BUFFERS)
        self._ready: queue.SimpleQueue[Rows | BaseException] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="varprop-reader", daemon=True)
        self._thread.start()

    def take(self) -> Rows:
        """Wait for the next buffer, or raise what reading it raised.

        Rows beyond those of the buffer are copies of others, valid numbers.
        """
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        mesh = self._feed.mesh
        return _exchange(mesh)(item) if mesh is not None and spans_processes(mesh) else item

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
                first, end = self._rows_of(place)
                size = self._part[1] - self._part[0]
                # JAX's switch for float64 belongs to a thread, and this one is new.
                with jax.enable_x64(self._feed.dtype == np.float64):
                    # Straight into the queue: a name here would keep a third buffer alive.
                    self._ready.put(
                        _placed(
                            self._feed.fill(pieces.upto(end - first), size),
                            self._feed.mesh,
                            self._part,
                        )
                    )
        except BaseException as error:  # raised again by `take`
            self._ready.put(error)

    def _rows_of(self, place: int) -> tuple[int, int]:
        """Return the rows of an epoch, first and end, that this process reads for a buffer."""
        start, n_rows = place * self._plan.buffer_rows, self._plan.rows_of(place)
        first, end = (min(row, n_rows) for row in self._part)
        # Where the last buffer of an epoch leaves nothing for this process, any row will do.
        return (start + first, start + end) if first < end else (start, start + 1)

    def _read(self, epoch: int, parts: list[tuple[int, int]]) -> Iterator[Rows]:
        """Yield these rows of an epoch; blocks that have none of them are not read."""
        n_blocks = len(self._plan.block_rows)
        end = 0
        for block in self._plan.order(epoch) if self._shuffle else range(n_blocks):
            row, end = end, end + self._plan.block_rows[block]
            wanted = [(a, b) for a, b in parts if a < end and b > row]
            if not wanted:
                continue
            for piece in self._feed.source.read(int(block)):
                if self._closed:
                    return
                check_columns(self._feed.source, piece, int(block))
                for a, b in wanted:
                    if a < row + len(piece.x) and b > row:
                        yield piece.part(slice(max(0, a - row), b - row))
                row += len(piece.x)
                if row >= wanted[-1][1]:
                    break


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


def _placed(arrays: Rows, mesh: Mesh | None, part: tuple[int, int]) -> Rows:
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

    def __init__(self, pieces: Iterator[Rows]):
        self._pieces = pieces
        self._rest: Any = Rows(np.empty((0, 0)), np.empty((0, 0)))

    def upto(self, n_rows: int) -> Iterator[Rows]:
        """Yield so many rows."""
        while n_rows:
            if not len(self._rest.x):
                try:
                    self._rest = next(self._pieces)
                except StopIteration:
                    raise SourceError(
                        "the source has fewer rows than it said: start again."
                    ) from None
            piece = self._rest.part(slice(n_rows))
            self._rest = self._rest.part(slice(n_rows, None))
            n_rows -= len(piece.x)
            yield piece


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an empty array that begins at a multiple of 64 bytes: JAX on a CPU copies others."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(dtype).reshape(shape)
