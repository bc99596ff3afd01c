"""Numbers for people: rounded, with a real minus sign, never NaN; and round tick positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

NBSP = "\N{NO-BREAK SPACE}"
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _signed(text: str) -> str:
    return text.replace("-", "−")


def _power(value: float, decimals: int) -> str:
    digits, exponent = f"{value:.{decimals}e}".split("e")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{_signed(digits)}×10{str(int(exponent)).translate(_RAISED)}"


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters.

    Examples
    --------
    >>> shortened("temperature", 5)
    'temp…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def number(value: float, digits: int = 3) -> str:
    """Return a number with a few significant digits.

    Examples
    --------
    >>> number(-1234.5678), number(0.000012), number(2.0), number(float("inf"))
    ('−1,235', '1.2×10⁻⁵', '2', '∞')
    """
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size != 0 and not 1e-3 <= size < 1e6:
        return _power(value, digits - 1)
    whole = math.floor(math.log10(size)) if size else 0
    decimals = max(digits - 1 - whole, 0)
    text = f"{value:,.{decimals}f}"
    return _signed(text.rstrip("0").rstrip(".") if "." in text else text)


def aligned(values: Sequence[float], digits: int = 4) -> list[str]:
    """Return the numbers of a column, to the same decimal place where their sizes allow it.

    Examples
    --------
    >>> aligned([0.4256, 0.40468, -0.0003594]), aligned([1.5, 2e9])
    (['0.426', '0.405', '0.000'], ['1.5', '2×10⁹'])
    """
    sizes = [abs(v) for v in values if math.isfinite(v)]
    top = max(sizes, default=0.0)
    if not 1e-2 <= top < 1e6:
        return [number(v, digits) for v in values]
    decimals = max(digits - 1 - max(math.floor(math.log10(top)), 0), 0)
    # "z" in the format: what rounds to zero has no sign.
    return [_signed(f"{v:z,.{decimals}f}") if math.isfinite(v) else number(v) for v in values]


def _decimals(value: float, spread: float) -> int | None:
    """Return how many decimals show two digits of the spread, or None if too many would."""
    if not (math.isfinite(spread) and spread > 0):
        return None
    decimals = 1 - math.floor(math.log10(spread))
    whole = math.floor(math.log10(abs(value))) + 1 if value else 0
    if decimals > 9 or whole > 12 or whole + decimals > 15 or (decimals < -4 and whole > 6):
        return None
    return max(decimals, 0)


def to_precision(value: float, spread: float) -> str:
    """Return a value to the second digit of its spread.

    Examples
    --------
    >>> to_precision(151.234, 54.27), to_precision(0.5, 0.0123), to_precision(1e9, 0.001)
    ('151', '0.500', '1,000,000,000.0000')
    """
    decimals = _decimals(value, spread)
    return number(value, 4) if decimals is None else _signed(f"{value:z,.{decimals}f}")


def plus_minus(value: float, spread: float) -> tuple[str, str]:
    """Return value and spread to the second digit of the spread.

    Examples
    --------
    >>> plus_minus(151.234, 54.27), plus_minus(0.5, 0.0103), plus_minus(3.0, 0.0)
    (('151', '54'), ('0.500', '0.010'), ('3', '0'))
    """
    decimals = _decimals(value, spread)
    stated = number(spread, 2) if decimals is None else f"{spread:,.{decimals}f}"
    return to_precision(value, spread), stated


def percent(share: float) -> str:
    """Return a share as per cent: whole, but for shares close to none or all.

    Examples
    --------
    >>> [text.replace(NBSP, "_") for text in (percent(0.883), percent(0.9966), percent(1.0))]
    ['88_%', '99.7_%', '100_%']
    """
    near = 0 < min(share, 1 - share) < 0.01
    return f"{100 * share:.{1 if near else 0}f}{NBSP}%"


def portion(share: float) -> str:
    """Return a part of a whole as per cent; one too small to be shown is not called none.

    Examples
    --------
    >>> [text.replace(NBSP, "_") for text in (portion(0.0), portion(1e-7), portion(0.883))]
    ['0_%', '<_0.1_%', '88_%']
    """
    return f"<{NBSP}0.1{NBSP}%" if 0 < share < 1e-3 else percent(share)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers inside [low, high], a few of them.

    Examples
    --------
    >>> ticks(0.0, 10.0)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    span = high / about - low / about  # divided first: high - low may overflow
    if not span > 0 or not math.isfinite(span):
        return [low]
    unit = 10.0 ** math.floor(math.log10(span))
    for step in (k * unit for k in (0.5, 1.0, 2.0, 2.5, 5.0, 10.0)):
        if step == 0.0:  # below the smallest number there is
            break
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if 1 <= last - first <= about:
            return [k * step for k in range(first, last + 1)]
    return [low, high]


def log_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers inside (low, high) for a logarithmic axis, a few of them.

    Examples
    --------
    >>> log_ticks(0.7, 2000.0), log_ticks(15.0, 300.0)
    ([1.0, 10.0, 100.0, 1000.0], [20.0, 50.0, 100.0, 200.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [float(f"{k}e{power}") for power in range(first, last + 1) for k in steps]
        found = [value for value in found if low < value < high]
        if len(found) <= about:
            return found
    return found[:: math.ceil(len(found) / about)]


def tick_labels(values: list[float]) -> list[str]:
    """Return labels that tell the ticks apart.

    Examples
    --------
    >>> tick_labels([0.0, 2.5, 5.0]), tick_labels([-1e9, 0.0])
    (['0', '2.5', '5.0'], ['−10⁹', '0'])
    """
    if len(values) < 2:
        return [number(v, 4) for v in values]
    step = min(abs(b - a) for a, b in itertools.pairwise(values)) or 1.0
    top = max(abs(v) for v in values)
    if not 1e-4 <= top < 1e6:
        decimals = int(np.clip(math.floor(math.log10(top)) - math.floor(math.log10(step)), 0, 12))
        texts = [_power(v, decimals) if v else "0" for v in values]
        return [t.replace("1×10", "10") if t.lstrip("−").startswith("1×") else t for t in texts]
    decimals = int(np.clip(-math.floor(math.log10(step) + 1e-9), 0, 12))
    decimals += round(step * 10**decimals, 6) != round(step * 10**decimals)  # steps of 2.5
    return [_signed(f"{v:,.{decimals}f}") if v else "0" for v in values]
