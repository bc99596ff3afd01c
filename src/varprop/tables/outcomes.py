"""What the targets of a table are: numbers, classes, counts, or numbers known only as a range."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.tables.cells import Cells, to_floats, to_text
from varprop.tables.kinds import READ_AS, kind_of
from varprop.tables.levels import find_levels
from varprop.tables.text import TableError

#: Likelihoods by name, and what the targets are for each of them.
LIKELIHOODS = {
    **dict.fromkeys(
        ("gaussian", "heteroscedastic", "student-t", "yeo-johnson", "log-normal"), "numbers"
    ),
    **dict.fromkeys(("poisson", "negative-binomial"), "counts"),
    **dict.fromkeys(("censored", "censored-log-normal"), "censored"),
    **dict.fromkeys(("logit", "probit", "softmax", "ordinal"), "classes"),
}
#: What a cell of the column of --censoring says: exactly known, at most or at least so much.
EXACT, LEFT, RIGHT = 0, -1, 1
CODES = {
    **dict.fromkeys(("", "none", "exact", "0"), EXACT),
    **dict.fromkeys(("left", "-1", "<"), LEFT),
    **dict.fromkeys(("right", "1", ">"), RIGHT),
}
_ALLOWED = "none (or 0, or an empty cell), left (-1, <) and right (1, >)"
_POSITIVE = ("log-normal", "censored-log-normal")

Where = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the targets are, and which columns say more of them.

    Attributes
    ----------
    kind
        "numbers", "classes", "counts" or "censored".
    likelihood
        Of the networks, one of `LIKELIHOODS`.
    values
        How a class is read: "text", "boolean" or "number".
    classes
        Names of the classes in their order.
    exposure
        Column of what counts are in proportion to.
    censoring
        Column that says whether a target is exact, an upper limit (left) or a lower one (right).
    upper
        Column of upper ends of ranges, whose lower ends the target has.

    Examples
    --------
    >>> outcome = Outcome("classes", "softmax", "text", ("no", "yes"))
    >>> outcome.observed(pa.table({"y": ["yes", None, "NO"]}), ("y",), str).ravel().tolist()
    [1.0, nan, 0.0]
    """

    kind: str = "numbers"
    likelihood: str = "gaussian"
    values: str = "number"
    classes: tuple[str, ...] = ()
    exposure: str | None = None
    censoring: str | None = None
    upper: str | None = None

    def names(self, targets: Sequence[str]) -> tuple[str, ...]:
        """Return what the columns of y are called: of the targets first."""
        more = (f"{name} (upper)" for name in targets) if self.kind == "censored" else ()
        return (*targets, *more)

    def read_as(self, targets: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the columns to be read to know the targets, as what cells of text are read."""
        found = dict.fromkeys(targets, READ_AS[self.values].text_type)
        if self.censoring is not None:
            found[self.censoring] = pa.string()
        return found | {n: pa.float64() for n in (self.exposure, self.upper) if n is not None}

    def observed(
        self, cells: pa.Table | pa.RecordBatch, targets: Sequence[str], where: Where
    ) -> np.ndarray:
        """Return y, shape (rows, columns): NaN where there is no target.

        The columns are what estimators are given: a number or a count for each target, of classes
        their number, of what is censored a lower and an upper bound, infinite where there is none.
        """
        if self.kind == "classes":
            name = targets[0]
            return self.codes(cells.column(name), name, where)[:, None]
        values = np.stack([_numbers(cells, name, where) for name in targets], axis=1)
        if self.kind == "censored":
            return self._censored(cells, values, targets[0], where)
        if self.kind == "counts":
            wrong = (values < 0) | (values != np.round(values)) & ~np.isnan(values)
            _refuse(
                wrong,
                values,
                targets,
                where,
                f"--likelihood {self.likelihood} needs counts, whole numbers that are not negative",
            )
        if self.likelihood in _POSITIVE:
            self._check_positive(values, targets, where)
        return values

    def codes(self, cells: Cells, name: str, where: Where) -> np.ndarray:
        """Return the number of each cell's class as a float, NaN where there is none."""
        text = class_names(cells, self.values, name, where)
        found = find_levels(text, self.classes)
        codes = np.asarray(found.cast(pa.float64()).fill_null(np.nan))
        new = np.isnan(codes) & np.asarray(text.is_valid())
        if new.any():
            row = int(np.argmax(new))
            shown = ", ".join(self.classes[:5]) + (", ..." if len(self.classes) > 5 else "")
            raise TableError(
                f"target {name!r} is {str(text[row])!r} in {where(row)}, a class that the training "
                f"data did not have ({shown}): correct it or remove the row."
            )
        return codes

    def exposures(self, cells: pa.Table | pa.RecordBatch, where: Where) -> np.ndarray | None:
        """Return the exposure of each row, shape (rows,); None if there is no such column."""
        if self.exposure is None or self.exposure not in cells.schema.names:
            return None
        found = _numbers(cells, self.exposure, where, "an exposure")
        wrong = ~(found > 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            said, mend = f"is {found[row]:g}", "an exposure must be positive"
            if np.isnan(found[row]):
                said, mend = "has no value", "fill it in, or leave such rows out (--missing drop)"
            raise TableError(f"column {self.exposure!r} {said} in {where(row)}: {mend}.")
        return found

    def _check_positive(self, values: np.ndarray, targets: Sequence[str], where: Where) -> None:
        needs = f"--likelihood {self.likelihood} needs positive numbers"
        _refuse(values <= 0, values, targets, where, needs)

    def _censored(
        self,
        cells: pa.Table | pa.RecordBatch,
        values: np.ndarray,
        name: str,
        where: Where,
    ) -> np.ndarray:
        """Return the bounds of each row."""
        lower = values[:, 0]
        if self.upper is not None:
            upper = _numbers(cells, self.upper, where, "the upper end of a range")
            if (lower > upper).any():
                row = int(np.argmax(lower > upper))
                raise TableError(
                    f"column {self.upper!r} is {upper[row]:g} in {where(row)}, below the target's "
                    f"{lower[row]:g}: it must hold the upper ends."
                )
            some = ~(np.isnan(lower) & np.isnan(upper))
            lower, upper = (
                np.where(np.isnan(lower) & some, -np.inf, lower),
                np.where(np.isnan(upper) & some, np.inf, upper),
            )
        else:
            upper = lower
            if self.censoring is not None:
                code = censoring_codes(cells.column(self.censoring), self.censoring, where)
                none = np.isnan(lower)
                lower, upper = (
                    np.where((code == LEFT) & ~none, -np.inf, lower),
                    np.where((code == RIGHT) & ~none, np.inf, upper),
                )
        if self.likelihood in _POSITIVE:
            self._check_positive(upper[:, None], (name,), where)
        return np.stack([lower, upper], axis=1)


def class_names(cells: Cells, values: str, name: str, where: Where) -> Any:
    """Return the class of each cell as text, null where there is none.

    Examples
    --------
    >>> class_names(pa.array([1.0, 2.5, None]), "number", "y", str).to_pylist()
    ['1', '2.5', None]
    """
    read_as = READ_AS[values]
    if kind_of(cells.type) not in read_as.kinds:
        raise TableError(
            f"target {name!r} has the type {cells.type} in {where(0)}, but the model was fitted on "
            f"{'classes of text' if values == 'text' else read_as.says}: convert the column."
        )
    if values != "number":
        found = to_text(cells)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    different, place = np.unique(to_floats(cells, name, where), return_inverse=True)
    names = pa.array([None if np.isnan(v) else number_name(v) for v in different], pa.string())
    return names.take(pa.array(place))


def number_name(value: float) -> str:
    """Return a number as the name of a class.

    Examples
    --------
    >>> number_name(3.0), number_name(0.25)
    ('3', '0.25')
    """
    return np.format_float_positional(value, trim="-")


def in_order(counts: Mapping[str, int], values: str) -> tuple[str, ...]:
    """Return classes by name, or by size where they are numbers.

    Examples
    --------
    >>> in_order({"10": 3, "9": 2}, "number"), in_order({"b": 1, "a": 1}, "text")
    (('9', '10'), ('a', 'b'))
    """
    return tuple(sorted(counts, key=float if values == "number" else str))


def censoring_codes(cells: Cells, name: str, where: Where) -> np.ndarray:
    """Return what a column says of each target: `EXACT`, `LEFT` or `RIGHT`.

    Examples
    --------
    >>> censoring_codes(pa.array(["right", None, "<"]), "status", str).tolist()
    [1, 0, -1]
    """
    kind = kind_of(cells.type)
    if kind in ("integer", "number"):
        numbers = to_floats(cells, name, where)
        said = ["" if np.isnan(v) else number_name(v) for v in numbers]
    elif kind in ("text", "nothing"):
        said = [text or "" for text in to_text(cells).to_pylist()]
    else:
        raise TableError(f"column {name!r} holds {kind}: it must say {_ALLOWED}.")
    codes = [CODES.get(_as_whole(text.strip().casefold())) for text in said]
    if None in codes:
        row = codes.index(None)
        raise TableError(
            f"column {name!r} is {said[row]!r} in {where(row)}, which is no code of censoring: "
            f"allowed are {_ALLOWED}."
        )
    return np.array(codes, int)


def _as_whole(text: str) -> str:
    """Return 1 for 1.0, as whole numbers among empty cells are often written."""
    return text.removesuffix(".0")


def _numbers(
    cells: pa.Table | pa.RecordBatch, name: str, where: Where, needs: str = ""
) -> np.ndarray:
    """Return a column as numbers: of a target unless said what needs them."""
    found = cells.column(name)
    if kind_of(found.type) not in READ_AS["number"].kinds:
        what = f"column {name!r}" if needs else f"target {name!r}"
        if kind_of(found.type) != "text":
            said = f"has the type {found.type} in {where(0)}"
        else:
            row, text = next(
                (row, text)
                for row, text in enumerate(to_text(found).to_pylist())
                if text and not _is_number(text)
            )
            said = f"holds the text {text!r} in {where(row)}"
        raise TableError(f"{what} {said}: {needs or 'a target'} must be a number.")
    return to_floats(found, name, where)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse(
    wrong: np.ndarray, values: np.ndarray, targets: Sequence[str], where: Where, why: str
) -> None:
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        raise TableError(
            f"target {targets[column]!r} is {values[row, column]:g} in {where(row)}, but {why}."
        )
