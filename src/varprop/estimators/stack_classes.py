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


def default_class_networks(**options: Any) -> list[tuple[str, FAWNClassifier]]:
    """Return the networks of the default stack of classes, with some options of theirs changed.

    One has a prior for each input. One, of 100 units unless `hidden_layer_sizes` says otherwise,
    counts the KL divergence a tenth: where classes hardly overlap, networks of independent weights
    are far too careful with all of it, and rows set aside tell. One has no hidden layer: it is
    logistic regression, with weights that are distributions, and a prior for each input.

    Examples
    --------
    >>> [name for name, _ in default_class_networks(hidden_layer_sizes=(20,))]
    ['network', 'cold', 'linear']
    """
    ard = {"prior": "ard"} if options.get("weights", "gaussian") == "gaussian" else {}
    cold = {"hidden_layer_sizes": (100,), **options}
    cold["kl_weight"] = _COLD * (1.0 if options.get("kl_weight") is None else options["kl_weight"])
    line = {**options, **ard, "hidden_layer_sizes": ()}
    return [
        ("network", FAWNClassifier(**{**options, **ard})),
        ("cold", FAWNClassifier(**cold)),
        (LINEAR, FAWNClassifier(**line)),
    ]


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
        `fit` sample weights), and a `recipe` of None is shorter than usual for up to 5,000 rows.
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

    def _default_networks(self) -> list[tuple[str, Any]]:
        return default_class_networks()

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
