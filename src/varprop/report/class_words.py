"""What the charts of predicted classes say, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from varprop.predictive.categories import Categories
from varprop.predictive.class_diagnostics import ROC, Reliability, judge_classes
from varprop.predictive.diagnostics import chance_range
from varprop.report.numerals import number, percent
from varprop.report.words import TOO_FEW

VERDICTS = {
    "good": "Predictions come true about as often as stated.",
    "over": "The model is overconfident: its predictions come true less often than stated.",
    "under": "The model is too cautious: its predictions come true more often than stated.",
    "shape": "Stated probabilities are too high for some rows and too low for others.",
    "unknown": "Too few rows to judge the stated probabilities.",
}


@dataclass(frozen=True)
class ClassFindings:
    """Numbers and judgement of predicted classes; what is stated is of the predicted class."""

    n: int
    accuracy: float
    commonest: str
    commonest_share: float
    stated: float
    entropy: float
    largest_entropy: float
    model_share: float | None
    allowed: tuple[float, float]
    verdict: str

    @property
    def headline(self) -> str:
        """The judgement of the stated probabilities."""
        return VERDICTS[self.verdict]

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """What is asked first, and the answers."""
        return (
            ("How good?", self.how_good),
            ("How sure?", self.how_sure),
            ("Can the probabilities be trusted?", self.how_honest),
        )

    @property
    def how_good(self) -> str:
        """How many predictions were right."""
        return (
            f"{percent(self.accuracy)} of the predicted classes are right, where always saying "
            f"{self.commonest} would be right in {percent(self.commonest_share)}."
        )

    @property
    def how_sure(self) -> str:
        """How probable predictions were said to be, and what their doubt is."""
        most = number(self.largest_entropy, 2)
        text = (
            f"The predicted class has a probability of {percent(self.stated)} on average; the "
            f"entropy is {number(self.entropy, 2)} of at most {most} nats"
        )
        if self.model_share is None:
            return f"{text}. This model does not tell its own doubt from chance."
        return (
            f"{text}, and {percent(self.model_share)} of it is the model's own doubt, which more "
            "data would lower."
        )

    @property
    def how_honest(self) -> str:
        """Whether stated probabilities came true."""
        low, high = self.allowed
        return (
            f"Stated with {percent(self.stated)}, predictions were right in "
            f"{percent(self.accuracy)} of {self.n:,} rows; {percent(low)[:-2]}–\N{WORD JOINER}"
            f"{percent(high)} is what chance allows."
        )


def find_classes(y: np.ndarray, prediction: Categories) -> ClassFindings:
    """Return what can be said about predicted classes."""
    codes, top = prediction.codes(y), prediction.proba.max(axis=1)
    counts = np.bincount(codes, minlength=prediction.n_classes)
    entropy, model = float(prediction.entropy().mean()), float(prediction.epistemic.mean())
    low, high = chance_range(len(y), float(top.mean()))
    return ClassFindings(
        n=len(y),
        accuracy=float((prediction.proba.argmax(axis=1) == codes).mean()),
        commonest=str(prediction.classes[counts.argmax()]),
        commonest_share=float(counts.max() / len(y)),
        stated=float(top.mean()),
        entropy=entropy,
        largest_entropy=float(np.log(prediction.n_classes)),
        model_share=model / entropy if model > 0 else None,
        allowed=(float(low), float(high)),
        verdict=judge_classes(y, prediction),
    )


def reliability_finding(found: Reliability, verdict: str) -> str:
    """Say how many groups of rows come true as stated."""
    if verdict == "unknown":
        return TOO_FEW
    k = len(found.counts)
    below = int((found.observed < found.lower).sum())
    above = int((found.observed > found.upper).sum())
    if not below and not above:
        return f"All {k} groups of rows are where chance allows." if k > 1 else "As stated."
    chance = ", as chance may have it" if verdict == "good" else ""
    said = [f"{n} came true {word} often" for n, word in ((below, "less"), (above, "more")) if n]
    return f"Of {k} groups of rows, {' and '.join(said)} than stated{chance}."


def roc_finding(found: ROC, name: str) -> str:
    """Say what the area is."""
    if np.isnan(found.area):
        return f"There are no rows of {name}, or no others: nothing to tell apart."
    return (
        f"Of a row of {name} and one of another class, {name} is stated as more probable for the "
        f"first in {percent(found.area)} of all pairs (the area under the curve)."
    )


def confusion_finding(counts: np.ndarray, names: list[str]) -> str:
    """Say what is mistaken for what most often."""
    wrong = counts - np.diag(np.diag(counts))
    if not wrong.any():
        return "No row was taken for another class."
    i, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
    total = int(counts[i].sum())
    return (
        f"The most frequent mistake: {names[i]} taken for {names[j]}, in {int(wrong[i, j]):,} of "
        f"{total:,} rows."
    )


def entropy_finding(entropy: np.ndarray, right: np.ndarray) -> str:
    """Say whether wrong predictions were less sure."""
    if right.all():
        return "No prediction was wrong."
    if not right.any():
        return "No prediction was right."
    ordered = np.sort(entropy[right])
    below, upto = (np.searchsorted(ordered, entropy[~right], side) for side in ("left", "right"))
    more = float((below + upto).mean() / (2 * len(ordered)))
    known = "mostly" if more > 0.7 else "to some extent" if more > 0.55 else "hardly"
    return (
        f"Mistakes are {known} announced: of a wrong and a right prediction, the wrong one is less "
        f"sure in {percent(more)} of all pairs."
    )
