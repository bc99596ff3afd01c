"""The what-if page: one HTML file that contains a model and predicts by itself."""

from __future__ import annotations

import base64
import os
from typing import Any

import numpy as np

from varprop.exports.columns import Columns
from varprop.exports.javascript import to_javascript
from varprop.plans.plan import Plan
from varprop.report.files import asset, write_page

# With more inputs a page does not look at combinations: its size would be their number's square.
MOST_COMBINED = 100
# Standard deviations of the targets that the axis of the density shows at least.
_USUAL = 2.5


def write_what_if(
    plan: Plan, columns: Columns, path: str | os.PathLike[str], *, title: str
) -> None:
    """Write the page of a plan, whole or not at all."""
    scaling = plan.scaling_
    middle, reach = scaling.y_shift, _USUAL * scaling.y_scale
    identified = all(plan.tells_apart[n] for n, w in plan.weights_.items() if n in plan.tells_apart)
    known = {
        "domain": _domain(plan),
        "impute": columns.impute,
        "identified": identified,
        "typical": [int(np.argmax(column.mean)) for column in columns],
        "usual": np.stack([middle - reach, middle + reach], axis=1).tolist(),
    }
    module = to_javascript(plan, columns, name=title, dtype="float32", page=True)
    weights = {name: f"{weight:.1%}" for name, weight in plan.weights_.items() if weight >= 5e-4}
    write_page(
        path,
        "what_if.html",
        script=f"{module}\n{asset('what_if.js')}",
        style=asset("what_if.css"),
        title=title,
        settings={f"share of {name}": weight for name, weight in weights.items()},
        targets=columns.targets,
        n_columns=len(columns),
        header="\t".join(columns.names[:8]),
        known=known,
    )


def _domain(plan: Plan) -> dict[str, Any] | None:
    """Return what a page needs to know of what training has seen."""
    domain = plan.domain_
    if domain is None:
        return None
    names = ("low", "high", "least", "most", "shift", "scale")
    found: dict[str, Any] = {name: getattr(domain, name).tolist() for name in names}
    found |= {"limit": domain.limit, "whitening": None}
    if domain.whitening.ndim == 2 and len(domain.whitening) <= MOST_COMBINED:
        numbers = domain.whitening.astype("<f4").tobytes()
        found["whitening"] = base64.b64encode(numbers).decode()
    return found
