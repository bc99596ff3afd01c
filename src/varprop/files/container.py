"""Model files: one .safetensors file with named arrays and a checked JSON header.

Reading runs no code and trusts nothing: sizes are compared with the file's before anything is
allocated, the caller says which arrays there must be before they are read, and a checksum covers
the header and all arrays. Writing is atomic.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from varprop.atomic import replacing
from varprop.errors import InputError

#: Version of the layout described here and in `varprop.files.regressor`; 1 is read as well.
FORMAT = 2

_ENTRY = "varprop"
_MAX_HEADER_BYTES = 100_000_000  # as safetensors has it
_DTYPES: dict[str, np.dtype] = {"F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}


class ModelFileError(InputError):
    """A model file cannot be used (or a model cannot be written to one); the message says why."""


class ArraySpec(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype


def looks_like_model(start: bytes) -> bool:
    """Whether a file with these first bytes, at least nine, is a .safetensors file by its looks.

    Its first eight bytes are the header's length, which may be the mark of any other format.

    Examples
    --------
    >>> looks_like_model((300).to_bytes(8, "little") + b'{"a":'), looks_like_model(b"a,b,c,d,e")
    (True, False)
    """
    return 1 < int.from_bytes(start[:8], "little") < 2**32 and start[8:9] == b"{"


def write_model_file(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model file: whole, or not at all.

    Parameters
    ----------
    path
        Where to; by custom it ends in ``.safetensors``.
    header
        Anything JSON can hold.
    arrays
        float32 and float64 arrays by name.

    Examples
    --------
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> write_model_file(path, {"class": "Example"}, {"a": np.ones(2)})
    >>> read_model_file(path, lambda header, table: None)[1]["a"].tolist()
    [1.0, 1.0]
    """
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = {"format": FORMAT, "model": dict(header), "sha256": _digest(header, arrays)}
    # One entry only: safetensors puts several in a random order, and equal models shall make equal
    # files.
    metadata = {_ENTRY: json.dumps(content, sort_keys=True, allow_nan=False)}
    try:
        data = safetensors.numpy.save(dict(arrays), metadata)
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"the model cannot be written ({error}).") from error
    # What could not be read again is not written.
    if (length := int.from_bytes(data[:8], "little")) > _MAX_HEADER_BYTES:
        raise ModelFileError(
            f"the names in the model need {length} bytes, more than a model file holds: take fewer "
            "or shorter categories."
        )
    with replacing(path) as file:
        file.write(data)


def read_model_file(
    path: str | os.PathLike[str],
    check: Callable[[dict[str, Any], dict[str, ArraySpec]], None],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model file.

    Parameters
    ----------
    path
        The file.
    check
        Called with the header and the shapes and dtypes of the arrays before these are read;
        raises if they are not what the header calls for.

    Returns
    -------
    header, arrays

    Raises
    ------
    ModelFileError
        If the file is damaged, is no model file, or has a format this version does not read.
    OSError
        If it cannot be opened.
    """
    path = pathlib.Path(path)
    with open(path, "rb") as file:
        try:
            return _read(file, check)
        except ModelFileError as error:
            raise ModelFileError(f"{path.name}: {error}") from error.__cause__


def read_model_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the header alone, which no checksum of the arrays has confirmed.

    Raises
    ------
    ModelFileError
        As `read_model_file` does.
    """
    with open(path, "rb") as file:
        try:
            return _read_header(file)[1]["model"]
        except ModelFileError as error:
            raise ModelFileError(f"{pathlib.Path(path).name}: {error}") from error.__cause__


def _read_header(file: BinaryIO) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """Return the bytes of the header, what varprop wrote into it, and the entries of the arrays."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8:
        raise ModelFileError("the file is cut short or is no .safetensors file.")
    if length > _MAX_HEADER_BYTES:
        raise ModelFileError(f"the header claims {length} bytes, more than a model file has.")
    head = file.read(length)
    outer = parse_json(head)
    metadata = outer.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {_ENTRY}:
        raise ModelFileError("this .safetensors file was not written by varprop.")
    content = parse_json(metadata[_ENTRY])
    if set(content) != {"format", "model", "sha256"} or not isinstance(content["model"], dict):
        raise ModelFileError("the header lacks an entry or has one too many.")
    _check_format(content["format"], content["model"])
    return start + head, content, outer


def _read(file: BinaryIO, check: Callable[[dict[str, Any], dict[str, ArraySpec]], None]) -> Any:
    head, content, outer = _read_header(file)
    header, n_bytes = content["model"], os.fstat(file.fileno()).st_size - len(head)
    check(header, _array_table(outer, n_bytes))
    data = head + file.read(n_bytes)
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(f"the arrays cannot be read ({error}).") from error
    if _digest(header, arrays) != content["sha256"]:
        raise ModelFileError("the checksum is wrong: the file was changed after it was written.")
    return header, arrays


def parse_json(text: Any) -> dict[str, Any]:
    """Parse a JSON object strictly: no duplicate keys, no NaN, no text that is not UTF-8.

    Examples
    --------
    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    if not isinstance(text, str | bytes):
        raise ModelFileError("the header is not text.")
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFileError("the header is no valid JSON.") from error
    if not isinstance(value, dict):
        raise ModelFileError("the header is no JSON object.")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ModelFileError("a name occurs twice in the header.")
    return value


def _no_constant(name: str) -> None:
    raise ModelFileError(f"the header holds {name}, which is no number.")


def _check_format(version: Any, header: dict[str, Any]) -> None:
    if type(version) is not int or not 1 <= version < 2**31:
        raise ModelFileError("the format version is no whole number.")
    if version in (1, FORMAT):
        return
    writer = "a later varprop"
    # A damaged header leaves the sentence without the writer's version.
    with contextlib.suppress(KeyError, TypeError):
        writer = "varprop " + str(header["libraries"]["varprop"])[:40]
    raise ModelFileError(
        f"the file has format {version}, but this version reads format {FORMAT}: load it "
        f"with {writer}, which wrote it."
    )


def _array_table(outer: dict[str, Any], n_bytes: int) -> dict[str, ArraySpec]:
    """Check names, dtypes, shapes and places of the arrays, which must fill the file exactly."""
    table, places = {}, []
    for name, entry in outer.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ModelFileError(f"the entry of array {name[:80]!r} is damaged.")
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        shape, offsets = entry["shape"], entry["data_offsets"]
        if dtype is None or not _whole(shape) or not _whole(offsets) or len(offsets) != 2:
            raise ModelFileError(f"the entry of array {name[:80]!r} is damaged.")
        count = 1
        for extent in shape:
            count *= extent
        if len(shape) > 8 or offsets[1] - offsets[0] != count * dtype.itemsize:
            raise ModelFileError(f"the size of array {name[:80]!r} does not fit its shape.")
        table[name] = ArraySpec(tuple(shape), dtype)
        places.append((offsets[0], offsets[1]))
    end = 0
    for begin, after in sorted(places):
        if begin != end:
            raise ModelFileError("the arrays overlap or leave a gap.")
        end = after
    if end != n_bytes:
        raise ModelFileError(f"the arrays need {end} bytes, but the file has {n_bytes}.")
    return table


def _whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
