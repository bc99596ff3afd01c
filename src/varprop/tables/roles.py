"""What the user said of a table's columns, and what cannot be of it."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the user said of the columns.

    Attributes
    ----------
    targets
        To be predicted.
    ids
        Copied to predictions and kept from the network.
    dropped
        Left out.
    categories, numbers
        To be taken as categories, and as numbers, whatever they look like.
    missing
        "error", "drop" or "impute".
    exposure, censoring, upper
        Columns that say more of the target, see `varprop.tables.outcomes.Outcome`.
    group, time
        A column of rows that belong together, or of times: kept from the network, and followed when
        rows are held out. One of the two.
    """

    targets: tuple[str, ...]
    ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: str = "error"
    numbers: tuple[str, ...] = ()
    exposure: str | None = None
    censoring: str | None = None
    upper: str | None = None
    group: str | None = None
    time: str | None = None

    @property
    def belonging(self) -> tuple[str, ...]:
        """Columns that say which rows belong together, and no more of them."""
        return tuple(name for name in (self.group, self.time) if name is not None)

    @property
    def more(self) -> tuple[str, ...]:
        """Columns that say more of the target."""
        named = (self.exposure, self.censoring, self.upper)
        return tuple(name for name in named if name is not None)


def wrong_roles(roles: Roles, names: tuple[str, ...], label: str) -> list[str]:
    """Say all that cannot be of the columns that were named.

    Examples
    --------
    >>> wrong_roles(Roles(("prize",)), ("size", "price"), "data.csv")
    ["data.csv has no column 'prize': did you mean 'price'?"]
    """
    if len(names) == 1:
        return [
            f"{label} has only one column, {names[0]!r}: say with --delimiter what stands between "
            "the columns, or give a table with inputs and a target."
        ]
    problems = []
    unique = (roles.targets, roles.ids, roles.dropped, roles.more, roles.belonging)
    kinds = (roles.categories, roles.numbers)
    for name in dict.fromkeys(name for names_ in (*unique, *kinds) for name in names_):
        if name not in names:
            problems.append(no_column(name, names, label))
    if roles.group is not None and roles.time is not None:
        problems.append("--group and --time both say which rows are held out together: give one.")
    more = ", --exposure, --censoring, --upper" if roles.more else ""
    more += ", --group, --time" if roles.belonging else ""
    for among, options in (
        (unique, f"--target, --id{more} and --drop"),
        (kinds, "--category and --number"),
    ):
        said = Counter(name for names_ in among for name in names_)
        problems += [
            f"column {name!r} is named more than once among {options}: it can be only one of these."
            for name, count in said.items()
            if count > 1
        ]
    return problems


def no_column(name: str, names: Sequence[str], label: str) -> str:
    """Say that a table has no such column, and which one may be meant.

    Examples
    --------
    >>> no_column("Price", ["size", "price"], "data.csv")
    "data.csv has no column 'Price': did you mean 'price'?"
    """
    close = difflib.get_close_matches(name, names, 1, 0.6)
    close = close or [other for other in names if other.lower() == name.lower()]
    listed = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else ".")
    hint = f"did you mean {close[0]!r}?" if close else f"it has {listed}"
    return f"{label} has no column {name!r}: {hint}"
