"""StackedClassifier: networks, logistic regression and frequencies, weighted by unseen rows."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from varprop.errors import FitWarning
from varprop.estimators.class_methods import ClassMethods
from varprop.estimators.classifier import FAWNClassifier, codes_of
from varprop.estimators.inputs import rows_to_predict, training_data
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.remarks import lonely_classes
from varprop.estimators.stacking import AbstractStack
from varprop.predictive.categories import Categories
from varprop.predictive.simple import LINEAR

# What of the KL divergence the cold network counts (of 0.1 and 0.3, on rows of benchmarks/
# classification.py that are test rows of no split there, the better with 100 units).
_COLD = 0.1


# Networks of each effort, among those that `default_class_networks` makes.
_CHOSEN = {
    "quick": ("cold", LINEAR),
    "normal": ("network", "cold", LINEAR),
    "thorough": ("network", "cold", "deep", LINEAR),
}


def default_class_networks(
    *, effort: str = "normal", **options: Any
) -> list[tuple[str, FAWNClassifier]]:
    """Return the networks of the default stack of classes, with some options of theirs changed.

    "network" has a prior for each input. "cold", of 100 units unless `hidden_layer_sizes` says
    otherwise, counts the KL divergence a tenth: where classes hardly overlap, networks of
    independent weights are far too careful with all of it, and rows set aside tell. "linear" has no
    hidden layer: it is logistic regression, with weights that are distributions, and a prior for
    each input. With `effort` "quick" there is no "network"; with "thorough" there is "deep", as
    "cold" with two hidden layers.

    Parameters
    ----------
    effort
        "quick", "normal" or "thorough": which networks.
    **options
        Of `FAWNClassifier`, for all of them; `hidden_layer_sizes` is not of "deep" and "linear".

    Examples
    --------
    >>> [name for name, _ in default_class_networks(hidden_layer_sizes=(20,))]
    ['network', 'cold', 'linear']
    """
    if effort not in _CHOSEN:
        raise ValueError(f"effort must be one of {', '.join(_CHOSEN)}, but is {effort!r}.")
    ard = {"prior": "ard"} if options.get("weights", "gaussian") == "gaussian" else {}
    weight = 1.0 if options.get("kl_weight") is None else options["kl_weight"]
    cold = {"hidden_layer_sizes": (100,)} | options | {"kl_weight": _COLD * weight}
    width = np.atleast_1d(cold["hidden_layer_sizes"]).tolist()[:1]
    found = {
        "network": options | ard,
        "cold": cold,
        "deep": cold | {"hidden_layer_sizes": (*width, *width)},
        LINEAR: options | ard | {"hidden_layer_sizes": ()},
    }
    return [(name, FAWNClassifier(**found[name])) for name in _CHOSEN[effort]]


class StackedClassifier(ClassMethods, AbstractStack):
    """The classifier to begin with: networks and simple models, such that none is over-sure.

    What `StackedRegressor` is for numbers: every network is trained on all rows, and five times
    without another fifth of them; the probabilities that networks, logistic regression and the
    classes' frequencies give to rows they have not seen decide their weights in the mixture.

    Parameters
    ----------
    estimators : list of (str, FAWNClassifier), default=None
        Networks by name; `default_class_networks()` unless given. Their `random_state`,
        `validation`, `verbose` and `n_jobs` are not looked at; a `class_weight` is refused (give
        `fit` sample weights), and a `recipe` of None is a short plan.
    effort : {"quick", "normal", "thorough"}, default="normal"
        Which networks there are, unless `estimators` says: see `default_class_networks`.
    random_state, verbose, n_jobs
        As in `StackedRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_, feature_names_in_, target_names_
        As in `FAWNClassifier`.
    estimators_, weights_, out_of_fold_nll_, outcome_, n_iter_, n_steps_, loss_curve_
        As in `StackedRegressor`; "constant" are the classes' frequencies.

    Examples
    --------
    >>> import warnings
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.where(X[:, 0] ** 2 > 0.3, "far", "near")
    >>> networks = default_class_networks(hidden_layer_sizes=(10,), max_iter=300)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # so short a training has not converged
    ...     model = StackedClassifier(networks, random_state=0).fit(X, y)
    >>> list(model.weights_), model.predict_proba(X[:2]).shape
    (['network', 'cold', 'linear', 'constant'], (2, 2))
    """

    classes_: np.ndarray
    estimators_: list[tuple[str, FAWNClassifier]]
    _network: ClassVar[type[AbstractNetwork]] = FAWNClassifier
    _own_names: ClassVar[frozenset[str]] = frozenset({LINEAR})

    def _default_networks(self, n_rows: int | None = None) -> list[tuple[str, Any]]:
        return default_class_networks(effort=self.effort)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_std: Any = None,
        X_cov: Any = None,
        *,
        groups: Any = None,
        times: Any = None,
    ) -> StackedClassifier:
        """Train the networks on all folds and weigh them.

        Parameters
        ----------
        X, y, sample_weight, X_std, X_cov
            As in `FAWNClassifier.fit`; X may be a source, given without the others.
        groups, times : array-like of shape (n_rows,), default=None
            Which rows share a fold: as in `StackedRegressor.fit`.

        Returns
        -------
        StackedClassifier
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        self._validate_params()
        named = self._networks()
        if not named:
            raise ValueError("estimators must hold at least one (name, FAWNClassifier).")
        for name, network in named:
            if network.class_weight is not None:
                raise ValueError(
                    f"the class_weight of {name!r} cannot be mixed with other networks: give `fit` "
                    "a sample_weight instead."
                )
            codes, weight = network.coded(X, y, sample_weight)
        self.classes_ = named[0][1].classes_
        for sentence in lonely_classes(codes, self.classes_):
            warnings.warn(FitWarning(sentence), stacklevel=2)
        self._likelihood = self._observed_by(named)
        training = training_data(
            self, X, codes, weight, X_std, X_cov, reset=True, groups=groups, times=times
        )
        self._train(named, training)
        return self

    def predict_dist(
        self, X: Any, X_std: Any = None, *, X_cov: Any = None, model: str | None = None
    ) -> Categories:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X, X_std, X_cov
            As in `FAWNClassifier.predict_dist`.
        model : str, default=None
            One of the models alone, by its name among `weights_`; the mixture unless given.

        Returns
        -------
        Categories
            Probabilities by label.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        return self._predict_mixed(X, x_var, model).labeled(self.classes_)

    def predict_out_of_fold(
        self, X: Any, y: Any, X_std: Any = None, *, X_cov: Any = None, model: str | None = None
    ) -> Categories:
        """Return what training rows are predicted to be by models that had not seen them.

        Parameters
        ----------
        X, y, X_std, X_cov
            Rows that were given to `fit`, with the same labels, in any order.
        model
            As in `predict_dist`; see `StackedRegressor.predict_out_of_fold`.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        codes = codes_of(column_or_1d(y), self.classes_)
        found = self._predict_unseen(X, self._columns(codes, None), x_var, model)
        return found.labeled(self.classes_)
