"""Filling buffers of rows on a thread of their own, while the one before is trained on."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Iterator

import jax
import numpy as np

from varprop.streaming.plan import Plan
from varprop.streaming.source import AbstractSource, SourceError
from varprop.training.program import Rows

#: Buffers alive at any moment: one to train on, one being filled or waiting.
N_BUFFERS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Buffer:
    """Rows on the device; those beyond `n_rows` are copies of the first, valid numbers."""

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
    ):
        self._source, self._plan, self._dtype = source, plan, dtype
        self._first, self._last, self._shuffle = first, last, shuffle
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
                    pieces = _Pieces(self._rows(epoch, place * self._plan.buffer_rows))
                self._slots.acquire()
                if self._closed:
                    return
                # Straight into the queue: a name here would keep a third buffer alive.
                self._ready.put(self._fill(pieces, self._plan.rows_of(number)))
        except BaseException as error:  # raised again by `take`
            self._ready.put(error)

    def _rows(self, epoch: int, skip: int) -> Iterator[np.ndarray]:
        """Yield an epoch's rows but for the first few; whole blocks among these are not read."""
        n_blocks = len(self._plan.block_rows)
        for block in self._plan.order(epoch) if self._shuffle else range(n_blocks):
            if skip >= self._plan.block_rows[block]:
                skip -= self._plan.block_rows[block]
                continue
            for piece in self._source.read(int(block), self._dtype):
                if self._closed:
                    return
                if skip < len(piece):
                    yield piece[skip:]
                skip = max(0, skip - len(piece))

    def _fill(self, pieces: _Pieces, n_rows: int) -> Buffer:
        n_inputs, n_outputs = len(self._source.features), len(self._source.targets)
        size = self._plan.buffer_rows
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
            weights = None if weight is None else jax.device_put(weight)
            return Buffer(Rows(jax.device_put(x), jax.device_put(y), weights, None), n_rows)


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
