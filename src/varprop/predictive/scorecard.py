"""How good a predictive distribution is, beside two simple ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from varprop.predictive import metrics
from varprop.predictive.blend import Blend
from varprop.predictive.bounds import Bounded
from varprop.predictive.categories import Categories
from varprop.predictive.class_diagnostics import class_scores
from varprop.predictive.contract import AbstractNumeric, AbstractPredictive
from varprop.predictive.diagnostics import judge
from varprop.predictive.distribution import Predictive

#: The rows of a scorecard, in the order they are shown.
MODEL, LINEAR, CONSTANT = "this model", "linear model", "constant Gaussian"
#: What stands in the place of the constant Gaussian where the target is no Gaussian.
FREQUENCIES, CONSTANT_MODEL = "class frequencies", "constant model"

#: Scores, and whether greater is better (None: the nearer to the number in the name the better).
SCORES: dict[str, bool | None] = {
    "NLL": False,
    "RMSE": False,
    "R2": True,
    "CRPS": False,
    "coverage 50 %": None,
    "coverage 90 %": None,
}

#: The same of a prediction of classes.
CLASS_SCORES: dict[str, bool | None] = {
    "log-loss": False,
    "accuracy": True,
    "Brier": False,
    "calibration error": False,
}

#: Of each model the scores: numbers, and of several targets (but for NLL) one number for each.
Scores = dict[str, float | dict[str, float]]
Scorecard = dict[str, Scores]

#: How the verdict on a model that its own rows refute begins.
DO_NOT_USE = "Do not use this model"
#: Fewer rows than this never make a difference clear.
ENOUGH = 30
# Level of each of the two tests that must agree for "clearly", both directions together; and the
# chance of "do not use" for a model whose stated distributions are all the true ones.
_CLEAR, _REFUTED = 0.005, 0.01
# Nats below which no difference matters, however clear.
_WORTH = 0.01


def simple_models(prediction: AbstractPredictive) -> dict[str, str]:
    """Return the names of the simple models beside a prediction, by their part of a stack.

    Examples
    --------
    >>> simple_models(Predictive.gaussian([0.0], [0.0], 1.0))
    {'linear': 'linear model', 'constant': 'constant Gaussian'}
    """
    if isinstance(prediction, Categories):
        return {"linear": LINEAR, "constant": FREQUENCIES}
    inner = prediction.prediction if isinstance(prediction, Bounded) else prediction
    parts = inner.parts if isinstance(inner, Blend) else (inner,)
    simple = isinstance(parts[0], Predictive)
    return {"linear": LINEAR, "constant": CONSTANT if simple else CONSTANT_MODEL}


def scores(
    y: np.ndarray, prediction: AbstractPredictive, targets: Sequence[str] | None = None
) -> Scores:
    """Return the scores of one prediction.

    Parameters
    ----------
    y
        Targets, of the prediction's public shape.
    prediction
        Of the same rows.
    targets
        Names of the targets, "output 0" and so on unless given.

    Returns
    -------
    dict of str to float, or to dict of str to float
        NLL is joint over the targets. They have units of their own, so that of several every other
        score is one number for each, by name, and never an average. Coverages of counts are made up
        for what whole numbers add to an interval; see `metrics.held`. Classes have `CLASS_SCORES`,
        what is known up to bounds has NLL and CRPS.

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> card = scores(y, Predictive.gaussian(y, np.zeros(3), 1.0))
    >>> card["RMSE"], card["R2"], card["coverage 90 %"]
    (0.0, 1.0, 1.0)
    """
    if isinstance(prediction, Categories):
        return class_scores(y, prediction)
    if isinstance(prediction, Bounded):
        score, crps = (float(part(y).mean()) for part in (prediction.logpdf, prediction.crps))
        return {"NLL": -score, "CRPS": crps}
    assert isinstance(prediction, AbstractNumeric)
    found = {
        "RMSE": metrics.rmse(y, prediction, multioutput="raw_values"),
        "R2": metrics.r2(y, prediction, multioutput="raw_values"),
        "CRPS": metrics.crps(y, prediction, multioutput="raw_values"),
    }
    for level, held in zip((0.5, 0.9), _held(y, prediction), strict=True):
        found[f"coverage {100 * level:.0f} %"] = held.mean(axis=0)
    result: Scores = {"NLL": metrics.nll(y, prediction)}
    d = prediction.n_outputs
    names = [f"output {i}" for i in range(d)] if targets is None else list(targets)
    for name, values in found.items():
        each = np.asarray(values).tolist()
        result[name] = each[0] if d == 1 else dict(zip(names, each, strict=True))
    return result


def _held(y: np.ndarray, prediction: AbstractNumeric) -> list[np.ndarray]:
    levels = np.array([0.5, 0.9])
    return list(metrics.held(y.reshape(len(y), -1), prediction, levels))


def scorecard(
    y: np.ndarray,
    predictions: Mapping[str, AbstractPredictive],
    targets: Sequence[str] | None = None,
) -> Scorecard:
    """Return the scores of several predictions of the same rows, by their names.

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> list(scorecard(y, {CONSTANT: Predictive.gaussian(0 * y + 1, 0 * y, 1.0)}))
    ['constant Gaussian']
    """
    return {name: scores(y, prediction, targets) for name, prediction in predictions.items()}


def by_target(
    card: Mapping[str, Mapping[str, float | Mapping[str, float]]],
) -> dict[str, dict[str, dict[str, float]]]:
    """Return tables of plain numbers: that of all targets under "", and of several one for each.

    Examples
    --------
    >>> by_target({"this model": {"NLL": 1.0, "RMSE": {"a": 2.0, "b": 300.0}}})["b"]
    {'this model': {'RMSE': 300.0}}
    """
    found: dict[str, dict[str, dict[str, float]]] = {"": {}}
    for model, values in card.items():
        for name, value in values.items():
            each = value.items() if isinstance(value, Mapping) else [("", value)]
            for target, number in each:
                found.setdefault(target, {}).setdefault(model, {})[name] = number
    return found


def row_losses(y: np.ndarray, prediction: AbstractPredictive) -> np.ndarray:
    """Return the negative log density of each row; an infinite one is a very large number.

    That is one of a point mass that was hit, or missed.

    Examples
    --------
    >>> row_losses(np.array([0.0, 9.0]), Predictive.gaussian([0.0, 0.0], [0.0, 0.0], 0.0)).tolist()
    [-1000000000000.0, 1000000000000.0]
    """
    return np.clip(-prediction.logpdf(y), -1e12, 1e12)


def is_clear(gain: np.ndarray) -> bool:
    """Whether a mean difference of two predictions' losses is clear, as `verdict` has it.

    Parameters
    ----------
    gain
        Losses of the one less those of the other, row by row, in nats.

    Examples
    --------
    >>> is_clear(np.linspace(0.1, 0.3, 50)), is_clear(np.linspace(-0.3, 0.4, 50))
    (True, False)
    """
    mean, n = float(gain.mean()), len(gain)
    if n < ENOUGH or abs(mean) < _WORTH:
        return False
    error = float(gain.std(ddof=1)) / np.sqrt(n)
    # The mean's own test, and one that a few rows cannot sway.
    ranks = stats.wilcoxon(gain, alternative="greater" if mean > 0 else "less").pvalue
    whole = stats.t.sf(abs(mean) / error, n - 1) if error > 0 else 0.0
    return bool(max(ranks, whole) < _CLEAR / 2)


def difference(gain: np.ndarray) -> str:
    """Return the size of a mean difference in words, with its standard error over rows.

    Examples
    --------
    >>> difference(np.array([-1.0, -3.0])), difference(np.array([2.0]))
    ('by 2.00 ± 1.00', 'by 2.00')
    """
    error = f" ± {gain.std(ddof=1) / np.sqrt(len(gain)):,.2f}" if len(gain) > 1 else ""
    return f"by {abs(gain.mean()):,.2f}{error}"


def verdict(y: np.ndarray, predictions: Mapping[str, AbstractPredictive]) -> str:
    """Say in one sentence whether the model beats the better of the simple ones, by NLL.

    Of classes it is the log-loss.

    Differences are taken row by row. "Clearly" needs at least 30 rows, and a t-test and Wilcoxon's
    signed-rank test that both agree with the mean at a level of 0.5 % each. So without a difference
    it is said in fewer than 1 % of cases if differences scatter symmetrically, however heavy their
    tails, and in fewer than 5 % if they are as skewed as a squared Gaussian, as those of an
    over-sure model are. "Do not use this model" has another ground, which needs no averages: were
    its distributions the true ones, it would lose to a given other by T nats in total with a
    probability of at most exp(-T), whatever the distributions (Markov's inequality for the ratio of
    the densities). That is asked to be below 1 %, and the loss above 0.1 nats per row.

    Parameters
    ----------
    y
        Targets.
    predictions
        Of this model and at least one other.

    Examples
    --------
    >>> y = np.linspace(-1, 1, 50)
    >>> sure = Predictive.gaussian(y, np.zeros(50), 0.01)
    >>> verdict(y, {MODEL: sure, CONSTANT: Predictive.gaussian(0 * y, np.zeros(50), 0.5)})
    'This model is clearly better than the constant Gaussian: NLL lower by 2.30 ± 0.04.'
    """
    losses = {name: row_losses(y, prediction) for name, prediction in predictions.items()}
    others = [name for name in losses if name != MODEL]
    best = min(others, key=lambda name: losses[name].mean())
    nll = "log-loss" if isinstance(predictions[MODEL], Categories) else "NLL"
    many = best == FREQUENCIES
    s, is_ = ("'", "are") if many else ("'s", "is")
    gain, n = losses[best] - losses[MODEL], len(y)
    mean, by = float(gain.mean()), difference(gain)
    parts = {name: part for part, name in simple_models(predictions[MODEL]).items()}
    part = parts.get(best)
    instead = f"use the {best} instead" + (f" (varprop predict --model {part})" if part else "")
    refuted = mean < -0.1 and gain.sum() < np.log(_REFUTED / len(others))
    if n >= ENOUGH and mean != 0 and not (refuted and mean < -1):
        if abs(mean) < _WORTH:
            return f"This model is as good as the {best}: {nll} differs by less than {_WORTH}."
        if is_clear(gain):
            if mean > 0:
                return f"This model is clearly better than the {best}: {nll} lower {by}."
            return f"The {best} {is_} clearly better here: {nll} lower {by}; {instead}."
    if refuted:
        why = _what_is_wrong(y, predictions[MODEL], gain)
        higher = f"its {nll} is higher than the {best}{s} by {-mean:,.2f}"
        return f"{DO_NOT_USE}: {why}{higher}; {instead}."
    word = "lower" if mean > 0 else "higher"
    if n < ENOUGH:
        return f"Too few rows to tell ({n}): {nll} {word} than the {best}{s} {by}."
    return f"No clear difference from the {best}: {nll} {word} {by}."


def _what_is_wrong(y: np.ndarray, prediction: AbstractPredictive, gain: np.ndarray) -> str:
    """Say why a model loses, where it can be seen; `gain` is in nats, by row."""
    far, n = "far " * (float(gain.mean()) < -1), len(y)
    if isinstance(prediction, Categories):
        # At most one in a hundred where the probabilities are the true ones.
        sure = int(((gain < -1) & (prediction.logpdf(y) < np.log(0.01))).sum())
        return f"it is {far}too sure on {sure:,} of {n:,} rows, and " if sure else ""
    if not isinstance(prediction, AbstractNumeric):
        return ""
    y = y.reshape(len(y), -1)
    below, at = metrics.jump(y, prediction)
    outside = (at < 0.005) | (below > 0.995)  # of 99 % intervals
    sure = int(((gain < -1) & outside.any(axis=1)).sum())
    if sure:
        return f"it is {far}too sure on {sure:,} of {n:,} rows, and "
    judged = [judge(y[:, k], prediction.marginal(k)).spread for k in range(y.shape[1])]
    return f"it is {far}too cautious, and " if "under" in judged else ""
