"""What one who uses an exported model gives it: the columns of the table, and their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from varprop.plans.plan import Plan

if TYPE_CHECKING:
    from varprop.tables.columns import Preprocessing


class Column(NamedTuple):
    """An input as the table has it.

    Attributes
    ----------
    name
        In the table.
    mean, var
        Over the training rows, of each of the model's inputs that it makes: one, or one per level.
    levels
        Of a category, in the order of their codes, None among them for a missing cell; None of a
        number.
    """

    name: str
    mean: tuple[float, ...]
    var: tuple[float, ...]
    levels: tuple[str | None, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """All inputs, and what comes out.

    Attributes
    ----------
    inputs
        In their order.
    targets
        Names; of a classifier the target's.
    classes
        Names; empty if the targets are numbers.
    impute
        Whether a missing number is fed as the column's mean with its variance as an error.

    Examples
    --------
    >>> city = Column("city", (0.3, 0.7), (0.21, 0.21), ("Bern", "Ulm"))
    >>> columns = Columns((Column("size", (5.0,), (2.0,)), city), ("price",))
    >>> columns.encoded(np.array([[7.0, 1.0]])).tolist()
    [[7.0, 0.0, 1.0]]
    """

    inputs: tuple[Column, ...]
    targets: tuple[str, ...]
    classes: tuple[str, ...] = ()
    impute: bool = False

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.inputs)

    def __iter__(self) -> Iterator[Column]:
        """Return the columns."""
        return iter(self.inputs)

    @classmethod
    def of_plan(cls, plan: Plan) -> Columns:
        """Return those of a model that was fitted on numbers."""
        names = plan.feature_names_in_ or tuple(f"x{i}" for i in range(plan.n_features_in_))
        targets = plan.target_names_ or (
            ("y",) if plan.n_outputs_ == 1 else tuple(f"y{i}" for i in range(plan.n_outputs_))
        )
        moments = zip(names, plan.scaling_.x_shift, plan.scaling_.x_scale, strict=True)
        inputs = tuple(Column(name, (float(m),), (float(s) ** 2,)) for name, m, s in moments)
        return cls(inputs, tuple(targets), tuple(map(str, plan.classes_.tolist())))

    @classmethod
    def of_table(cls, table: Preprocessing) -> Columns:
        """Return those of the table that a model was fitted on."""
        inputs = []
        for column in table.inputs:
            mean, var = (tuple(part.tolist()) for part in column.moments)
            inputs.append(Column(column.name, mean, var, getattr(column, "levels", None)))
        classes = table.outcome.classes
        return cls(tuple(inputs), table.targets, classes, table.missing == "impute")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.inputs)

    @property
    def levels(self) -> dict[str, tuple[str | None, ...]]:
        """Levels of the categories, by their names."""
        return {c.name: c.levels for c in self.inputs if c.levels is not None}

    def encoded(self, x: Any) -> Any:
        """Return the model's inputs, (rows, inputs), of numbers and codes, (rows, columns)."""
        if not self.levels:
            return x
        sizes = [1 if column.levels is None else len(column.levels) for column in self.inputs]
        codes = np.concatenate([np.arange(size, dtype=float) for size in sizes])
        is_code = np.repeat([column.levels is not None for column in self.inputs], sizes)
        spread = x @ np.repeat(np.eye(len(sizes)), sizes, axis=1)
        return np.where(is_code, np.where(spread == codes, 1.0, 0.0), spread)
