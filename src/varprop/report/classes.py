"""The report of a model of classes on held-out rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from varprop.predictive import class_diagnostics
from varprop.predictive.categories import Categories
from varprop.predictive.mixtures import ArrayLike
from varprop.report import class_charts, class_words
from varprop.report.charts import Figure
from varprop.report.importances import Importance, importance_figures
from varprop.report.numerals import percent, portion
from varprop.report.one_target import checked_rows, write_target_page
from varprop.report.page import training_figures
from varprop.report.regions import Column
from varprop.report.targets import BY_CHANCE, MAX_SHOWN, SURPRISING

#: Classes with a curve of their own.
MOST_CURVES = 6
_CHANCE = ("chance", "95 % range of chance")
_IDEAL = ("ideal", "as stated")
_SCORES = (
    "All models were judged on the same rows. The log-loss scores all probabilities, and so does "
    "the Brier score; the calibration error is how far the predicted class’s probability is from "
    "how often it came true (class frequencies are right on the average, and know nothing else): "
    "lower is better. Accuracy is the share of right predictions: higher is better. ★ marks the "
    "best of a column."
)


def write_class_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    prediction: Categories,
    y: ArrayLike,
    target_name: str,
    features: Mapping[str, Any] | None = None,
    row_labels: Sequence[str] | None = None,
    scorecard: Mapping[str, Mapping[str, float | Mapping[str, float]]] | None = None,
    verdict: str | None = None,
    loss_curve: ArrayLike | None = None,
    importance: Importance | None = None,
    settings: Mapping[str, object] | None = None,
    share_seen: float | None = 0.0,
) -> None:
    """Write one self-contained HTML page on predicted classes: how well and how surely.

    Parameters
    ----------
    path, title, features, row_labels, scorecard, verdict, loss_curve, importance, settings
        As in `write_report`.
    prediction : Categories
        Of rows that the model has not seen, or as `share_seen` says.
    y : array of shape (n,)
        The observed labels.
    target_name : str
        What is predicted.
    share_seen : float or None, default 0
        Share of the rows that the model was trained on; None if it is not known.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> p = Categories([[0.9, 0.1], [0.3, 0.7]], classes=["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     write_class_report(path, title="Trial", prediction=p, y=["no", "yes"], target_name="ok")
    ...     path.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    observed = np.asarray(y)
    codes = prediction.codes(observed)
    columns, labels, shares = checked_rows(prediction.n_rows, features, row_labels, importance)
    findings = class_words.find_classes(observed, prediction)
    panels, panel_note = _roc_panels(observed, prediction)
    surprising = _surprising_rows(codes, prediction)
    write_target_page(
        path,
        title=title,
        name=target_name,
        what=f"one of {prediction.n_classes} classes",
        n=prediction.n_rows,
        share_seen=share_seen,
        settings=settings,
        scorecard=scorecard,
        verdict=verdict,
        score_words=_SCORES,
        findings=findings,
        figures=_figures(observed, prediction, findings.verdict),
        panels=panels,
        panel_note=panel_note,
        columns=columns,
        shown=["observed", "its probability", "predicted", "and its probability"],
        surprising=_rows(surprising[:SURPRISING], codes, prediction, labels, columns),
        surprising_finding=_surprising_finding(len(surprising), prediction.n_rows),
        common=[
            *training_figures(loss_curve),
            *importance_figures(shares, spread="doubt"),
        ],
    )


def _figures(y: np.ndarray, prediction: Categories, verdict: str) -> list[Figure]:
    """Return the charts of all classes together, and of two the ROC curve."""
    names = [str(label) for label in prediction.classes]
    codes = prediction.codes(y)
    right = prediction.proba.argmax(axis=1) == codes
    two = prediction.n_classes == 2
    found = class_diagnostics.reliability(y, prediction)
    said = class_words.reliability_finding(found, verdict)
    what = names[1] if two else "the predicted class"
    figures = [
        Figure(
            "Do probabilities come true?",
            class_charts.reliability_chart(
                found,
                x=f"stated probability of {what[:20]}",
                y="came true",
                label=f"Reliability diagram. {said}",
            ),
            f"Squares are groups of rows with a similar probability of {what}: the share in which "
            "it came true should lie on the dashed line. Below it the model is too sure of "
            f"{what}, above it too cautious.",
            said,
            (("square", "group of rows"), _CHANCE, _IDEAL),
        )
    ]
    if two:
        curve = class_diagnostics.roc(y, prediction)
        told = class_words.roc_finding(curve, names[1])
        figures.append(
            Figure(
                f"Is {names[1]} told apart?",
                class_charts.roc_chart(curve, f"ROC curve. {told}"),
                f"Each point is a threshold: the rows with a higher probability of {names[1]} are "
                "taken for it. The nearer the curve to the upper left corner the better; the "
                "dashed line is guessing (the ROC curve).",
                told,
                (("line", "this model"), ("ideal", "guessing")),
            )
        )
    matrix = class_diagnostics.confusion(y, prediction)
    counts, shown = class_charts.merged_confusion(matrix, names)
    mistakes = class_words.confusion_finding(matrix, names)
    merged = "" if len(shown) == len(names) else " The rarest classes are one, (other)."
    figures.append(
        Figure(
            "What is taken for what?",
            class_charts.confusion_chart(counts, shown, f"Confusion matrix. {mistakes}"),
            "Rows by observed class, down, and most probable class, across; the darker the larger "
            f"the share of the observed class. Right ones are framed.{merged}",
            mistakes,
        )
    )
    entropy = prediction.entropy()
    announced = class_words.entropy_finding(entropy, right)
    figures.append(
        Figure(
            "Are mistakes announced?",
            class_charts.entropy_chart(entropy, right, f"Entropy by outcome. {announced}"),
            "How unsure right and wrong predictions were, as shares of each. Wrong ones should lie "
            "further to the right.",
            announced,
            (("line", "right predictions"), ("dashed", "wrong predictions")),
        )
    )
    return figures


def _roc_panels(y: np.ndarray, prediction: Categories) -> tuple[list[Any], str]:
    """Return a curve for each class against all others, of more than two classes."""
    if prediction.n_classes < 3:
        return [], ""
    counts = np.bincount(prediction.codes(y), minlength=prediction.n_classes)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:MOST_CURVES])
    panels, areas = [], []
    for code in chosen.tolist():
        label = prediction.classes[code]
        curve = class_diagnostics.roc(y, prediction, label=label)
        said = class_words.roc_finding(curve, str(label))
        area = "" if np.isnan(curve.area) else f" ({percent(curve.area)})"
        panels.append((f"{label}{area}", class_charts.roc_panel(curve, f"ROC curve. {said}")))
        if not np.isnan(curve.area):
            areas.append((curve.area, str(label)))
    note = ""
    if areas:
        (low, worst), (high, best) = min(areas), max(areas)
        note = f"Best told apart is {best} ({percent(high)}), worst {worst} ({percent(low)})."
    if len(chosen) < prediction.n_classes:
        note += f" The {len(chosen)} most frequent of {prediction.n_classes} classes are drawn."
    return panels, note


