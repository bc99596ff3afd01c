"""Where a class is registered, once: its name as an option, and that model files may hold it.

Model files name classes and never import anything, so only what is registered can be read from one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=type)

_CLASSES: dict[str, type] = {}
_OPTIONS: list[tuple[str, type]] = []


def register(option: str | None = None) -> Callable[[T], T]:
    """Register a class of layers, weights, likelihoods, priors or objectives.

    Parameters
    ----------
    option
        What estimators call it, such as "relu"; a class without one is given as an object.

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
    >>> options(nn.AbstractActivation)["square"] is Square
    True
    """

    def keep(kind: T) -> T:
        _CLASSES[kind.__name__] = kind
        if option is not None:
            _OPTIONS.append((option, kind))
        return kind

    return keep


def options(base: type) -> dict[str, type]:
    """Return the classes of a kind that have a name as an option, by that name."""
    return {name: kind for name, kind in _OPTIONS if issubclass(kind, base)}


def registered(name: str) -> type | None:
    """Return the class of this name, or None."""
    return _CLASSES.get(name)
