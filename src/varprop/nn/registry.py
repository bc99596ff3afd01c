"""Where a class is registered, once: its name as an option, and that model files may hold it.

Model files name classes and never import anything, so only what is registered can be read from one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

_CLASSES: dict[str, type] = {}
_OPTIONS: list[tuple[str, type]] = []


def register(option: str | None = None) -> Callable[[T], T]:
    """Register a class of layers, weights, likelihoods, priors or objectives.

    Parameters
    ----------
    option
        What estimators call it, such as "relu"; a class without one is given as an object.

    Raises
    ------
    ValueError
        If a class of the library has this name.

    Examples
    --------
    >>> from varprop import nn, register
    >>> @register("square")
    ... class Square(nn.AbstractActivation):
    ...     "The square a^2."
    ...     def __call__(self, x):
    ...         return x**2
    ...     def uncertain_moments(self, mean, var):
    ...         return mean**2 + var, 2 * var * (var + 2 * mean**2)
    >>> chosen(nn.AbstractActivation, "square", "activation") is Square
    True
    """

    def keep(kind: T) -> T:
        known = _CLASSES.get(kind.__name__)
        if known is not None and known.__module__ != kind.__module__ and _of_library(known):
            raise ValueError(
                f"the name {kind.__name__} is taken by {known.__module__}, and files could not "
                "tell the two apart: call the class something else."
            )
        _CLASSES[kind.__name__] = kind
        if option is not None:
            _OPTIONS.append((option, kind))
        return kind

    return keep


def _of_library(kind: type) -> bool:
    """Whether a class belongs to a file of the library (and not to an example in one)."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__.startswith("varprop.") and hasattr(module, kind.__name__)


def chosen(base: Any, value: Any, option: str) -> Any:
    """Return the class of this kind that estimators call so, or what was given if it is one.

    Parameters
    ----------
    base
        The kind, such as `varprop.nn.AbstractActivation`.
    value
        A name, an object of the kind or a class of it.
    option
        What errors call it.

    Examples
    --------
    >>> from varprop import nn
    >>> chosen(nn.AbstractActivation, "relu", "activation").__name__
    'ReLU'
    """
    if isinstance(value, base) or (isinstance(value, type) and issubclass(value, base)):
        return value
    known = {name: kind for name, kind in _OPTIONS if issubclass(kind, base)}
    if value not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{option} must be one of {names}, but is {value!r}.")
    return known[value]


def registered(name: str) -> type | None:
    """Return the class of this name, or None."""
    return _CLASSES.get(name)
