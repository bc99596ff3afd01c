"""Buffers of standardized rows on the devices: one that stays, or many that are read ahead.

Where all rows fit one buffer it is filled once and kept. Otherwise a thread of its own fills the
next while the one before is trained on. Where several processes share a run, each reads its part of
every buffer, and hands it to the others when the buffer is taken.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.sharding import Mesh

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
            pieces = self.read(range(len(self.plan.block_rows)), [(0, self.plan.n_rows)])
            rows = self.fill(pieces, self.plan.n_rows, self.plan.buffer_rows)
            return jax.device_put(rows) if self.mesh is None else on_devices(rows, self.mesh)
        reader = BufferReader(self, first=0, last=1, shuffle=False)
        try:
            return reader.take()
        finally:
            reader.close()

    def read(self, order: np.ndarray | range, parts: list[tuple[int, int]]) -> Iterator[Rows]:
        """Yield the rows of blocks in this order that lie in a part, each piece in one part.

        Parts are ranges of rows, counted through all blocks; blocks that have none of them are not
        read.
        """
        end = 0
        for block in order:
            row, end = end, end + self.plan.block_rows[block]
            wanted = [(a, b) for a, b in parts if a < end and b > row]
            if not wanted:
                continue
            for piece in self.source.read(int(block)):
                check_columns(self.source, piece, int(block))
                for a, b in wanted:
                    if a < row + len(piece.x) and b > row:
                        yield piece.part(slice(max(0, a - row), b - row))
                row += len(piece.x)
                if row > end:
                    raise SourceError(
                        f"block {block} has more rows than its source said: start again."
                    )
                if row >= wanted[-1][1]:
                    break

    def fill(self, pieces: Iterator[Rows], n_rows: int, size: int) -> Rows:
        """Return so many rows, scaled, in a buffer; what is beyond them are copies of the first."""
        source, dtype = self.source, self.dtype
        n, d = len(source.features), len(source.targets)
        buffer = Rows(
            _aligned((size, n), dtype),
            _aligned((size, d), dtype),
            None if source.weight_name is None else _aligned((size,), dtype),
            None if source.error_shape is None else _aligned((size, *source.error_shape), dtype),
        )
        done = 0
        while done < n_rows:
            piece = next(pieces, None)
            if piece is None:
                raise SourceError("the source has fewer rows than it said: start again.")
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
                    blocks = range(len(self._plan.block_rows))
                    order = self._plan.order(epoch) if self._shuffle else blocks
                    pieces = itertools.takewhile(self._goes_on, self._feed.read(order, parts))
                self._slots.acquire()
                if self._closed:
                    return
                first, end = self._rows_of(place)
                size = self._part[1] - self._part[0]
                # JAX's switch for float64 belongs to a thread, and this one is new.
                with jax.enable_x64(self._feed.dtype == np.float64):
                    # Straight into the queue: a name here would keep a third buffer alive.
                    self._ready.put(
                        _placed(self._feed.fill(pieces, end - first, size), self._feed.mesh)
                    )
        except BaseException as error:  # raised again by `take`
            self._ready.put(error)

    def _rows_of(self, place: int) -> tuple[int, int]:
        """Return the rows of an epoch, first and end, that this process reads for a buffer."""
        start, n_rows = place * self._plan.buffer_rows, self._plan.rows_of(place)
        first, end = (min(row, n_rows) for row in self._part)
        # Where the last buffer of an epoch leaves nothing for this process, any row will do.
        return (start + first, start + end) if first < end else (start, start + 1)

    def _goes_on(self, piece: Rows) -> bool:
        return not self._closed


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


def _placed(arrays: Rows, mesh: Mesh | None) -> Rows:
    """Put what this process has read on its devices; `_exchange` makes it whole on all."""
    if not spans_processes(mesh):
        return on_devices(arrays, mesh)
    assert mesh is not None
    place = functools.partial(jax.make_array_from_process_local_data, split_over(mesh))
    return jax.tree.map(place, arrays)


@functools.cache
def _exchange(mesh: Mesh) -> Callable[[Rows], Rows]:
    return jax.jit(lambda rows: rows, out_shardings=replicated(mesh))


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an empty array that begins at a multiple of 64 bytes: JAX on a CPU copies others."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(dtype).reshape(shape)
