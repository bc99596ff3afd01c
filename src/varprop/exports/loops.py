"""A graph of tensors as loops over plain arrays, in C or in JavaScript.

Entries of arrays of one shape are worked on together, in one loop; axes that are only turned or
added cost nothing; arrays that are not needed any more lend their place to later ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from varprop.exports.tracing import ENTRIES, VIEWS, Tensor, Value, in_order

# Longer expressions get a line of their own.
_LONG = 90


class Language(NamedTuple):
    """How a language writes what all of them have.

    Attributes
    ----------
    scalar, changing
        A declaration of a number that stays, and of one that does not: name and value.
    array
        A declaration: name and size.
    loop
        The head of one: index and number.
    functions
        Operations by NumPy's names, as formats of their operands.
    number
        Writes a number.
    """

    scalar: str
    changing: str
    array: str
    loop: str
    functions: Mapping[str, str]
    number: Callable[[float], str]


class Written(NamedTuple):
    """A function as text.

    Attributes
    ----------
    arrays
        Declarations of the arrays that it works on.
    lines
        What it does: from arrays by the inputs' names, and `c`, to `out`.
    numbers
        What `c` holds.
    """

    arrays: tuple[str, ...]
    lines: tuple[str, ...]
    numbers: np.ndarray


class _Place(NamedTuple):
    """Where the entries of a value stand: in what, from where on, and how far apart."""

    base: Tensor | str
    offset: int
    strides: tuple[int, ...]


def written(inputs: Mapping[str, Tensor], results: Sequence[Value], language: Language) -> Written:
    r"""Write the function that computes results, one after the other, from inputs.

    Examples
    --------
    >>> from varprop.exports.languages import JAVASCRIPT
    >>> x = Tensor("input", (), (1, 3))
    >>> done = written({"x": x}, [np.exp(x) * np.array([1.0, 2.0, 3.0])], JAVASCRIPT)
    >>> print(*done.lines, sep="\n")
    for (let i = 0; i < 3; i++) {
      b0[i] = (Math.exp(x[i]) * c[i]);
    }
    for (let i = 0; i < 3; i++) {
      out[i] = b0[i];
    }
    """
    return _Writer(inputs, results, language).written()


class _Writer:
    def __init__(self, inputs: Mapping[str, Tensor], results: Sequence[Value], to: Language):
        self.to, self.results = to, results
        self.names: dict[int, str] = {id(tensor): name for name, tensor in inputs.items()}
        self.offsets: dict[bytes, int] = {}
        self.numbers: list[np.ndarray] = []
        self.size = 0
        self.lines: list[str] = []
        self.counter = itertools.count()

    def written(self) -> Written:
        steps = _steps(self.results, set(self.names))
        last = {}  # the last step that reads an array
        for number, step in enumerate(steps):
            for tensor in step:
                for value in tensor.given:
                    if isinstance(value, Tensor):
                        last[id(_base(value))] = number
        kept = {id(_base(v)) for v in self.results if isinstance(v, Tensor)}
        of = {id(tensor): number for number, step in enumerate(steps) for tensor in step}
        crossing = kept | {
            id(_base(value))
            for number, step in enumerate(steps)
            for tensor in step
            for value in tensor.given
            if isinstance(value, Tensor) and of.get(id(_base(value))) != number
        }
        slots: list[int] = []
        free: list[int] = []
        held: dict[int, int] = {}
        for number, step in enumerate(steps):
            for tensor in step:
                size = math.prod(tensor.shape)
                if id(tensor) not in crossing or size == 1:
                    continue
                fits = [slot for slot in free if slots[slot] >= size]
                slot = min(fits, key=lambda slot: slots[slot]) if fits else len(slots)
                if not fits:
                    slots.append(size)
                else:
                    free.remove(slot)
                self.names[id(tensor)], held[id(tensor)] = f"b{slot}", slot
            self._write(step, crossing)
            for key in [key for key in held if key not in kept and last.get(key, -1) <= number]:
                free.append(held.pop(key))
        at = 0
        for value in self.results:
            at = self._give(value, at)
        arrays = tuple(self.to.array.format(f"b{i}", size) for i, size in enumerate(slots))
        flat = np.concatenate([part.ravel() for part in self.numbers] or [np.empty(0)])
        return Written(arrays, tuple(self.lines), flat)

    # ---- places ---------------------------------------------------------------------------------

    def _place(self, value: Value) -> _Place:
        if isinstance(value, Tensor):
            if value.kind not in VIEWS:
                return _Place(value, 0, _strides(value.shape))
            base, offset, strides = self._place(value.given[0])
            if value.kind == "unsqueeze":
                strides = (*strides[: value.option], 0, *strides[value.option :])
            elif value.kind == "transpose":
                strides = tuple(strides[i] for i in value.option)
            else:
                starts = (start for start, _ in value.option)
                offset += sum(s * start for s, start in zip(strides, starts, strict=True))
            return _Place(base, offset, strides)
        turned = value.ndim == 2 and value.flags.f_contiguous and not value.flags.c_contiguous
        kept = np.asarray(value.T if turned else value, np.float64, order="C")
        key = kept.tobytes()
        if key not in self.offsets:
            self.offsets[key] = self.size
            self.numbers.append(kept)
            self.size += kept.size
        strides = _strides(kept.shape)
        return _Place("c", self.offsets[key], strides[::-1] if turned else strides)

    def _read(self, value: Value, shape: Sequence[int], indices: Sequence[str]) -> str:
        """Return an entry of a value that is broadcast to a shape; indices of all its axes."""
        if isinstance(value, float):
            return self.to.number(value)
        base, offset, strides = self._place(value)
        own = np.shape(value)
        ahead = len(shape) - len(own)
        terms = []
        for index, size, stride in zip(indices[ahead:], own, strides, strict=True):
            if size > 1 and stride and index:
                terms.append(index if stride == 1 else f"{stride} * {index}")
        if offset or not terms:
            terms.append(str(offset))
        if isinstance(base, str):
            return f"{base}[{' + '.join(terms)}]"
        name = self.names[id(base)]
        scalar = math.prod(base.shape) == 1 and base.kind != "input"
        return name if scalar else f"{name}[{' + '.join(terms)}]"

    def _loops(self, shape: Sequence[int]) -> tuple[list[str], int]:
        """Open a loop over each axis; return the indices of all axes and the number of loops."""
        letters, indices, depth = iter("ijklmn"), [], 0
        for size in shape:
            if size == 1:
                indices.append("")
                continue
            letter = next(letters)
            self._line(depth, self.to.loop.format(letter, size))
            indices.append(letter)
            depth += 1
        return indices, depth

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def _close(self, depth: int) -> None:
        for level in reversed(range(depth)):
            self._line(level, "}")

    def _set(self, tensor: Tensor, depth: int, indices: Sequence[str], text: str) -> None:
        """Write down an entry of a tensor: into its array, or as a number of its own."""
        if math.prod(tensor.shape) == 1:
            self.names[id(tensor)] = f"v{next(self.counter)}"
            self._line(depth, self.to.scalar.format(self.names[id(tensor)], text))
        else:
            self._line(depth, f"{self._read(tensor, tensor.shape, indices)} = {text};")

    # ---- steps ----------------------------------------------------------------------------------

    def _write(self, step: list[Tensor], crossing: set[int]) -> None:
        if step[0].kind not in ("matmul", "sum", "max"):
            self._entries(step, crossing)
            return
        (tensor,) = step
        indices, depth = self._loops(tensor.shape)
        total = f"s{next(self.counter)}"
        if tensor.kind == "matmul":
            (a, b), rest = tensor.given, indices
            column = len(np.shape(b)) > 1
            if column:
                *rest, at = indices
            length = np.shape(a)[-1]
            k = "q" if length > 1 else ""
            left = self._read(a, [*tensor.shape[: len(rest)], length], [*rest, k])
            if column:
                shape = [*tensor.shape[:-2], length, tensor.shape[-1]]
                right = self._read(b, shape, [*indices[:-2], k, at])
            else:
                right = self._read(b, [length], [k])
            change = f"{total} += {left} * {right};"
            start = "0.0"
        else:
            (a,) = tensor.given
            length = np.shape(a)[-1]
            k = "q" if length > 1 else ""
            one = self._read(a, np.shape(a), [*indices, k])
            change = f"{total} += {one};"
            start = "0.0"
            if tensor.kind == "max":
                change = f"{total} = {self.to.functions['maximum'].format(total, one)};"
                start = self._read(a, np.shape(a), [*indices, ""])
        start = self.to.number(0.0) if start == "0.0" else start
        self._line(depth, self.to.changing.format(total, start))
        if k:
            self._line(depth, self.to.loop.format(k, length) + f" {change} }}")
        else:
            self._line(depth, change)
        self._set(tensor, depth, indices, total)
        self._close(depth)

    def _entries(self, step: list[Tensor], crossing: set[int]) -> None:
        """Work out all tensors of a step entry by entry; all have one shape, up to axes of 1."""
        shape = tuple(size for size in step[0].shape if size != 1)
        inside, uses = {id(tensor) for tensor in step}, dict[int, int]()
        for tensor in step:
            for value in tensor.given:
                if id(value) in inside:
                    uses[id(value)] = uses.get(id(value), 0) + 1
        letters, depth = self._loops(shape)
        texts: dict[int, str] = {}
        for tensor in step:
            left = iter(letters)
            indices = ["" if size == 1 else next(left) for size in tensor.shape]
            operands = []
            for value in tensor.given:
                base = _base(value) if isinstance(value, Tensor) else value
                known = texts.get(id(base))
                operands.append(known or self._read(value, tensor.shape, indices))
            text = self.to.functions[tensor.kind].format(*operands)
            key = id(tensor)
            if key in crossing or math.prod(shape) == 1:
                if uses.get(key) and math.prod(shape) > 1:
                    name = f"v{next(self.counter)}"
                    self._line(depth, self.to.scalar.format(name, text))
                    texts[key] = text = name
                elif math.prod(shape) == 1 and key not in crossing and self._short(text, uses, key):
                    texts[key] = text
                    continue
                self._set(tensor, depth, indices, text)
            elif self._short(text, uses, key):
                texts[key] = text
            else:
                texts[key] = f"v{next(self.counter)}"
                self._line(depth, self.to.scalar.format(texts[key], text))
        self._close(depth)

    def _short(self, text: str, uses: Mapping[int, int], key: int) -> bool:
        return uses.get(key) == 1 and len(text) < _LONG

    def _give(self, value: Value, at: int) -> int:
        """Copy a result to where it belongs; return where the next one does."""
        shape = np.shape(value)
        strides = _strides(shape)
        indices, depth = self._loops(shape)
        terms = [
            index if stride == 1 else f"{stride} * {index}"
            for index, stride in zip(indices, strides, strict=True)
            if index
        ]
        place = " + ".join([*terms, str(at)] if at or not terms else terms)
        self._line(depth, f"out[{place}] = {self._read(value, shape, indices)};")
        self._close(depth)
        return at + math.prod(shape)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _base(value: Tensor) -> Tensor:
    while value.kind in VIEWS:
        value = value.given[0]
    return value


def _is_straight(value: Tensor, tensor: Tensor) -> bool:
    """Whether entries of a value stand where a tensor's of the same place do."""
    place = value
    while place.kind in VIEWS:
        if place.kind != "unsqueeze" and math.prod(place.shape) > 1:
            return False
        place = place.given[0]
    own, of = ([n for n in each.shape if n != 1] for each in (value, tensor))
    whole = math.prod(place.shape) == math.prod(value.shape)
    return own == of and whole and (np.broadcast_shapes(value.shape, tensor.shape) == tensor.shape)


