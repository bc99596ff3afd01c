"""Categories: spellings that differ only in case or in blanks around them are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def one_spelling(counts: Mapping[Any, int]) -> dict[Any, Any]:
    """Return the spelling that stands for each value: the most frequent of those alike.

    Examples
    --------
    >>> one_spelling({"Yes": 3, "YES ": 1, "no": 2, None: 1})
    {'Yes': 'Yes', 'YES ': 'Yes', 'no': 'no', None: None}
    """
    alike: dict[Any, list[Any]] = {}
    for level in counts:
        alike.setdefault(None if level is None else _key(level), []).append(level)
    best = {
        key: None if key is None else min(found, key=lambda level: (-counts[level], level)).strip()
        for key, found in alike.items()
    }
    return {level: best[key] for key, found in alike.items() for level in found}


def merged(counts: Mapping[Any, int]) -> Counter[Any]:
    """Return counts by category.

    Examples
    --------
    >>> merged({"Yes": 3, "YES ": 1})
    Counter({'Yes': 4})
    """
    total: Counter[Any] = Counter()
    for level, name in one_spelling(counts).items():
        total[name] += counts[level]
    return total


def find_levels(text: Any, levels: Sequence[str | None]) -> Any:
    """Return the place of each cell among levels, null where it has none.

    Examples
    --------
    >>> find_levels(pa.array(["no", " YES", "never"]), ("no", "yes")).to_pylist()
    [0, 1, None]
    """
    place = pc.index_in(text, value_set=pa.array(levels, pa.string()))
    other = pc.and_(pc.is_null(place), pc.is_valid(text))
    if not pc.any(other).as_py():
        return place
    keys = Counter(_key(level) for level in levels if level is not None)
    # A file from before spellings were merged may have two levels that differ only so.
    known = {_key(v): i for i, v in enumerate(levels) if v is not None and keys[_key(v)] == 1}
    values = pc.unique(pc.filter(text, other)).to_pylist()
    found = pa.array([known.get(_key(value)) for value in values], pa.int32())
    at = pc.index_in(text, value_set=pa.array(values, pa.string()))
    return pc.if_else(other, pc.take(found, at), place)


def _key(level: str) -> str:
    return level.strip().casefold()
