"""Cores: each a client of XLA's with one thread, on which one lane at a time is trained.

XLA's usual client for the CPU has a pool of threads, one for every core, to which it hands pieces
of each step, and which wait for them by spinning. For steps of some tens of microseconds this makes
one lane slower, and lanes side by side get in each other's way. A client of a lane's own, with one
thread in its pool, has none of this; results are the same to the bit, since it is the same compiled
code. JAX takes the client of the arrays it is given, so that its configuration stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from varprop.data.source import Rows

# Compiled programs kept, of each core; lanes of one call share one.
_N_PROGRAMS = 8

_lock = threading.Lock()
_free: list[Core] = []
# Compiled by one core, for the others to load; the lock of each is held while it is compiled.
_compiled: OrderedDict[Any, tuple[threading.Lock, list[Any]]] = OrderedDict()


class Core:
    """A client of XLA's with one thread; one lane at a time may use it."""

    def __init__(self) -> None:
        from jaxlib import xla_client

        with _lock:
            before = os.environ.get("NPROC")
            os.environ["NPROC"] = "1"  # read by XLA when it makes a client's threads
            try:
                client = xla_client.make_cpu_client(num_devices=1)
            finally:
                if before is None:
                    del os.environ["NPROC"]
                else:
                    os.environ["NPROC"] = before
        self.device: jax.Device = client.local_devices()[0]  # type: ignore[attr-defined]
        self._programs: OrderedDict[Any, Any] = OrderedDict()

    def place(self, tree: Any) -> Any:
        """Return arrays as this core's."""
        return jax.device_put(tree, self.device)

    def give_back(self, tree: Any) -> Any:
        """Return this core's arrays as those of JAX's usual device."""
        return jax.device_put(jax.tree.map(np.asarray, tree))

    def place_rows(self, rows: Rows) -> Rows:
        """Return rows as this core's: the same memory, without a copy."""
        return Rows(*(None if part is None else self.place(np.asarray(part)) for part in rows))

    def call(self, function: Any, static: Any, *arguments: Any) -> Any:
        """Call a jitted function whose first argument is static, compiled once for all cores."""
        leaves, structure = jax.tree.flatten(arguments)
        kinds = tuple(jax.typeof(leaf) for leaf in leaves)
        key = (function, static, structure, kinds, bool(jax.config.read("jax_enable_x64")))
        program = self._programs.get(key)
        if program is None:
            program = self._load(key, function, static, arguments)
            self._programs[key] = program
            if len(self._programs) > _N_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return program(*arguments)

    def _load(self, key: Any, function: Any, static: Any, arguments: tuple[Any, ...]) -> Any:
        with _lock:
            lock, found = _compiled.setdefault(key, (threading.Lock(), []))
            _compiled.move_to_end(key)
            if len(_compiled) > _N_PROGRAMS:
                _compiled.popitem(last=False)
        # What XLA has read from JAX's cache on disk it cannot write down once more, and need not:
        # the cache serves all cores.
        setting: Any = jax.config
        cached = setting.jax_enable_compilation_cache and setting.jax_compilation_cache_dir
        with lock:
            if cached or not found:
                program = function.lower(static, *arguments).compile()
                found += [] if cached else [program]
                return program
            if not isinstance(found[0], tuple):
                found[0] = serialize_executable.serialize(found[0])
            written, into, out_of = found[0]
            return serialize_executable.deserialize_and_load(
                written,
                into,
                out_of,
                backend=self.device.client,
                execution_devices=[self.device],
            )


@contextlib.contextmanager
def a_core() -> Iterator[Core | None]:
    """Lend a core; None where JAX computes on something else than the CPU, or has no such client.

    Examples
    --------
    >>> with a_core() as core:
    ...     print(core is None or core.place(np.ones(2)) + 1)
    [2. 2.]
    """
    if jax.default_backend() != "cpu":
        yield None
        return
    with _lock:
        core = _free.pop() if _free else None
    try:
        core = core or Core()
    except (ImportError, AttributeError, TypeError):  # another version of jaxlib
        yield None
        return
    try:
        yield core
    finally:
        with _lock:
            _free.append(core)
