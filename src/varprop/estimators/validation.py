"""Rows set aside: which rows a network is not trained on, and what it makes of them.

A network cannot be judged by the rows it was trained on: its training objective has no bound where
rows can be given almost no variance. So the density that is given to rows it has not seen decides
how much it counts beside simpler models.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from varprop.data.fingerprints import fold_numbers, row_hashes
from varprop.data.parts import gather, split_source
from varprop.data.source import AbstractSource, Data, Rows, SourceError
from varprop.data.targets import with_targets
from varprop.data.together import Together
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.likelihoods.given import logarithms
from varprop.predictive.blend import mixture
from varprop.predictive.contract import AbstractNumeric, AbstractPredictive

#: Folds of the rows: each network leaves out one of them.
N_FOLDS = 5
# Rows set aside at most of a source that is not.
_MOST_HELD = 20_000
#: Share by which the CRPS of a mixture may exceed the broadest model's.
CRPS_SLACK = 0.005
#: Least share of the rows that intervals of a mixture hold, where 90 % is what they state.
LEAST_HELD, _INTERVAL = 0.8, 0.9
# What the broadest model is taken to have explained besides.
_MORE_ROWS = 0.1
# Steps of expectation-maximization; the weights of a handful of models are known long before.
_EM_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows to judge by.

    Attributes
    ----------
    rows
        Numbers of the rows to train on; None for all of the source.
    held
        The rows set aside.
    """

    rows: np.ndarray | None
    held: Rows


@dataclasses.dataclass(frozen=True)
class SetAside:
    """A source to train on, and what is set aside of it.

    Attributes
    ----------
    source
        To train on; of rows in memory all of them, from which folds pick.
    folds
        One, or `N_FOLDS` that together set every row aside once, or fewer if there are fewer groups
        of rows; none if there are too few rows.
    n_rows
        What the rows set aside stand for.
    n_different
        Different rows, as far as they are counted.
    """

    source: AbstractSource
    folds: tuple[Fold, ...]
    n_rows: int
    n_different: int

    @classmethod
    def of(
        cls,
        source: AbstractSource,
        seed: int,
        *,
        every_row: bool,
        together: Together | None = None,
    ) -> SetAside:
        """Choose the rows; identical ones are always together, and order does not matter.

        Parameters
        ----------
        source
            All rows.
        seed
            Of the choice.
        every_row
            Whether every row is to be set aside once. Of more rows than are held in memory only
            some are, for good.
        together
            What else keeps rows together: their groups, or time, of which folds are blocks then.
            What is set aside only once are the last rows in time.

        Raises
        ------
        ValueError
            If all rows belong together.
        """
        if not isinstance(source, Data) and not source.fits_memory:
            share = min(1 / N_FOLDS, _MOST_HELD / source.n_rows)
            try:
                source, held = split_source(
                    source, share=share, seed=seed, by_content=True, together=together
                )
            except SourceError as error:
                raise error if together is None else _all_together(together) from error
            # A group may be large.
            rows = gather(held) if together is None else gather(held, most=_MOST_HELD)
            return cls(source, (Fold(None, rows),), source.n_rows, source.n_rows)
        data = in_memory(source)
        hashes = row_hashes(data.x, data.y, data.x_var)
        n_different = len(np.unique(hashes))
        if n_different == 1:
            return cls(data, (), data.n_rows, 1)
        number = fold_numbers(hashes, N_FOLDS, seed, together)
        if together is not None and not number.any():
            raise _all_together(together)
        whole = Rows(data.x, data.y, data.weight, data.x_var)
        folds = [
            Fold(np.flatnonzero(number != fold), whole.part(number == fold))
            for fold in range(number.max() + 1 if every_row else 1)
        ]
        return cls(data, tuple(folds), data.n_rows, n_different)

    def as_trained(self, likelihood: type[AbstractLikelihood]) -> SetAside:
        """Return the same with columns of y as a likelihood is trained on."""
        if not likelihood.logged:
            return self
        change = _logarithms(likelihood)
        folds = [Fold(f.rows, f.held._replace(y=change(f.held.y))) for f in self.folds]
        source = as_trained(self.source, likelihood)
        return dataclasses.replace(self, source=source, folds=tuple(folds))


def _all_together(together: Together) -> ValueError:
    all_same = f"all {together.name} are the same"
    if not together.in_time:
        all_same = "all rows are of one group, or of groups that are joined by identical rows"
    return ValueError(
        f"{together.name} leaves no rows to set aside, since {all_same}: give at least two that "
        "differ, or leave it out."
    )


def as_trained(data: AbstractSource, likelihood: type[AbstractLikelihood]) -> AbstractSource:
    """Return rows with columns of y as a likelihood is trained on: some want logarithms."""
    if not likelihood.logged:
        return data
    return with_targets(data, _logarithms(likelihood), data.targets)


