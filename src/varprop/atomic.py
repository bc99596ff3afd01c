"""Files written whole or not at all: the one way in which this library writes.

What is temporary is known here, so that a process that has to end at once can take it away.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any

_TEMPORARY: set[pathlib.Path] = set()
# Held while something temporary comes into being, and from clean_up on for ever.
_LOCK = threading.Lock()


def clean_up(*, ending: bool = False) -> None:
    """Take away all that is temporary; if the process is ending no more can be made after it."""
    _LOCK.acquire()
    for path in list(_TEMPORARY):
        _remove(path)
    if not ending:
        _LOCK.release()


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    _TEMPORARY.discard(path)


def temporary_folder(owner: object) -> pathlib.Path:
    """Make a folder that goes away with its owner, or with the process.

    Examples
    --------
    >>> class Owner: ...
    >>> owner = Owner()
    >>> folder = temporary_folder(owner)
    >>> del owner
    >>> folder.exists()
    False
    """
    with _LOCK:
        path = pathlib.Path(tempfile.mkdtemp(prefix="varprop-"))
        _TEMPORARY.add(path)
    weakref.finalize(owner, _remove, path)
    return path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, temporary: str | None = None) -> Iterator[Any]:
    """Open a file beside a path for bytes, and rename it over the path if all went well.

    It is flushed to disk first, so that a crash or a full disk leaves an older file as it was. A
    link stays one, and what it points to is replaced; a device or a pipe is written to.

    Parameters
    ----------
    path
        Where to.
    temporary
        Name of the file beside it: a fixed one is overwritten if a killed process has left it.

    Examples
    --------
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "out.csv"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"mean")
    >>> path.read_bytes(), len(list(path.parent.iterdir()))
    (b'mean', 1)
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as file:
            yield file
        return
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: nothing was written.")
    beside = path.with_name(temporary or f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with _LOCK:
            _TEMPORARY.add(beside)
            file = open(beside, "wb")  # noqa: SIM115
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        _TEMPORARY.discard(beside)
    if hasattr(os, "O_DIRECTORY"):  # where folders can be opened, a rename survives a power cut
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
