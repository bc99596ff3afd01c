"""StackedRegressor: several networks and simple models, weighted by rows they have not seen."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from varprop.estimators.base import AbstractRegressor
from varprop.estimators.inputs import rows_to_predict, training_data
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.stacking import AbstractStack
from varprop.predictive.contract import AbstractNumeric
from varprop.training.recipe import Recipe

# Networks of each effort, among those that `default_networks` makes.
_CHOSEN = {
    "quick": ("vi",),
    "normal": ("vi", "skewed", "cold", "deep", "ropd"),
    "thorough": ("vi", "skewed", "cold", "deep", "ropd", "deep vi", "tails"),
}
# Rows below which networks by ROPD are left out, unless the effort is "thorough": where there are
# few, those by VI predict as well, or better; with one hidden layer and a long plan ROPD is ahead
# where there is next to no noise, and rows enough to see it.
_FOR_ROPD = {"deep": 700, "ropd": 5_000}
_LONG = Recipe(stop=None)
# Factor of the KL divergence of what is to fit closely; too sure by itself, good beside others.
_COLD = 0.3


def default_networks(
    *, effort: str = "normal", n_rows: int | None = None, **options: Any
) -> list[tuple[str, FAWNRegressor]]:
    """Return the networks of the default stack, with some options of theirs changed.

    "vi" is trained by variational inference, with noise that depends on the input and a prior for
    each input; "skewed" as that, but with noise of one size behind a learned transform of the
    target, and only where targets are skewed: a stack leaves it out if no transform makes them more
    Gaussian; "cold" is as "vi" with two hidden layers and 0.3 times the KL divergence, so that it
    fits closely; "deep" is trained by ROPD, with two hidden layers, noise that depends on the input
    and a prior for each input, from 700 rows on; "ropd" has one hidden layer and noise of one size,
    and is trained for long, from 5,000 rows on. With `effort` "quick" there is only "vi"; with
    "thorough" there are all of these for any number of rows, and "deep vi", as "vi" with two hidden
    layers, and "tails", with Student's t noise. A `likelihood` other than "gaussian" is that of all
    networks, of which there are fewer then, and weights other than Gaussian ones or the covariance
    of outputs leave out those that cannot have them.

    Parameters
    ----------
    effort
        "quick", "normal" or "thorough": which networks.
    n_rows
        Of the table, if it is known.
    **options
        Of `FAWNRegressor`, for all of them; the deep ones take the first of `hidden_layer_sizes`
        twice.

    Examples
    --------
    >>> [name for name, _ in default_networks(hidden_layer_sizes=(20,))]
    ['vi', 'skewed', 'cold', 'deep', 'ropd']
    >>> [name for name, _ in default_networks(n_rows=300)]
    ['vi', 'skewed', 'cold']
    >>> [name for name, _ in default_networks(effort="quick", likelihood="poisson")]
    ['vi']
    """
    if effort not in _CHOSEN:
        raise ValueError(f"effort must be one of {', '.join(_CHOSEN)}, but is {effort!r}.")
    numbers = options.get("likelihood", "gaussian") == "gaussian"
    relevance = {"prior": "ard"} if options.get("weights", "gaussian") == "gaussian" else {}
    vi: dict[str, Any] = {"objective": "vi"} | relevance
    of_input = {"likelihood": "heteroscedastic"} if numbers else {}
    width = np.atleast_1d(options.get("hidden_layer_sizes", (50,))).tolist()[:1]
    deep: dict[str, Any] = of_input | {"hidden_layer_sizes": (*width, *width)}
    weight = 1.0 if options.get("kl_weight") is None else options["kl_weight"]
    found = {
        "vi": vi | of_input,
        "cold": deep | vi | {"kl_weight": _COLD * weight},
        "deep": deep | relevance,
        "deep vi": deep | vi,
        "ropd": {} if options.get("recipe") is not None else {"recipe": _LONG},
    }
    if effort == "normal" and n_rows is not None:
        found = {name: own for name, own in found.items() if n_rows >= _FOR_ROPD.get(name, 0)}
    if numbers and relevance and not options.get("output_covariance"):
        found |= {
            "skewed": vi | {"likelihood": "yeo-johnson"},
            "tails": vi | {"likelihood": "student-t"},
        }
    return [
        (name, FAWNRegressor(**{**options, **found[name]}))
        for name in _CHOSEN[effort]
        if name in found
    ]


class StackedRegressor(AbstractStack, AbstractRegressor):
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
        They may differ in their likelihood, as long as all take numbers, or counts, or bounds; the
        constant model is that of the first, and the linear model is left out but for numbers. One
        whose likelihood the targets do not ask for (`AbstractLikelihood.worth_trying`: a transform
        of targets that are not skewed) is left out.
        Their `random_state`, `validation`, `verbose` and `n_jobs` are not looked at, and a
        `recipe` of None is a short plan.
    effort : {"quick", "normal", "thorough"}, default="normal"
        Which networks there are, unless `estimators` says: see `default_networks`.
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
        The fitted networks, a member for all rows and one for each fold. Where different rows
        weigh more than 1.5 or less than 1/1.5 on the average, by copies or by weights, each is
        there once more as "..., rows once", with the KL weighted as if each counted once.
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
    >>> import warnings
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.sin(3 * X[:, 0])
    >>> networks = default_networks(n_rows=60, hidden_layer_sizes=(10,), max_iter=300)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # so short a training has not converged
    ...     model = StackedRegressor(networks, random_state=0).fit(X, y)
    >>> list(model.weights_), model.predict_interval(X[:2]).lower.shape
    (['vi', 'cold', 'linear', 'constant'], (2,))
    """

    estimators_: list[tuple[str, FAWNRegressor]]
    _network: ClassVar[type[AbstractNetwork]] = FAWNRegressor

    def _default_networks(self, n_rows: int | None = None) -> list[tuple[str, Any]]:
        return default_networks(effort=self.effort, n_rows=n_rows)

    # ---- training ---------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_std: Any = None,
        X_cov: Any = None,
        *,
        exposure: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> StackedRegressor:
        """Train the networks on all folds and weigh them.

        Parameters
        ----------
        X, y, sample_weight, X_std, X_cov, exposure
            As in `FAWNRegressor.fit`; X may be a source, given without the others.
        groups : array-like of shape (n_rows,), default=None
            Labels of rows that belong together (a patient, a machine, a day): rows of one group
            share a fold, as identical rows do, and there are fewer folds than five if there are
            fewer groups. Of a source, in its order.
        times : array-like of shape (n_rows,), default=None
            Numbers or dates, instead of groups: the folds are five blocks of time, so that
            neighbors in time share one, but at four borders.

        Returns
        -------
        StackedRegressor
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        self._validate_params()
        named = self._networks()
        self._likelihood = self._observed_by(named)
        training = training_data(
            self,
            X,
            y,
            sample_weight,
            X_std,
            X_cov,
            reset=True,
            given=self._kind.given,
            exposure=exposure,
            groups=groups,
            times=times,
        )
        self._train(named, training)
        return self

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(
        self,
        X: Any,
        X_std: Any = None,
        *,
        X_cov: Any = None,
        exposure: Any = None,
        model: str | None = None,
    ) -> AbstractNumeric:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error.
        X_cov : array-like of shape (n_rows, n_features, n_features), default=None
            Its covariances, or one for all rows, where errors of a row are correlated.
        exposure : array-like of shape (n_rows,), default=None
            Of counts; 1 unless given.
        model : str, default=None
            One of the models alone, by its name among `weights_`; the mixture unless given.

        Returns
        -------
        AbstractNumeric
            In the units of the target.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        return self._exposed(self._predict_mixed(X, x_var, model), exposure)

    def predict_out_of_fold(
        self,
        X: Any,
        y: Any,
        X_std: Any = None,
        *,
        X_cov: Any = None,
        exposure: Any = None,
        model: str | None = None,
    ) -> AbstractNumeric:
        """Return what training rows are predicted to be by models that had not seen them.

        Every row is predicted by the networks of its fold, mixed as the rows of the other folds
        have it, so that scores of these predictions are those of new rows, or a little worse: the
        stack's own networks are averaged over all folds. They are not kept with a
        model that is saved or copied.

        Parameters
        ----------
        X, y, X_std, X_cov, exposure
            Rows that were given to `fit`, with the same numbers, in any order.
        model
            As in `predict_dist`.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.linspace(-1, 1, 60)[:, None]
        >>> model = StackedRegressor([], random_state=0).fit(X, X[:, 0] ** 2)
        >>> dist = model.predict_out_of_fold(X, X[:, 0] ** 2)
        >>> bool(np.isclose(-dist.logpdf(X[:, 0] ** 2).mean(), model.out_of_fold_nll_["stack"]))
        True
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        found = self._predict_unseen(X, self._columns(y, exposure), x_var, model)
        return self._exposed(found, exposure)
