"""StackedRegressor: several networks and simple models, weighted by rows they have not seen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop.data.parts import gather
from varprop.data.source import AbstractSource
from varprop.data.statistics import Statistics
from varprop.errors import FitWarning, TrainingError
from varprop.estimators.base import AbstractRegressor
from varprop.estimators.inputs import rows_to_predict, training_data
from varprop.estimators.members import Task, worst
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.remarks import lost_digits, too_many_inputs
from varprop.estimators.validation import (
    Judged,
    SetAside,
    in_memory,
    judged_constant,
    mixed,
    trusted,
)
from varprop.predictive.distribution import Predictive
from varprop.predictive.simple import LinearModel, constant_gaussian
from varprop.training.recipe import Recipe, StopRule
from varprop.training.schedule import Outcome

#: Names of the simple models among the weights.
LINEAR, CONSTANT = "linear", "constant"
# Training rows, drawn at random, of the linear model; and features beyond which its covariance
# would outgrow the networks.
_LINEAR_ROWS, _LINEAR_FEATURES = 50_000, 1024
# Fewer different rows than this: a network knows nothing that the simple models do not, and with
# still fewer a line says nothing either.
_FOR_NETWORKS, _FOR_LINEAR = 10, 5
# Weight of the constant beyond which there was nothing to learn; and nats by which the mixture must
# be better than it on rows set aside, else networks pruned to a constant have the rest.
_NOTHING, _SOMETHING = 0.9, 0.01
# How a network of a stack is trained: shorter than one on its own, since six of each are averaged,
# and what is not fitted well has little weight. Of many rows there is more to fit (Naval's networks
# were 0.2 nats behind after as few steps): they are trained as one on its own is.
RECIPE = Recipe(
    kl_warmup=6_000, cooldown=5_000, max_steps=24_000, stop=StopRule(window=500, patience=6)
)
_MANY_ROWS = 5_000


def default_networks(**options: Any) -> list[tuple[str, FAWNRegressor]]:
    """Return the networks of the default stack, with some options of theirs changed.

    One is trained by ROPD, with noise of one size. The other is trained by variational inference,
    with noise that depends on the input and a prior for each input.

    Examples
    --------
    >>> [name for name, _ in default_networks(hidden_layer_sizes=(20,))]
    ['ropd', 'vi']
    """
    other = {"objective": "vi", "likelihood": "heteroscedastic"}
    if options.get("weights", "gaussian") == "gaussian":
        other["prior"] = "ard"
    return [("ropd", FAWNRegressor(**options)), ("vi", FAWNRegressor(**{**options, **other}))]


class StackedRegressor(AbstractRegressor):
    """The regressor to begin with: networks and simple models, such that none is over-sure.

    Every network is trained six times: on all rows, and five times without another fifth of them
    (identical rows are always together). The densities that networks, a linear model and a constant
    Gaussian give to rows they have not seen decide their weights, and the prediction is the mixture
    of all of them: one pass each, still in closed form.

    It is a meta-estimator above `FAWNRegressor`, as scikit-learn's stacking is, because a network
    and a choice among models are two things: the one can be warm-started, trained by parts and
    taken apart, the other compares settings, of which some may be far too sure.

    Parameters
    ----------
    estimators : list of (str, FAWNRegressor), default=None
        Networks by name; `default_networks()` unless given, and none for the simple models alone.
        Their `random_state`, `validation`, `verbose` and `n_jobs` are not looked at, and a
        `recipe` of None is shorter than usual for up to 5,000 rows.
    random_state : int, RandomState or None, default=None
        Source of the folds, the starts and the order of rows.
    verbose : bool, default=False
        Show a progress bar for every network.
    n_jobs : int, default=None
        Lanes (folds, members and restarts) trained at a time, on threads; -1 for all cores.

    Attributes
    ----------
    n_features_in_, feature_names_in_, n_outputs_, target_names_, scaling_
        As in `FAWNRegressor`.
    estimators_ : list of (str, FAWNRegressor)
        The fitted networks, a member for all rows and one for each fold.
    linear_ : LinearModel or None
        Bayesian ridge regression on all rows; None with too few rows or too many features.
    weights_ : dict of str to float
        Of every network, "linear" and "constant" in the mixture; their sum is 1.
    out_of_fold_nll_ : dict of str to float
        Mean negative log density of rows set aside, of each by itself, and of their mixture
        ("stack", whose few weights were fitted to the same rows). Empty if nothing was set aside.
    outcome_ : str
        Of the networks' outcomes the worst; "converged" if there are none.
    n_iter_, n_steps_, loss_curve_
        Of the network with the largest weight.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.sin(3 * X[:, 0])
    >>> networks = default_networks(hidden_layer_sizes=(10,), max_iter=300)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # so short a training has not converged
    ...     model = StackedRegressor(networks, random_state=0).fit(X, y)
    >>> list(model.weights_), model.predict_interval(X[:2]).lower.shape
    (['ropd', 'vi', 'linear', 'constant'], (2,))
    """

    estimators_: list[tuple[str, FAWNRegressor]]
    linear_: LinearModel | None
    weights_: dict[str, float]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimators": [list, tuple, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "n_jobs": [int, None],
    }

    def __init__(
        self,
        estimators: Sequence[tuple[str, FAWNRegressor]] | None = None,
        *,
        random_state: Any = None,
        verbose: bool = False,
        n_jobs: int | None = None,
    ):
        self.estimators = estimators
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    # ---- training ---------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_std: Any = None
    ) -> StackedRegressor:
        """Train the networks on all folds and weigh them.

        Parameters
        ----------
        X, y, sample_weight, X_std
            As in `FAWNRegressor.fit`; X may be a source, given alone.

        Returns
        -------
        StackedRegressor
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        self._validate_params()
        named = self._networks()
        data = training_data(self, X, y, sample_weight, X_std, reset=True)
        statistics = Statistics.of(data)
        self.scaling_, self.estimators_, self.linear_ = statistics.scaling, [], None
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        aside = SetAside.of(data, seed, every_row=True)
        self.n_seen_ = aside.n_different
        judged: dict[str, Judged] = {}
        few = bool(named) and aside.n_different < _FOR_NETWORKS
        named, told = [] if few else named, list[Warning]()
        for name, network in named:
            network.set_params(
                random_state=seed, verbose=self.verbose, n_jobs=self.n_jobs, validation="bag"
            )
            if network.recipe is None and data.n_rows <= _MANY_ROWS:
                network.recipe = RECIPE
            network.n_features_in_, network.n_outputs_ = self.n_features_in_, self.n_outputs_
            network.target_names_, network._y_ndim = self.target_names_, self._y_ndim
            network._validate_params()
            options = network.get_params(deep=False)
            task = Task(options, data, statistics, self.scaling_, aside)
            try:
                told = network._train(task) or told
            except TrainingError as error:
                self._warn(f"the network {name!r} is left out: {error}")
                continue
            self.estimators_.append((name, network))
            assert network._held is not None
            judged[name], network._held = network._held, None
            if network.outcome_ == "interrupted":
                break
        if aside.folds:
            self._fit_linear(aside, judged, seed)
            squeeze = self._y_ndim == 1
            judged[CONSTANT] = judged_constant(aside, self.scaling_, squeeze=squeeze)
        self.weights_, self.out_of_fold_nll_ = {CONSTANT: 1.0}, {}
        if judged:  # there is nothing to judge by where all rows are identical
            parts = list(judged.values())
            weights = trusted(parts)
            self.weights_ = dict(zip(judged, weights.tolist(), strict=True))
            self.out_of_fold_nll_ = {name: found.nll for name, found in judged.items()}
            self.out_of_fold_nll_["stack"] = mixed(parts, weights).nll
        self._describe_training()
        self._see(data)
        if any(network.dtype == "float32" for _, network in self.estimators_):
            for sentence in lost_digits(data, self.scaling_):
                self._warn(sentence)
        for sentence in too_many_inputs(self.n_features_in_, aside.n_different):
            self._warn(sentence)
        if few:
            self._warn(
                f"{aside.n_different} different rows are too few for a network: the prediction is "
                "that of simple models."
            )
        elif (share := self.weights_[CONSTANT]) > _NOTHING or not self._helped():
            more = "" if share > _NOTHING else ", and the rest makes it hardly better"
            self._warn(
                f"{share:.0%} of the prediction is the constant Gaussian{more}: no model found "
                "much in the inputs that helps to predict rows it has not seen."
            )
        for remark in told:  # what a network is too sure of, the stack makes up for
            if not isinstance(remark, FitWarning):
                warnings.warn(remark, stacklevel=2)
        return self

    def _helped(self) -> bool:
        """Whether the inputs helped to predict rows set aside, as far as there are such rows."""
        found = self.out_of_fold_nll_
        return not found or found[CONSTANT] - found["stack"] > _SOMETHING

    def _warn(self, sentence: str) -> None:
        warnings.warn(FitWarning(sentence), stacklevel=3)

    def _networks(self) -> list[tuple[str, FAWNRegressor]]:
        """Return clones of the networks, their names checked."""
        named = default_networks() if self.estimators is None else list(self.estimators)
        for entry in named:
            if len(entry) != 2 or not isinstance(entry[1], FAWNRegressor):
                raise ValueError(
                    "estimators must be a list of (name, FAWNRegressor), but holds "
                    f"{str(entry)[:80]}."
                )
        names = [name for name, _ in named]
        taken = {LINEAR, CONSTANT, "stack"}
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
        judged[LINEAR] = Judged.of(aside, predictions)
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

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(
        self, X: Any, X_std: Any = None, *, X_cov: Any = None, model: str | None = None
    ) -> Predictive:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error.
        X_cov : array-like of shape (n_rows, n_features, n_features), default=None
            Its covariances, or one for all rows, where errors of a row are correlated.
        model : str, default=None
            One of the models alone, by its name among `weights_`; the mixture unless given.

        Returns
        -------
        Predictive
            In the units of the target.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
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
                seen, scaling = self.n_seen_, self.scaling_
                parts.append(constant_gaussian(scaling, len(X), n_seen=seen, squeeze=squeeze))
        return parts[0] if len(parts) == 1 else Predictive.mixture(parts, list(weights.values()))
