"""How C and JavaScript write numbers and operations."""

from __future__ import annotations

import math

import numpy as np

from varprop.exports.loops import Language

_SIGNS = {
    "add": "({} + {})",
    "equal": "({} == {})",
    "greater": "({} > {})",
    "greater_equal": "({} >= {})",
    "less": "({} < {})",
    "less_equal": "({} <= {})",
    "logical_and": "({} && {})",
    "logical_not": "(!{})",
    "logical_or": "({} || {})",
    "multiply": "({} * {})",
    "negative": "(-{})",
    "not_equal": "({} != {})",
    "subtract": "({} - {})",
    "divide": "({} / {})",
    "where": "({} ? {} : {})",
}
_FUNCTIONS = ["cos", "exp", "expm1", "floor", "log", "log1p", "sin", "sqrt", "tanh"]


def _javascript_number(value: float) -> str:
    if not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "(-Infinity)"}.get(repr(value), "NaN")
    return f"({value!r})" if value < 0 else repr(value).removesuffix(".0")


JAVASCRIPT = Language(
    scalar="const {} = {};",
    changing="let {} = {};",
    array="const {} = new Float64Array({});",
    loop="for (let {0} = 0; {0} < {1}; {0}++) {{",
    functions=_SIGNS
    | {name: f"Math.{name}({{}})" for name in _FUNCTIONS}
    | {
        "absolute": "Math.abs({})",
        "power": "Math.pow({}, {})",
        "maximum": "Math.max({}, {})",
        "minimum": "Math.min({}, {})",
        "sign": "Math.sign({})",
        "square": "square({})",
    },
    number=_javascript_number,
)


def c_number(value: float, single: bool) -> str:
    """Write a number in C.

    Examples
    --------
    >>> c_number(-0.1, False), c_number(1e100, True), c_number(2.0, True)
    ('(-0.1)', '3.4028235e+38f', '2.0f')
    """
    if not math.isfinite(value):
        return {"inf": "INFINITY", "-inf": "(-INFINITY)"}.get(repr(float(value)), "NAN")
    if single:
        # What float cannot hold is a limit that nothing reaches, or guards against dividing by 0.
        most, least = (float(n) for n in (np.finfo(np.float32).max, np.finfo(np.float32).tiny))
        value = float(np.sign(value)) * min(max(abs(value), least), most) if value else value
        text = str(np.float32(value))
    else:
        text = repr(float(value))
    text = text if any(mark in text for mark in ".en") else text + ".0"
    text += "f" * single
    return f"({text})" if value < 0 else text


def c_language(prefix: str, *, single: bool) -> Language:
    """Return C with float or double; what a header defines begins with a prefix."""
    end = "f" * single
    real = f"{prefix}_real"
    return Language(
        scalar=f"const {real} {{}} = {{}};",
        changing=f"{real} {{}} = {{}};",
        array=f"{real} {{}}[{{}}];",
        loop="for (int {0} = 0; {0} < {1}; {0}++) {{",
        functions=_SIGNS
        | {name: f"{name}{end}({{}})" for name in _FUNCTIONS}
        | {
            "absolute": f"fabs{end}({{}})",
            "power": f"pow{end}({{}}, {{}})",
            "maximum": f"{prefix}_max({{}}, {{}})",
            "minimum": f"{prefix}_min({{}}, {{}})",
            "sign": f"{prefix}_sign({{}})",
            "square": f"{prefix}_square({{}})",
        },
        number=lambda value: c_number(value, single),
    )