def _logarithms(likelihood: type[AbstractLikelihood]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda y: logarithms(y, likelihood.column_scaling)


def in_memory(source: AbstractSource) -> Data:
    """Return a source as arrays, from which lanes can pick rows."""
    if isinstance(source, Data):
        return source
    rows = gather(source)
    names = [*source.features, *source.targets]
    return Data(*rows, names=names, weight_name=source.weight_name, sound=source.sound)


def stack_weights(
    log_density: np.ndarray, sample_weight: np.ndarray | None = None, *, n_rows: int | None = None
) -> np.ndarray:
    """Return the weights of models in a mixture that give rows set aside the highest density.

    By expectation-maximization, with a tenth of a row more that the last model alone explains. That
    is the broadest: it keeps a weight of 0.1 / (rows + 0.1), so that no row, however surprising,
    costs more than the logarithm of ten times the rows beyond what this model makes of it. A whole
    row would widen standard deviations where there is little noise, for nothing.

    Parameters
    ----------
    log_density
        Shape (models, rows). One that is not a number, or is infinite, counts as none.
    sample_weight
        Shape (rows,): how the rows share what they say; equally unless given.
    n_rows
        What the rows stand for, if they are a part; their own number unless given.

    Returns
    -------
    ndarray of shape (models,)
        Not negative, with sum 1.

    Examples
    --------
    >>> sure, broad = np.full(99, 2.0), np.full(99, -1.0)
    >>> sure[0] = -1e6  # far too sure once
    >>> stack_weights(np.stack([sure, broad])).round(2).tolist()
    [0.99, 0.01]
    """
    n_models, n_held = log_density.shape
    share = np.ones(n_held) if sample_weight is None else sample_weight
    share = share * ((n_held if n_rows is None else n_rows) / share.sum())
    found = np.nan_to_num(log_density, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
    top = found.max(axis=0)
    known = np.isfinite(top)  # a row that no model has a density for says nothing
    density, share = np.exp(found[:, known] - top[known]), share[known]
    more = np.zeros(n_models)
    more[-1] = _MORE_ROWS
    weights = np.full(n_models, 1 / n_models)
    for _ in range(_EM_STEPS):
        joint = weights[:, None] * density
        new = ((joint / joint.sum(axis=0)) @ share + more) / (share.sum() + _MORE_ROWS)
        done, weights = np.abs(new - weights).max() < 1e-9, new
        if done:
            break
    return weights


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a model made of rows it had not seen.

    Attributes
    ----------
    aside
        The rows.
    predictions
        For every fold; None where there is none.
    likelihood
        How rows are observed.
    """

    aside: SetAside
    predictions: tuple[AbstractPredictive | None, ...]
    likelihood: type[AbstractLikelihood]

    def _observed(self) -> Iterator[tuple[AbstractPredictive | None, np.ndarray]]:
        """Yield the distribution of what was observed, fold by fold, and the targets."""
        for fold, prediction in zip(self.aside.folds, self.predictions, strict=True):
            if prediction is None:
                yield None, fold.held.y
                continue
            prediction, y = self.likelihood.as_observed(prediction, fold.held.y)
            yield prediction, y[:, 0] if prediction.squeeze else y

    @functools.cached_property
    def log_density(self) -> np.ndarray:
        """Of every row, fold by fold; -inf where there is no prediction."""
        found = [
            np.full(len(y), -np.inf) if prediction is None else prediction.logpdf(y)
            for prediction, y in self._observed()
        ]
        return np.concatenate(found)

    @property
    def nll(self) -> float:
        """Mean negative log density of the rows."""
        return float(-np.average(self.log_density, weights=_weight(self.aside)))

    def only(self, folds: Sequence[int]) -> Judged:
        """Return what it made of the rows of some folds."""
        aside = dataclasses.replace(self.aside, folds=tuple(self.aside.folds[k] for k in folds))
        return Judged(aside, tuple(self.predictions[k] for k in folds), self.likelihood)

    @property
    def total_weight(self) -> float:
        """Sum of the rows' weights."""
        weight = _weight(self.aside)
        return float(len(self.log_density) if weight is None else weight.sum())

    def crps(self) -> np.ndarray:
        """Mean CRPS of the rows, one number per target; infinite where there is no prediction."""
        found = []
        for prediction, y in self._observed():
            if prediction is None:
                return np.full(1, np.inf)
            rows = prediction.crps(y)
            found.append(rows.reshape(len(rows), -1))
        return np.average(np.concatenate(found), axis=0, weights=_weight(self.aside))

    def cdf(self) -> np.ndarray | None:
        """Distribution functions at the rows, shape (rows, targets); NaN without a prediction.

        None where targets are no numbers; a value with a probability of its own counts half.
        """
        found = []
        for prediction, y in self._observed():
            if prediction is None:
                found.append(np.full((len(y), 1), np.nan))
                continue
            if not isinstance(prediction, AbstractNumeric):
                return None
            at, below = (prediction.cdf(y, left=left) for left in (False, True))
            found.append((0.5 * (at + below)).reshape(len(y), -1))
        width = max(part.shape[1] for part in found)
        return np.concatenate([np.broadcast_to(part, (len(part), width)) for part in found])


def mixed(parts: Sequence[Judged], weights: np.ndarray) -> Judged:
    """Return the mixture of models that were judged by the same rows."""
    aside, predictions = parts[0].aside, []
    for fold in range(len(aside.folds)):
        pairs = zip(parts, weights, strict=True)
        there = [(p, w) for part, w in pairs if (p := part.predictions[fold]) and w > 0]
        predictions.append(mixture([p for p, _ in there], [w for _, w in there]))
    return Judged(aside, tuple(predictions), parts[0].likelihood)


def trusted(parts: Sequence[Judged]) -> np.ndarray:
    """Return the weights of models in their mixture, as rows set aside have it; the last is broad.

    Their densities decide. A density rewards a spike where a value is often repeated, however far
    the rest is off, and forgives a spread that is too small where the mean is good. So, if the
    mixture's CRPS is above the last model's, or its intervals hold far too few of the rows, as much
    of the last is added as brings that back.
    """
    densities = np.stack([part.log_density for part in parts])
    aside, last = parts[0].aside, parts[-1]
    weights = stack_weights(densities, _weight(aside), n_rows=aside.n_rows)
    broad = np.eye(len(parts))[-1]
    reference = last.crps()
    if not (reference > 0).all():
        return weights
    # The CRPS of a mixture is quadratic in its weights: three values tell all of it.
    half, whole = (
        float(np.mean(mixed(parts, t * weights + (1 - t) * broad).crps() / reference)) - 1
        for t in (0.5, 1.0)
    )
    if whole > CRPS_SLACK:
        square, slope = 2 * whole - 4 * half, 4 * half - whole
        root = np.sqrt(slope**2 + 4 * square * CRPS_SLACK)
        # The smaller positive root of square t^2 + slope t = slack, in a form that cannot cancel.
        t = 2 * CRPS_SLACK / (slope + root)
        weights = t * weights + (1 - t) * broad
    # The CRPS is convex in the weights: what is added now does not raise it above its bound.
    found, reached = mixed(parts, weights).cdf(), last.cdf()
    if found is None or reached is None:  # classes have no intervals
        return weights
    added = _share_that_covers(found, reached, _weight(aside))
    return (1 - added) * weights + added * broad


def _share_that_covers(
    found: np.ndarray, broad: np.ndarray, sample_weight: np.ndarray | None
) -> float:
    """Return the smallest share of the broad model with which 90 % intervals hold enough rows.

    Both are distribution functions at the rows' values, of shape (rows, targets).
    """
    shares = np.linspace(0.0, 1.0, 101)
    at = found + shares[:, None, None] * (broad - found)
    tail = (1 - _INTERVAL) / 2
    held = np.average((at >= tail) & (at <= 1 - tail), axis=1, weights=sample_weight).min(axis=1)
    # Not even the broad model may hold enough of a few rows.
    return float(shares[np.argmax(held >= min(LEAST_HELD, held.max()))])


def trust(judged: Judged, constant: AbstractPredictive, n_targets: int) -> float | None:
    """Return the share of a model beside the constant one; None if all targets are equal."""
    data = judged.aside.source
    if isinstance(data, Data) and (data.y == data.y[0])[:, :n_targets].all(axis=0).any():
        return None
    broad = judged_constant(judged.aside, constant, judged.likelihood)
    return float(trusted([judged, broad])[0])


def judged_constant(
    aside: SetAside, constant: AbstractPredictive, likelihood: type[AbstractLikelihood]
) -> Judged:
    """Judge the constant model, of one row: by its numbers of all rows, which is on the safe side.

    Examples
    --------
    >>> from varprop.learning.likelihoods import GaussianLikelihood
    >>> from varprop.predictive import Predictive
    >>> rows = Data(np.zeros((20, 1)), np.arange(20.0))
    >>> aside = SetAside.of(rows, 0, every_row=True)
    >>> one = Predictive.gaussian([9.5], [0.0], 33.0)
    >>> len(judged_constant(aside, one, GaussianLikelihood).log_density)
    20
    """
    found = [constant[np.zeros(len(fold.held.y), int)] for fold in aside.folds]
    return Judged(aside, tuple(found), likelihood)


def _weight(aside: SetAside) -> np.ndarray | None:
    weights = [fold.held.weight for fold in aside.folds]
    return None if weights[0] is None else np.concatenate(weights)