def _steps(results: Sequence[Value], known: set[int]) -> list[list[Tensor]]:
    """Return what can be worked out together, in an order that works.

    Entries are worked on as late as can be, those of few first: more of them then come together.
    """
    waiting = [t for t in in_order(results) if t.kind not in (*VIEWS, "input")]
    done, steps = set(known), list[list[Tensor]]()
    while waiting:
        ready = [t for t in waiting if all(base in done for base in _bases(t))]
        first = min(ready, key=lambda t: (_is_of_entries(t), math.prod(t.shape)))
        step, inside = [first], {id(first)}
        if _is_of_entries(first):
            shape = [n for n in first.shape if n != 1]
            for tensor in waiting:
                own = [n for n in tensor.shape if n != 1]
                if tensor is first or own != shape or not _is_of_entries(tensor):
                    continue
                given = [value for value in tensor.given if isinstance(value, Tensor)]
                if all(
                    id(_base(value)) in done
                    or (id(_base(value)) in inside and (not shape or _is_straight(value, tensor)))
                    for value in given
                ):
                    step.append(tensor)
                    inside.add(id(tensor))
        done |= inside
        steps.append(step)
        waiting = [tensor for tensor in waiting if id(tensor) not in inside]
    return steps


def _is_of_entries(tensor: Tensor) -> bool:
    return tensor.kind in ENTRIES or tensor.kind == "where"


def _bases(tensor: Tensor) -> list[int]:
    return [id(_base(value)) for value in tensor.given if isinstance(value, Tensor)]
