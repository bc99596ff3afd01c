"""Checkpoints: the whole state of a run in one file, written whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
from typing import Any

import numpy as np

from varprop.atomic import replacing

FORMAT = 2


class CheckpointError(ValueError):
    """A checkpoint cannot be used: it is damaged, or belongs to another run."""


def fingerprint(description: Any, arrays: list[np.ndarray]) -> str:
    """Digest of everything that determines a run; a checkpoint of another run must not be resumed.

    Examples
    --------
    >>> fingerprint({"a": 1}, []) == fingerprint({"a": 2}, [])
    False
    """
    digest = hashlib.sha256(json.dumps(description, sort_keys=True, default=repr).encode())
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save(path: pathlib.Path, run: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write everything, whole or not at all."""
    header = json.dumps({"format": FORMAT, "run": run, **meta})
    parts: dict[str, Any] = {"__header__": np.frombuffer(header.encode(), np.uint8), **arrays}
    # A fixed name, so that a file left by a killed process is overwritten.
    with replacing(path, temporary=path.name + ".tmp") as file:
        np.savez(file, **parts)


def read(path: pathlib.Path) -> bytes | None:
    """Return the content of a checkpoint; None if there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def load(
    content: bytes, path: pathlib.Path, run: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return what a checkpoint of this run holds; `path` is for messages. Loading runs no code."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop("__header__").tobytes())
        if not isinstance(meta, dict):
            raise TypeError(f"the header is a {type(meta).__name__}.")
    except Exception as error:  # a damaged or foreign file may fail in any way
        raise CheckpointError(
            f"{path} is not a readable checkpoint: delete it to start anew."
        ) from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {meta.get('format')}, but this version reads {FORMAT}: "
            "delete it to start anew."
        )
    if meta["run"] != run:
        raise CheckpointError(
            f"{path} belongs to a run with other data, settings or seed: "
            "name another file or delete it."
        )
    return arrays, meta
