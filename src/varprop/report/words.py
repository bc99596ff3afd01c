"""What the charts of one target say, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from varprop.predictive import diagnostics, metrics
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.diagnostics import (
    CalibrationCurve,
    ErrorByStd,
    Judgement,
    PITHistogram,
)
from varprop.report.numerals import number, percent

VERDICTS = {
    "good": ("as stated", "The intervals hold about as many observations as they should."),
    "over": ("too narrow", "The model is overconfident: its intervals are too narrow."),
    "under": ("too wide", "The model is too cautious: its intervals are wider than needed."),
    "shape": (
        "wrong shape",
        "The stated distributions have the wrong shape: too wide here, too narrow there.",
    ),
    "tails": (
        "too short in the tails",
        "The intervals hold about as many observations as they should, but some rows lie much "
        "farther out than stated.",
    ),
    "unknown": ("too few rows", "Too few rows to judge the stated uncertainty."),
}
TOO_FEW = "Too few rows to judge by."


#: Why no parts are shown of a prediction that is not `identified`.
NOT_SPLIT = (
    "Model and noise part are not told apart by this model; one fitted with the objective vi "
    "(--objective vi) tells them apart."
)


@dataclass(frozen=True)
class Findings:
    """Numbers and judgement of one target; covered by 90 % intervals, and allowed by chance.

    `rmse` and `stated` are both root mean squares, and so can stand beside each other.
    """

    n: int
    rmse: float
    r2: float | None
    spread: float
    stated: float
    model_share: float | None
    covered: float
    allowed: tuple[float, float]
    judged: Judgement

    @property
    def verdict(self) -> str:
        """The judgement of the stated spread, a key of `VERDICTS`."""
        return self.judged.spread

    @property
    def in_a_word(self) -> str:
        """The verdict on the intervals, for a table."""
        return VERDICTS[self.verdict][0]

    @property
    def headline(self) -> str:
        """The verdict on the intervals, and the bias if there is one."""
        said = VERDICTS[self.verdict][1]
        bias = self.judged.bias
        return f"{said} Predictions tend to be too {bias}." if bias else said

    @property
    def how_good(self) -> str:
        """How far predictions are from observations."""
        text = f"Predictions are off by {number(self.rmse)} (root mean square)"
        if self.r2 is None:
            return text + "."
        text += f", where the observed values themselves scatter by {number(self.spread)}"
        if self.r2 > 0:
            return text + f": {percent(self.r2)} of their variance is explained (R²)."
        return text + f": no better than always predicting the average (R² {number(self.r2, 2)})."

    @property
    def how_sure(self) -> str:
        """How large the stated spread is and where it comes from."""
        if self.stated == 0:
            return "The model claims to know all values exactly: it states no spread."
        text = (
            f"The model states a standard deviation of {number(self.stated)} beside errors of "
            f"{number(self.rmse)} (both root mean squares)"
        )
        if self.model_share is None:
            return f"{text}. {NOT_SPLIT}"
        if self.model_share > 0.995:
            return f"{text}; nearly all of that variance is the model's own uncertainty."
        if self.model_share < 0.005:
            return f"{text}; nearly all of that variance is noise."
        return (
            f"{text}; {percent(self.model_share)} of that variance is the model's own "
            "uncertainty, which more data would lower, the rest is noise."
        )

    @property
    def how_honest(self) -> str:
        """Whether the intervals held what they promised."""
        low, high = self.allowed
        rows = "the one observed value" if self.n == 1 else f"the {self.n:,} observed values"
        return (
            f"90 % intervals held {percent(self.covered)} of {rows}; "
            f"{percent(low)[:-2]}–\N{WORD JOINER}{percent(high)} is what chance allows."
        )


def find(y: np.ndarray, prediction: AbstractNumeric) -> Findings:
    """Return what can be said about one output."""
    n = len(y)
    # By the cdf: intervals of a mixture would take a root search per row.
    held = diagnostics.calibration_curve(y, prediction, levels=[0.9])
    size = float(max(np.abs(y).max(), np.abs(prediction.mean).max())) or 1.0
    share = None
    if prediction.identified:
        top = float(prediction.std.max()) or 1.0
        total = float(np.mean((prediction.std / top) ** 2))
        model = float(np.mean((prediction.model_std / top) ** 2))
        share = model / total if total > 0 else 0.0
    return Findings(
        n=n,
        rmse=float(metrics.rmse(y, prediction)),
        r2=float(metrics.r2(y, prediction)) if n > 1 else None,
        spread=size * float(np.std(y / size)),
        stated=float(metrics.sharpness(prediction)),
        model_share=share,
        covered=float(held.observed[0]),
        allowed=(float(held.lower[0]), float(held.upper[0])),
        judged=diagnostics.judge(y, prediction),
    )


# What it is that was judged: bars that each lie within their band may still have too much between
# them.
_BY_INTERVALS = "By the shares inside the intervals of 50 and 90 % the stated spread is too"
_MEANINGS = {
    "high": "More than half of all values lie below their median: predictions tend to be too high.",
    "low": "More than half of all values lie above their median: predictions tend to be too low.",
    "over": f"{_BY_INTERVALS} small.",
    "under": f"{_BY_INTERVALS} large.",
    "shape": "The stated distributions have the wrong shape.",
    "tails": "Some values lie too far out for the stated distributions.",
}

# What the charts' sentences conclude is the one judgement; what they add is what is seen.


def calibration_finding(curve: CalibrationCurve, judged: Judgement) -> str:
    """Say where the curve leaves its band."""
    if judged.spread == "unknown":
        return TOO_FEW
    below, above = curve.observed < curve.lower, curve.observed > curve.upper
    m = len(curve.level)
    if judged.spread in ("over", "under"):
        over = judged.spread == "over"
        count, side, meaning = (
            (below.sum(), "below", "too narrow") if over else (above.sum(), "above", "too wide")
        )
        return f"At {count} of {m} levels the curve lies {side} the band: intervals are {meaning}."
    outside = int((below | above).sum())
    if not outside:
        return "The curve stays inside the band at every level."
    where = f"At {outside} of {m} levels the curve lies outside the band"
    if judged.spread == "shape":
        return f"{where}: the stated distributions have the wrong shape."
    if judged.bias:
        return f"{where}, since predictions tend to be too {judged.bias}."
    return f"{where}, as chance may have it."


def pit_finding(histogram: PITHistogram, judged: Judgement) -> str:
    """Say how many bars are as they should be, and what the shape says."""
    if judged.spread == "unknown":
        return TOO_FEW
    k = len(histogram.counts)
    outside = int(
        ((histogram.counts < histogram.lower) | (histogram.counts > histogram.upper)).sum()
    )
    said = f"{f'{k - outside} of the {k}' if outside else f'All {k}'} bars end inside the band."
    shown = [_MEANINGS[key] for key in (judged.bias, judged.spread) if key in _MEANINGS]
    return " ".join([said, *shown]) if shown else f"{said} No sign of a wrong shape."


def error_finding(groups: ErrorByStd, judged: Judgement) -> str:
    """Say whether groups of rows err as much as stated."""
    if judged.spread == "unknown":
        return TOO_FEW
    k = len(groups.counts)
    more, less = int((groups.error > groups.upper).sum()), int((groups.error < groups.lower).sum())
    chance = ", as chance may have it" if judged.spread == "good" else ""
    if k == 1:
        word = "more than" if more else "less than" if less else "as much as"
        return f"Taken together, rows err {word} stated{chance if more or less else ''}."
    if not more and not less:
        return f"All {k} groups of rows err as much as stated, as far as chance allows."
    found = (more, "more"), (less, "less")
    parts = [f"{count} {'errs' if count == 1 else 'err'} {word}" for count, word in found if count]
    return f"Of {k} groups of rows, {' and '.join(parts)} than stated{chance}."
