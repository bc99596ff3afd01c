"""What the HTML report of a model on a table is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.tables.columns import NumberColumn, to_floats, to_text
from varprop.tables.effects import column_importance
from varprop.tables.model import Scored, TableModel


def report_content(model: TableModel, scored: Scored, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `varprop.report.write_report`.

    Parameters
    ----------
    model
        Whose report it is.
    scored
        Rows with observed targets, predicted and scored.
    settings
        Shown as they are.
    """
    pre, table = model.preprocessing, scored.table
    features = {}
    for column in pre.inputs:
        cells = table.column(column.name)
        if isinstance(column, NumberColumn):
            features[column.name] = to_floats(cells)
        else:
            features[column.name] = np.array(
                ["(missing)" if text is None else text for text in to_text(cells).to_pylist()]
            )
    labels = [f"row {row + 1}" for row in scored.rows]
    if pre.ids:
        ids = [table.column(name).to_pylist() for name in pre.ids]
        labels = [" · ".join(map(str, parts)) for parts in zip(*ids, strict=True)]
    return {
        "prediction": scored.prediction,
        "y": scored.y,
        "target_names": list(pre.targets),
        "features": features,
        "row_labels": labels,
        "scorecard": scored.card,
        "loss_curve": model.regressor.loss_curve_,
        "importance": column_importance(model, scored.encoded) if len(scored.y) > 1 else None,
        "settings": settings,
    }
