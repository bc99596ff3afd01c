"""What the charts of one target say, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from varprop.predictive import diagnostics, metrics
from varprop.predictive.diagnostics import CalibrationCurve, ErrorByStd, PITHistogram
from varprop.predictive.distribution import Predictive
from varprop.report.numerals import number, percent

VERDICTS = {
    "good": ("as stated", "The intervals hold about as many observations as they should."),
    "over": ("too narrow", "The model is overconfident: its intervals are too narrow."),
    "under": ("too wide", "The model is too cautious: its intervals are wider than needed."),
    "shape": (
        "wrong shape",
        "The stated distributions have the wrong shape: too wide here, too narrow there.",
    ),
    "unknown": ("too few rows", "Too few rows to judge the stated uncertainty."),
}


#: Why no parts are shown of a prediction that is not `identified`.
NOT_SPLIT = (
    "Model and noise part are not told apart by this model; one fitted with the objective vi "
    "(--objective vi) tells them apart."
)


@dataclass(frozen=True)
class Findings:
    """Numbers and verdict of one target; covered by 90 % intervals, and allowed by chance."""

    n: int
    rmse: float
    r2: float | None
    spread: float
    typical_std: float
    model_share: float | None
    covered: float
    allowed: tuple[float, float]
    verdict: str

    @property
    def in_a_word(self) -> str:
        """The verdict on the intervals, for a table."""
        return VERDICTS[self.verdict][0]

    @property
    def headline(self) -> str:
        """The verdict on the intervals, in a sentence."""
        return VERDICTS[self.verdict][1]

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
        if self.typical_std == 0:
            return "The model claims to know most values exactly: it states no spread for them."
        text = f"The model states a standard deviation of typically {number(self.typical_std)}"
        if self.model_share is None:
            return f"{text}. {NOT_SPLIT}"
        if self.model_share > 0.995:
            return text + "; nearly all of it is the model's own uncertainty."
        if self.model_share < 0.005:
            return text + "; nearly all of it is noise."
        return (
            text + f"; {percent(self.model_share)} of that variance is the model's own "
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


def find(y: np.ndarray, prediction: Predictive) -> Findings:
    """Return what can be said about one output."""
    n = len(y)
    # By the cdf: intervals of a mixture would take a root search per row.
    held = diagnostics.calibration_curve(y, prediction, levels=[0.5, 0.9])
    below, above = (held.observed < held.lower).any(), (held.observed > held.upper).any()
    verdict = "shape" if below and above else "over" if below else "under" if above else "good"
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
        typical_std=float(np.median(prediction.std)),
        model_share=share,
        covered=float(held.observed[1]),
        allowed=(float(held.lower[1]), float(held.upper[1])),
        verdict=verdict if n >= 10 else "unknown",
    )


def calibration_finding(curve: CalibrationCurve) -> str:
    """Say where the curve leaves its band."""
    below, above = curve.observed < curve.lower, curve.observed > curve.upper
    outside, m = int((below | above).sum()), len(curve.level)
    if not outside:
        return "The curve stays inside the band at every level."
    if below.any() and above.any():
        return (
            f"At {outside} of {m} levels the curve lies outside the band: some intervals are too "
            "narrow and some too wide."
        )
    side, meaning = ("below", "too narrow") if below.any() else ("above", "too wide")
    if outside <= 0.05 * m:
        return f"At {outside} of {m} levels the curve lies {side} the band, as chance may have it."
    return f"At {outside} of {m} levels the curve lies {side} the band: intervals are {meaning}."


def pit_finding(histogram: PITHistogram, pit: np.ndarray) -> str:
    """Say what shape the histogram has, where chance alone would rarely give such a shape."""
    k, n = len(histogram.counts), len(pit)
    outside = int(
        ((histogram.counts < histogram.lower) | (histogram.counts > histogram.upper)).sum()
    )
    inside = f"{k - outside} of the {k}" if outside else f"All {k}"
    said = f"{inside} bars end inside the band."
    low, high = (float(edge) for edge in diagnostics.chance_range(n, 0.5, 0.99))
    ends, left = float(np.mean(np.abs(pit - 0.5) > 0.25)), float(np.mean(pit < 0.5))
    shapes = []
    if not low <= left <= high:
        shapes.append("predictions tend to be too " + ("high" if left > 0.5 else "low"))
    if not low <= ends <= high:
        shapes.append("the stated spread is too " + ("small" if ends > 0.5 else "large"))
    if shapes:
        return f"{said} The shape says that {' and that '.join(shapes)}."
    _, usual = diagnostics.chance_range(k, 0.05, 0.98)
    if outside > float(usual) * k:
        return f"{said} That is fewer than usual: the stated distributions have the wrong shape."
    return f"{said} No sign of a wrong shape."


def error_finding(groups: ErrorByStd) -> str:
    """Say whether groups of rows err as much as stated."""
    k = len(groups.counts)
    inside = int(((groups.error >= groups.lower) & (groups.error <= groups.upper)).sum())
    if k == 1:
        word = "agrees" if inside else "does not agree"
        return f"Taken together, the size of the errors {word} with the stated deviations."
    if inside == k:
        return f"All {k} groups of rows err as much as stated, as far as chance allows."
    high = int((groups.error > groups.upper).sum())
    found = (high, "more"), (k - inside - high, "less")
    parts = [f"{count} {'errs' if count == 1 else 'err'} {word}" for count, word in found if count]
    return f"Of {k} groups of rows, {' and '.join(parts)} than chance explains."
