"""The functions of a model that C and JavaScript share: one for each network, by its structure."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from varprop.exports.columns import Columns
from varprop.exports.loops import Language, written
from varprop.exports.parts import Part, parts_of
from varprop.exports.tracing import Tensor
from varprop.plans.budget import INPUTS
from varprop.plans.ends import target_moments
from varprop.plans.plan import Plan


class Body(NamedTuple):
    """A function without its numbers: what several networks may have in common."""

    arrays: tuple[str, ...]
    lines: tuple[str, ...]
    uncertain: bool


@dataclasses.dataclass
class Functions:
    """Everything of a model that the templates fill in.

    Attributes
    ----------
    plan, columns
        What was written.
    bodies
        The functions.
    calls
        For each part of the mixture: the function for known inputs, the one for uncertain ones
        (None where no input can be uncertain), and where the numbers of either begin.
    blocks
        Name and numbers of each part, in their order; those for uncertain inputs by themselves.
    shares
        Of the components in the mixture.
    counts
        Components of each part.
    powers
        Of every component and target behind a transform, (components, targets); None without.
    sources
        Where the variance of components comes from, if they tell it, and that of the noise.
    """

    plan: Plan
    columns: Columns
    bodies: list[Body] = dataclasses.field(default_factory=list)
    calls: list[tuple[int, int, int | None, int]] = dataclasses.field(default_factory=list)
    blocks: list[tuple[str, np.ndarray]] = dataclasses.field(default_factory=list)
    shares: list[float] = dataclasses.field(default_factory=list)
    counts: list[int] = dataclasses.field(default_factory=list)
    powers: np.ndarray | None = None
    sources: list[str] | None = None

    @classmethod
    def of(
        cls, plan: Plan, columns: Columns, language: Language, *, budget: bool = False
    ) -> Functions:
        """Write all functions of a plan; with what variance is made of, if that can be told."""
        found, begin = cls(plan, columns), 0
        n, none = plan.n_features_in_, np.zeros((1, plan.n_outputs_))
        x, var = (Tensor("input", (), (1, n)) for _ in range(2))
        with np.errstate(all="ignore"):
            known = parts_of(plan, x)
            unsure = parts_of(plan, x, var) if columns.impute else [None] * len(known)
        powers = [getattr(each, "power", None) for part in known for each in part.components]
        if warped := any(power is not None for power in powers):
            ones = np.ones(plan.n_outputs_)
            found.powers = np.stack([ones if power is None else power for power in powers])

        told = all(does for name, does in plan.tells_apart.items() if plan.weights_[name] > 0)
        if budget and told and not warped and not len(plan.classes_):
            with np.errstate(all="ignore"):
                names = [name for part in known for name in part.sources(x)]
            found.sources = list(dict.fromkeys(names)) + [INPUTS] * columns.impute

        def add(part: Part, inputs: dict[str, Tensor]) -> tuple[int, int]:
            nonlocal begin
            with np.errstate(all="ignore"):
                more = None
                if found.sources is not None:
                    parts = part.sources(*inputs.values())
                    more = [parts.get(name, none) for name in found.sources]
                results = [v for each in part.components for v in _results(each, warped, more)]
            text = written(inputs, results, language)
            body = Body(text.arrays, text.lines, len(inputs) > 1)
            if body not in found.bodies:
                found.bodies.append(body)
            found.blocks.append((part.name, text.numbers))
            begin += len(text.numbers)
            return found.bodies.index(body), begin - len(text.numbers)

        for part, other in zip(known, unsure, strict=True):
            call = add(part, {"x": x})
            more = (None, 0) if other is None else add(other, {"x": x, "x_var": var})
            found.calls.append((*call, *more))
            found.shares += [part.share * each.weight for each in part.components]
            found.counts.append(len(part.components))
        return found

    def places(self) -> list[dict[str, int | None]]:
        """Return for each part its functions and where their numbers and results begin."""
        found, out = [], 0
        for (body, begin, other, other_begin), count in zip(self.calls, self.counts, strict=True):
            call = {"body": body, "begin": begin, "other": other, "other_begin": other_begin}
            found.append({**call, "out": out})
            out += count * self.width
        return found

    @property
    def numbers(self) -> np.ndarray:
        """All numbers."""
        return np.concatenate([numbers for _, numbers in self.blocks])

    @property
    def width(self) -> int:
        """Results of a component."""
        if len(self.plan.classes_):
            return len(self.plan.classes_) + 1
        more = 0 if self.sources is None else 1 + len(self.sources)
        return (2 + 2 * (self.powers is not None) + more) * self.plan.n_outputs_


def _results(each: Any, warped: bool, sources: list[Any] | None) -> list[Any]:
    """Return the results of a component in their order."""
    if hasattr(each, "probability"):
        return [each.probability, each.aleatoric]
    first = [each.mean, each.var + each.noise]
    if warped:
        return first + list(target_moments(each))
    if sources is None:
        return first
    same = isinstance(each.noise, np.ndarray)  # for all rows
    own = np.broadcast_to(each.noise, each.mean.shape) if same else each.noise
    return [*first, own, *sources]
