"""Export to C: one header, with the runtime of `templates/model.h` and the model's numbers."""

from __future__ import annotations

import itertools
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from varprop.exports.columns import Columns
from varprop.exports.filling import render
from varprop.exports.functions import Functions
from varprop.exports.languages import c_language, c_number
from varprop.plans.plan import Plan

#: Words that a name may not be; it always begins with the model's name, so that few could clash.
_OWN = "COLUMNS INPUTS CLASSES TARGETS COMPONENTS H real prediction max min square sign column"
_OWN += " class target code c share predict scaled tail cdf density quantile interval"


def to_c(plan: Plan, columns: Columns, *, name: str, dtype: str) -> str:
    """Return a C99 header.

    Parameters
    ----------
    plan, columns
        Of the model.
    name
        With which everything in it begins.
    dtype
        "float64" for double, "float32" for float.
    """
    p, single = identifier(name), dtype == "float32"
    found = Functions.of(plan, columns, c_language(p, single=single))
    scaling, results = plan.scaling_, columns.classes or columns.targets
    names, codes = _names(p, columns, results)
    sizes = [len(column.levels or ()) for column in columns]
    warped, powers = found.powers is not None, []
    if found.powers is not None:
        powers = ["{ " + _numbers(row) + " }" for row in found.powers]
    return render(
        "model.h",
        title=_comment(f"The model {name} of {', '.join(columns.targets)}."),
        p=p,
        real="float" if single else "double",
        columns=[
            {"comment": _comment(column.name), "codes": _codes(column.levels)} for column in columns
        ],
        impute=columns.impute,
        classes=columns.classes,
        targets=columns.targets,
        names=[*names, *codes],
        strings={
            "columns": _strings(columns.names),
            "results": _strings(results),
            "levels": _strings(
                "" if level is None else level for c in columns for level in c.levels or ()
            ),
        },
        levels=columns.levels,
        first=list(itertools.accumulate(sizes, initial=0)),
        level_counts=", ".join(map(str, sizes)),
        numbers=textwrap.fill(
            ", ".join(c_number(n, single) for n in found.numbers.tolist()) or "0",
            118,
            initial_indent="  ",
            subsequent_indent="  ",
        ),
        bodies=found.bodies,
        calls=found.places(),
        shares=found.shares,
        share_texts=_numbers(found.shares),
        n_inputs=plan.n_features_in_,
        n_out=found.width * len(found.shares),
        width=found.width,
        moments=2 if warped else 0,
        powers=", ".join(powers),
        shift=_numbers(scaling.x_shift),
        scale=_numbers(scaling.x_scale),
        y_shift=_numbers(scaling.y_shift),
        y_scale=_numbers(scaling.y_scale),
        unknown_mean=_numbers(column.mean[0] for column in columns),
        unknown_var=_numbers(column.var[0] for column in columns),
    )


def identifier(text: str) -> str:
    """Return a name that C takes, as near to a text as can be.

    Examples
    --------
    >>> identifier("Größe (m²) */"), identifier("2nd")
    ('Grosse_m2', '_2nd')
    """
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss")).encode("ascii", "ignore")
    found = re.sub(r"[^A-Za-z0-9]+", "_", plain.decode()).strip("_") or "x"
    return f"_{found}" if found[0].isdigit() else found


def _names(p: str, columns: Columns, results: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Return names and values of the enums: of columns and results, and of codes."""
    taken = {f"{p}_{word}" for word in _OWN.split()} | {f"{p}_f{i}" for i in range(10_000)}

    def new(text: str) -> str:
        found = text
        for number in itertools.count(2):
            if found not in taken:
                break
            found = f"{text}_{number}"
        taken.add(found)
        return found

    names, codes = [], []
    for place, column in enumerate(columns):
        own = new(f"{p}_{identifier(column.name).lstrip('_')}")
        names.append((own, place))
        for code, level in enumerate(column.levels or ()):
            level = "missing" if level is None else identifier(level).lstrip("_")
            codes.append((new(f"{own}_{level}"), code))
    for place, result in enumerate(results):
        kind = "class" if columns.classes else "target"
        names.append((new(f"{p}_{kind}_{identifier(result).lstrip('_')}"), place))
    return names, codes


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(c_number(float(value), False) for value in values)


def _comment(text: str) -> str:
    """Return a text that neither ends a comment nor begins one, and stays on its line."""
    plain = text.encode("unicode_escape").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def _codes(levels: Sequence[str | None] | None) -> list[str] | None:
    if levels is None:
        return None
    return ["(missing)" if level is None else _comment(level) for level in levels]


def _strings(texts: Iterable[str]) -> str:
    """Return C's literals of texts: UTF-8, whatever is not plain by its number in octal."""
    return ", ".join(
        '"'
        + "".join(
            chr(byte)
            if (byte < 128 and chr(byte).isalnum()) or byte in b" _-.,:;=()"
            else f"\\{byte:03o}"
            for byte in text.encode("utf-8", "surrogatepass")
        )
        + '"'
        for text in texts
    )
