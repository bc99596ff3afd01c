"""Files written whole or not at all: the one way in which this library writes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any


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
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # where folders can be opened, a rename survives a power cut
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
