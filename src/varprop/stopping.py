"""Asking training to stop where it can keep what it has, from another thread.

A KeyboardInterrupt is raised wherever the main thread is, and inside of JAX it has crashed the
process. Training looks here between two polls of its lanes instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_listening, _asked = threading.Event(), threading.Event()


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Let `ask` be heard, in a block that trains and keeps what is trained when it is stopped."""
    _asked.clear()
    _listening.set()
    try:
        yield
    finally:
        _listening.clear()
        _asked.clear()


def ask() -> bool:
    """Ask whoever listens to stop; return whether somebody does, and had not been asked before.

    Examples
    --------
    >>> ask()
    False
    >>> with listening():
    ...     ask(), ask(), asked()
    (True, False, True)
    """
    heard = _listening.is_set() and not _asked.is_set()
    if heard:
        _asked.set()
    return heard


def asked() -> bool:
    """Return whether somebody asked to stop."""
    return _asked.is_set()
