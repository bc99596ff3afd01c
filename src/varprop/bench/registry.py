"""Which data sets there are and what is predicted on them: the facts of `datasets.toml`, typed."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.resources
import tomllib
from collections.abc import Iterable
from typing import Any

import numpy as np

from varprop.errors import InputError


class UnknownName(InputError):
    """A name that is not in the list, with the nearest that is."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One table of numbers.

    Attributes
    ----------
    name, title, what
        Its key, how the paper calls it, and what is predicted, in words.
    n, d
        Rows and inputs.
    features, targets
        Names of the columns.
    licence, citation, home, notes
        What one should know before using it.
    splits
        ``{"kind": "published", "n": 20}`` or ``{"kind": "fixed", "n_train": ...}``.
    values_sha256
        Digest of its numbers, or None where nobody here could compute it.
    file
        Its name in a folder of Parquet files.
    download, package
        Where else it can be had.
    """

    name: str
    title: str
    what: str
    n: int
    d: int
    features: tuple[str, ...]
    targets: tuple[str, ...]
    licence: str
    citation: str
    home: str
    notes: tuple[str, ...]
    splits: dict[str, Any]
    download: dict[str, Any]
    values_sha256: str | None = None
    file: str | None = None
    package: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set and the targets predicted at once.

    Examples
    --------
    >>> task("energy").targets, task("energy_multi").targets
    (('heating_load',), ('heating_load', 'cooling_load'))
    """

    name: str
    title: str
    dataset: Dataset
    targets: tuple[str, ...]

    @property
    def n_splits(self) -> int:
        """How many splits are published (1 where the split is fixed)."""
        return int(self.dataset.splits.get("n", 1))


@functools.cache
def _facts() -> dict[str, Any]:
    text = importlib.resources.files("varprop.bench").joinpath("datasets.toml").read_text("utf-8")
    return tomllib.loads(text)


def dataset_names() -> list[str]:
    """Return the names of all data sets.

    Examples
    --------
    >>> len(dataset_names())
    13
    """
    return list(_facts()["datasets"])


def task_names() -> list[str]:
    """Return the names of all tasks, the data sets among them."""
    return [*_facts()["datasets"], *(t for t in _facts()["tasks"] if t.endswith("_multi"))]


def dataset(name: str) -> Dataset:
    """Return the data set of this name.

    Examples
    --------
    >>> dataset("yacht").n
    308
    """
    name = _facts()["aliases"].get(name, name)
    facts = known(name, dataset_names(), "data set")
    entry = dict(_facts()["datasets"][facts])
    for key in ("features", "targets", "notes"):
        entry[key] = tuple(entry[key])
    return Dataset(name=name, **entry)


def task(name: str) -> Task:
    """Return the task of this name; a data set's name is the task of the paper's Table 1."""
    name = _facts()["aliases"].get(name, name)
    known(name, task_names(), "data set")
    entry = _facts()["tasks"].get(name, {})
    data = dataset(entry.get("dataset", name))
    targets = tuple(entry.get("targets", data.targets))
    return Task(name, entry.get("title", data.title), data, targets)


def known(name: str, names: Iterable[str], kind: str) -> str:
    """Return the name if it is one of these; raise `UnknownName` with the nearest otherwise.

    Examples
    --------
    >>> known("yatch", ["yacht", "boston"], "data set")
    Traceback (most recent call last):
    varprop.bench.registry.UnknownName: there is no data set 'yatch': did you mean 'yacht'?
    """
    names = list(names)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
    raise UnknownName(f"there is no {kind} {name!r}: {hint}")


def split_rows(data: Dataset, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers of the training and test part of one split.

    The published splits (Hernández-Lobato & Adams 2015) follow from one rule: permutations drawn
    one after the other by ``RandomState(1)``, the first nine tenths of each for training.

    Parameters
    ----------
    data
        The data set.
    number
        0 is the first split.

    Examples
    --------
    >>> train, test = split_rows(dataset("boston"), 0)
    >>> len(train), len(test), test[:3].tolist()
    (455, 51, [431, 115, 470])
    """
    count = data.splits.get("n", 1)
    if not 0 <= number < count:
        raise ValueError(f"{data.name} has {count} split(s), so there is no split {number}.")
    if data.splits["kind"] == "fixed":
        border = data.splits["n_train"]
        return np.arange(border), np.arange(border, data.n)
    random = np.random.RandomState(1)
    for _ in range(number + 1):
        rows = random.choice(data.n, data.n, replace=False)
    border = round(0.9 * data.n)
    return rows[:border], rows[border:]
