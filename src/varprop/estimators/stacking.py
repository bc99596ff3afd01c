"""What stacks share: networks and simple models, weighted by rows they have not seen."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from varprop.data.fingerprints import row_hashes
from varprop.data.parts import gather
from varprop.data.source import AbstractSource
from varprop.data.statistics import Statistics
from varprop.errors import FitWarning, TrainingError
from varprop.estimators.base import AbstractEstimator
from varprop.estimators.inputs import Training
from varprop.estimators.members import START_ROWS, Task, worst
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.options import layer_sizes
from varprop.estimators.out_of_fold import OutOfFold
from varprop.estimators.remarks import few_folds, lost_digits, order_of_rows, too_many_inputs
from varprop.estimators.validation import (
    Judged,
    SetAside,
    as_trained,
    in_memory,
    judged_constant,
    trusted,
)
from varprop.learning.likelihoods import (
    AbstractGaussianMixture,
    AbstractLikelihood,
    GaussianLikelihood,
)
from varprop.learning.likelihoods.given import NUMBERS
from varprop.predictive.blend import mixture
from varprop.predictive.simple import CONSTANT, LINEAR, LinearModel
from varprop.training.recipe import Recipe, weight_of_kl
from varprop.training.schedule import Outcome

# Training rows, drawn at random, of the linear model; and features beyond which its covariance
# would outgrow the networks.
_LINEAR_ROWS, _LINEAR_FEATURES = 50_000, 1024
# Fewer different rows than this: a network knows nothing that the simple models do not, and with
# still fewer a line says nothing either.
_FOR_NETWORKS, _FOR_LINEAR = 10, 5
# Weight of the constant beyond which there was nothing to learn; and nats by which the mixture must
# be better than it on rows set aside, else networks pruned to a constant have the rest.
_NOTHING, _SOMETHING = 0.9, 0.01
# Mean weight of different rows, or its inverse, up to which rows count as they are.
_SAME_WEIGHT = 1.5
#: How much a stack is to try, from least to most.
EFFORTS = ("quick", "normal", "thorough")
# How a network of a stack is trained: by short plans, which predict rows set aside as well as three
# times as many steps do, since six of each are averaged, and what is not fitted well has little
# weight (docs/never-over-sure.md). With one hidden layer the rate is high, and the KL still rises
# while it falls; with more of them a step costs several times as much, and there are smaller ones.
_PLAN = Recipe(learning_rate=3e-2, kl_warmup=6_000, cooldown=3_000, max_steps=8_000, stop=None)
_DEEP = Recipe(kl_warmup=4_000, cooldown=3_000, max_steps=10_000, batch_size=64, stop=None)
_DEEP_OF_MANY = _DEEP.replace(batch_size=128, max_steps=16_000)
_MANY_ROWS = 5_000


def recipe_of(n_rows: int, *, deep: bool = False) -> Recipe:
    """Return how networks without a recipe of their own are trained in a stack.

    Examples
    --------
    >>> [recipe_of(100, deep=deep).max_steps for deep in (False, True)]
    [8000, 10000]
    """
    if deep:
        return _DEEP if n_rows <= _MANY_ROWS else _DEEP_OF_MANY
    return _PLAN


def _counted_once(named: list[tuple[str, Any]], weight: float) -> list[tuple[str, Any]]:
    """Return the networks once more, as if every different row weighed 1, if rows weigh otherwise.

    Copies of rows and sample weights say how many observations there are, and the KL divergence
    counts for less the more there are. They may not mean it: a table that was joined twice, weights
    that sum to 1. Rows set aside tell which it is.
    """
    if 1 / _SAME_WEIGHT <= weight <= _SAME_WEIGHT:
        return []
    found = []
    for name, network in named:
        own = weight_of_kl(network.kl_weight, network.recipe)
        # Not a clone, which would know nothing of the classes.
        once = copy.copy(network).set_params(kl_weight=own * weight)
        found.append((f"{name}, rows once", once))
    return found


class AbstractStack(AbstractEstimator):
    """Networks of several settings, a constant and, of numbers, a linear model, mixed."""

    estimators_: list[tuple[str, Any]]
    linear_: LinearModel | None
    weights_: dict[str, float]
    out_of_fold_nll_: dict[str, float]
    constant_numbers_: np.ndarray
    _out_of_fold: OutOfFold | None
    _likelihood: type[AbstractLikelihood]
    #: What its networks are, and names among those of simple models that they may have.
    _network: ClassVar[type[AbstractNetwork]]
    _own_names: ClassVar[frozenset[str]] = frozenset()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimators": [list, tuple, None],
        "effort": [StrOptions(set(EFFORTS))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "n_jobs": [int, None],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] | None = None,
        *,
        effort: str = "normal",
        random_state: Any = None,
        verbose: bool = False,
        n_jobs: int | None = None,
    ):
        self.estimators = estimators
        self.effort = effort
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @abstractmethod
    def _default_networks(self, n_rows: int | None = None) -> list[tuple[str, Any]]:
        """Return the networks to train if none are given, of so many rows if that is known."""

    # ---- training ---------------------------------------------------------------------------

    def _train(self, named: list[tuple[str, Any]], training: Training) -> None:
        """Train networks on all folds of rows, weigh them, and say what to know of it."""
        data = training.source
        statistics = Statistics.of(data)
        self.scaling_ = statistics.scaling.of_columns(self._kind.column_scaling)
        self.estimators_, self.linear_ = [], None
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        aside = SetAside.of(data, seed, every_row=True, together=training.together)
        self.n_seen_ = aside.n_different
        judged: dict[str, Judged] = {}
        if self.estimators is None:  # now it is known how many rows there are
            wanted = {name for name, _ in self._default_networks(aside.n_different)}
            named = [pair for pair in named if pair[0] in wanted]
        few = bool(named) and aside.n_different < _FOR_NETWORKS
        named, told = [] if few else named, list[Warning]()
        named = [*named, *_counted_once(named, statistics.total_weight / aside.n_different)]
        for name, network in named:
            network.set_params(
                random_state=seed, verbose=self.verbose, n_jobs=self.n_jobs, validation="bag"
            )
            network.n_features_in_, network.n_outputs_ = self.n_features_in_, self.n_outputs_
            network.target_names_, network._y_ndim = self.target_names_, self._y_ndim
            network._validate_params()
            if network.recipe is None:
                deep = len(layer_sizes(network.hidden_layer_sizes)) > 1
                network.recipe = recipe_of(data.n_rows, deep=deep)
            options = network._options()
            kind = network._kind
            own = as_trained(data, kind)
            looked = Statistics.of(own) if kind.logged else statistics
            scaling = looked.scaling.of_columns(kind.column_scaling)
            task = Task(options, own, looked, scaling, aside.as_trained(kind))
            if not task.worth_trying():
                continue
            try:
                told = network._train(task) or told
            except TrainingError as error:
                self._warn(f"the network {name!r} is left out: {error}")
                continue
            self.estimators_.append((name, network))
            assert network._held is not None
            judged[name], network._held = network._held, None
            if network.outcome_ == "interrupted":
                if not network.n_steps_ and len(self.estimators_) == 1:
                    raise KeyboardInterrupt  # nothing is trained
                break
        kind = self._kind
        some = gather(as_trained(data, kind), most=START_ROWS, seed=0)
        self.constant_numbers_ = kind.constant_numbers(some.y, some.weight)
        if aside.folds:
            if kind.given is NUMBERS and kind.column_scaling[0]:
                self._fit_linear(aside, judged, seed)
            own_aside = aside.as_trained(kind)
            judged[CONSTANT] = judged_constant(own_aside, self._constant(), kind)
        self.weights_, self.out_of_fold_nll_, self._out_of_fold = {CONSTANT: 1.0}, {}, None
        if judged:  # there is nothing to judge by where all rows are identical
            parts = list(judged.values())
            weights = trusted(parts)
            self.weights_ = dict(zip(judged, weights.tolist(), strict=True))
            self._out_of_fold = OutOfFold.of(aside, judged, weights)
            self.out_of_fold_nll_ = {name: found.nll for name, found in judged.items()}
            self.out_of_fold_nll_["stack"] = self._out_of_fold.nll
        self._describe_training()
        self._see(data)
        if any(network.dtype == "float32" for _, network in self.estimators_):
            for sentence in lost_digits(data, self.scaling_):
                self._warn(sentence)
        for sentence in (*order_of_rows(training), *few_folds(aside, training.together)):
            self._warn(sentence)
        for sentence in too_many_inputs(self.n_features_in_, aside.n_different):
            self._warn(sentence)
        if few:
            self._warn(
                f"{aside.n_different} different rows are too few for a network: the prediction is "
                "that of simple models."
            )
        elif (share := self.weights_[CONSTANT]) > _NOTHING or not self._helped():
            what = "Gaussian" if issubclass(kind, AbstractGaussianMixture) else "model"
            more = "" if share > _NOTHING else ", and the rest makes it hardly better"
            self._warn(
                f"{share:.0%} of the prediction is the constant {what}{more}: no model found "
                "much in the inputs that helps to predict rows it has not seen."
            )
        for remark in told:  # what a network is too sure of, the stack makes up for
            if not isinstance(remark, FitWarning):
                warnings.warn(remark, stacklevel=3)

    def _helped(self) -> bool:
        """Whether the inputs helped to predict rows set aside, as far as there are such rows."""
        found = self.out_of_fold_nll_
        return not found or found[CONSTANT] - found["stack"] > _SOMETHING

    def _warn(self, sentence: str) -> None:
        warnings.warn(FitWarning(sentence), stacklevel=4)

    @property
    def tells_apart(self) -> dict[str, bool]:
        """Whether networks tell their own doubt from noise, by name."""
        return {name: network._identifies_noise for name, network in self.estimators_}

    @property
    def _kind(self) -> type[AbstractLikelihood]:
        """How targets are observed."""
        return self._likelihood

    @staticmethod
    def _observed_by(named: list[tuple[str, Any]]) -> type[AbstractLikelihood]:
        """Return the first network's likelihood; all must take the same columns of y."""
        kinds = [network._kind for _, network in named]
        for (name, _), kind in zip(named, kinds, strict=True):
            # Raw numbers and standardized ones, or counts and bounds, are not the same.
            if (kind.given, kind.column_scaling) != (kinds[0].given, kinds[0].column_scaling):
                raise ValueError(
                    f"estimators has {name!r}, whose likelihood takes other targets than that of "
                    f"{named[0][0]!r}: numbers, counts and bounds cannot be mixed."
                )
        return kinds[0] if kinds else GaussianLikelihood

    def _networks(self) -> list[tuple[str, Any]]:
        """Return clones of the networks, their names checked."""
        named = self._default_networks() if self.estimators is None else list(self.estimators)
        for entry in named:
            if len(entry) != 2 or not isinstance(entry[1], self._network):
                raise ValueError(
                    f"estimators must be a list of (name, {self._network.__name__}), but holds "
                    f"{str(entry)[:80]}."
                )
        names = [name for name, _ in named]
        taken = {LINEAR, CONSTANT, "stack"} - self._own_names
        for name in names:
            if not isinstance(name, str) or name in taken or names.count(name) > 1:
                raise ValueError(
                    f"estimators has the name {name!r}, which is taken or no text: choose another."
                )
        return [(name, clone(network)) for name, network in named]

    def _fit_linear(self, aside: SetAside, judged: dict[str, Judged], seed: int) -> None:
        """Fit the linear model for every fold, and on all rows, if there is something to fit."""
        n_features = len(self.scaling_.x_shift)
        if aside.n_different < _FOR_LINEAR or n_features > _LINEAR_FEATURES:
            return
        squeeze, predictions = self._y_ndim == 1, []
        for fold in aside.folds:
            line = self._line(aside.source, fold.rows, seed)
            held = fold.held
            predictions.append(line.predict_dist(held.x, held.x_var, squeeze=squeeze))
        judged[LINEAR] = Judged(aside, tuple(predictions), GaussianLikelihood)
        alone = aside.folds[0].rows is None  # rows that are set aside for good
        self.linear_ = line if alone else self._line(aside.source, None, seed)

    def _line(self, source: AbstractSource, rows: np.ndarray | None, seed: int) -> LinearModel:
        part = source if rows is None else in_memory(source).take(rows)
        drawn = gather(part, most=_LINEAR_ROWS, seed=seed)
        return LinearModel.fit(drawn.x, drawn.y, drawn.weight, scaling=self.scaling_)

    def _describe_training(self) -> None:
        """Sum up how the networks were trained."""
        networks = dict(self.estimators_)
        self.outcome_ = worst(Outcome(network.outcome_) for network in networks.values()).value
        self.n_iter_, self.n_steps_, self.loss_curve_ = 1, 0, np.zeros(0)
        if networks:
            main = networks[max(networks, key=self.weights_.__getitem__)]
            self.n_iter_, self.n_steps_ = main.n_iter_, main.n_steps_
            self.loss_curve_ = main.loss_curve_

    def _came_of_it(self) -> dict[str, dict[str, float | str]]:
        """Return every model's weight, and how it predicts rows it has not seen."""
        weights = {"stack": 1.0} | self.weights_
        known = self.out_of_fold_nll_
        return {
            name: {"weight": f"{weight:.1%}", "out-of-fold NLL": known.get(name, np.nan)}
            for name, weight in weights.items()
        }

    # ---- prediction -------------------------------------------------------------------------

    def _predict_mixed(self, X: np.ndarray, x_var: np.ndarray | None, model: str | None) -> Any:
        """Return the mixture's prediction, or that of one of the models alone."""
        weights = {name: weight for name, weight in self.weights_.items() if weight > 0}
        if model is not None:
            if model not in self.weights_:
                raise ValueError(
                    f"model must be one of {', '.join(map(repr, self.weights_))}, but is {model!r}."
                )
            weights = {model: 1.0}
        networks, squeeze, parts = dict(self.estimators_), self._y_ndim == 1, []
        for name in weights:
            if name in networks:
                parts.append(networks[name]._predict_network(X, x_var))
            elif name == LINEAR and self.linear_ is not None:
                parts.append(self.linear_.predict_dist(X, x_var, squeeze=squeeze))
            else:
                parts.append(self._constant()[np.zeros(len(X), int)])
        return mixture(parts, list(weights.values()))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no predictions of training rows, which hold the rows."""
        state = dict(super().__getstate__())
        state.pop("_out_of_fold", None)
        return state

    def _predict_unseen(
        self, X: np.ndarray, columns: np.ndarray, x_var: np.ndarray | None, model: str | None
    ) -> Any:
        """Return predictions of training rows by models that had not seen them."""
        found = getattr(self, "_out_of_fold", None)
        if found is None:
            raise ValueError(
                "there are no predictions out of fold: they are not kept with a model that is "
                "saved or copied, and few or equal rows have none."
            )
        if model is not None and model not in found.predictions[0]:
            raise ValueError(f"model {model!r} was not judged by rows set aside.")
        return found.predict(row_hashes(X, columns, x_var), model)

    def _constant(self) -> Any:
        """Return what the simplest model says of any row."""
        numbers, scaling = self.constant_numbers_, self.scaling_.of_targets(self.n_outputs_)
        squeeze = self._y_ndim == 1
        return self._kind.constant(numbers, scaling, n_seen=self.n_seen_, squeeze=squeeze)