def surprise(codes: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Return the stated probability of a class as improbable as the observed one, shape (n,).

    Where the stated probabilities are right, it is below t in at most a share t of rows.
    """
    own = proba[np.arange(len(codes)), codes][:, None]
    found: np.ndarray = np.where(proba <= own, proba, 0.0).sum(axis=1)
    return found


def _surprising_rows(codes: np.ndarray, prediction: Categories) -> np.ndarray:
    """Return rows less probable than the least probable of so many should be, worst first."""
    chance = surprise(codes, prediction.proba)
    level = -np.expm1(np.log1p(-BY_CHANCE) / max(len(codes), 1))
    order = np.argsort(chance, kind="stable")
    return order[chance[order] < level]


def _surprising_finding(count: int, n: int) -> str:
    if not count:
        return f"No row of {n:,} is of a class less probable than chance allows."
    are = "row is" if count == 1 else "rows are"
    said = f"{count:,} {are} of a class less probable than chance allows for any of {n:,}"
    return (
        f"{said}; the {SURPRISING} least probable are listed." if count > SURPRISING else f"{said}."
    )


def _rows(
    chosen: np.ndarray,
    codes: np.ndarray,
    prediction: Categories,
    labels: Sequence[str],
    columns: list[Column],
) -> list[dict[str, Any]]:
    """Return rows of a table: texts to show, each with what to sort by."""
    table = []
    for row in chosen.tolist():
        proba = prediction.proba[row]
        own, top = float(proba[codes[row]]), float(proba.max())
        cells: list[tuple[str, float | str | None]] = [
            (str(prediction.classes[codes[row]]), None),
            (portion(own), own),
            (str(prediction.classes[proba.argmax()]), None),
            (percent(top), top),
        ]
        cells += [(column.text(row), column.key(row)) for column in columns[:MAX_SHOWN]]
        table.append({"label": str(labels[row]), "cells": cells})
    return table
