"""Where the variance of a network's outputs comes from: `varprop.nn.sources` in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from varprop.plans.propagation import _moments, _own, _partials, _pulled
from varprop.plans.steps import Dense, Noise, Step

#: Of all inputs' errors together.
INPUTS = "unknown inputs"


def source_names(steps: Sequence[Step]) -> dict[int, str]:
    """Return what to call what is drawn in each step, by its place; activations draw nothing.

    Examples
    --------
    >>> one = Dense(np.ones((1, 1)), None, None, None, joint=False)
    >>> source_names([one, one])
    {0: 'weights of layer 1', 1: 'weights of layer 2'}
    """
    names, n = {}, 0
    for place, step in enumerate(steps):
        if isinstance(step, Dense):
            n += 1
            names[place] = f"weights of layer {n}"
        elif isinstance(step, Noise):
            names[place] = f"noise after layer {n}" if n else "noise on the inputs"
    return names


def variance_budget(steps: Sequence[Step], x: Any, x_var: Any = None) -> dict[str, Any]:
    """Return the first-order variance of every output by source, each (rows, outputs).

    What an activation adds beside its line belongs to what made its input vary, in proportion.

    Parameters
    ----------
    steps
        In order.
    x, x_var
        Inputs and the variance of their errors, shape (rows, n); known exactly unless given.

    Examples
    --------
    >>> step = Dense(np.ones((1, 2)), np.full((1, 2), 0.25), None, None, joint=False)
    >>> found = variance_budget([step], np.array([[3.0, 4.0]]))
    >>> found["weights of layer 1"].tolist()
    [[6.25]]
    """
    names = source_names(steps)
    mean, var = x, x_var
    parts: dict[str, Any] = {} if x_var is None else {INPUTS: x_var}
    root: tuple[dict[str, Any], Any] | None = None  # shares of what is mixed first, and all of it
    seen: list[tuple[Step, Any, Any, Mapping[str, Any]]] = []  # from there on, with own variances
    for place, step in enumerate(steps):
        own_name = names.get(place)
        if var is None:
            mean, var = _moments(step, mean, var)
            parts = {} if var is None else {own_name or INPUTS: var}
            continue
        shares = _shares(parts)
        if isinstance(step, Dense):
            root = root or (shares, var)
            square = np.square(step.weight.T)
            before = mean
            mean, own = _own(step, before, var)
            var = own + var @ square
            parts = {name: part @ square for name, part in parts.items()}
            parts[str(own_name)] = own
            seen.append((step, own, before, {str(own_name): 1.0}))
            continue
        found, incoming = _partials(step, mean, var), var
        mean, var = found.mean, found.var
        own = np.maximum(var - np.square(found.slope) * incoming, 0)
        if own_name is None:
            parts = {name: share * var for name, share in shares.items()}
        else:
            parts = {name: np.square(found.slope) * part for name, part in parts.items()}
            parts[own_name] = own
        if root is not None:
            seen.append((step, own, found, shares if own_name is None else {own_name: 1.0}))
    if root is None:
        return parts
    total: dict[str, Any] = {}

    def add(shares: Mapping[str, Any], variance: Any, by_mean: Any) -> None:
        for name, share in shares.items():
            given = variance * share
            if by_mean is not None:
                given = np.sum(np.square(by_mean) * given[:, None], axis=-1)
            total[name] = total[name] + given if name in total else given

    back: tuple[Any, Any] = (None, None)
    for step, own, kept, shares in reversed(seen):
        add(shares, own, back[0])
        back = _pulled(step, kept, *back)
    add(*root, back[0])
    return {name: total[name] for name in (INPUTS, *names.values()) if name in total}


def _shares(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return parts as shares of their sum, which may be 0."""
    whole = sum(parts.values())
    safe = np.where(whole > 0, whole, 1.0)
    return {name: part / safe for name, part in parts.items()}
