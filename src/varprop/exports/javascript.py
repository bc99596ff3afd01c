"""Export to JavaScript: an ES module, with the runtime of `templates/model.js` and the numbers."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from varprop.exports.columns import Columns
from varprop.exports.filling import render
from varprop.exports.functions import Functions
from varprop.exports.languages import JAVASCRIPT
from varprop.moments.constants import INV_SQRT_2PI, TAIL_64
from varprop.plans.plan import Plan
from varprop.predictive.simple import LINEAR


def to_javascript(
    plan: Plan, columns: Columns, *, name: str, dtype: str, page: bool = False
) -> str:
    """Return an ES module.

    Parameters
    ----------
    plan, columns
        Of the model.
    name
        Of the file, without its ending.
    dtype
        In which weights of networks are kept, "float64" or "float32"; it always computes in
        double precision.
    page
        Whether it becomes part of a page.
    """
    found, scaling = Functions.of(plan, columns, JAVASCRIPT, budget=True), plan.scaling_
    inputs: list[dict[str, Any]] = []
    for column in columns:
        known = {"mean": column.mean[0], "variance": column.var[0]}
        inputs.append(
            {"name": column.name, **(known if column.levels is None else {"levels": column.levels})}
        )
    example = ", ".join(
        f"{literal(c.name)}: {literal(c.levels[0]) if c.levels else round(c.mean[0], 3)}"
        for c in columns.inputs[:3]
    )
    return render(
        "model.js",
        title=_comment(f"The model {name} of {', '.join(columns.targets)}."),
        file=_comment(f"{name}.js"),
        example=_comment(example + (", ..." if len(columns) > 3 else "")),
        columns=literal(inputs),
        targets=literal(columns.targets),
        classes=literal(columns.classes),
        impute=literal(columns.impute),
        shift=literal(scaling.x_shift.tolist()),
        scale=literal(scaling.x_scale.tolist()),
        y_shift=literal(scaling.y_shift.tolist()),
        y_scale=literal(scaling.y_scale.tolist()),
        shares=literal(found.shares),
        powers=literal(None if found.powers is None else found.powers.tolist()),
        width=found.width,
        sources=literal(found.sources),
        page=page,
        moments=0 if found.powers is None else 2,
        numbers=list(_packed(found.blocks, dtype)),
        bodies=found.bodies,
        calls=found.places(),
        mills_r=literal(TAIL_64["R"]),
        mills_d=literal(TAIL_64["D"]),
        bell=repr(INV_SQRT_2PI),
    )


def _packed(blocks: Sequence[tuple[str, np.ndarray]], dtype: str) -> Iterator[tuple[str, str]]:
    """Yield numbers in base64, each with the kind of array that holds them.

    A linear model's are always in double precision: its variance is a sum in which much cancels.
    What is beyond the largest float is an end that no value reaches, and the largest float is one.
    """
    for kept, group in itertools.groupby(blocks, lambda b: "float64" if b[0] == LINEAR else dtype):
        numbers = np.concatenate([part for _, part in group])
        most = np.finfo(kept).max
        packed = np.clip(numbers, -most, most).astype(f"<{np.dtype(kept).str[1:]}").tobytes()
        yield f"{kept.capitalize()}Array", base64.b64encode(packed).decode()


def literal(value: Any) -> str:
    r"""Return a value as JavaScript, harmless also within a page.

    Examples
    --------
    >>> literal(["</script>", 0.5, None])
    '["\\u003c/script\\u003e",0.5,null]'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _comment(text: str) -> str:
    plain = text.encode("unicode_escape").decode()
    return plain.replace("*/", "* /").replace("<", "\\x3c")
