"""FAWNClassifier: fast adaptive weight noise for classes, behind scikit-learn's interface."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from varprop.data.source import AbstractSource
from varprop.errors import FitWarning
from varprop.estimators.class_methods import ClassMethods
from varprop.estimators.inputs import (
    check_inputs,
    check_weight,
    rows_to_predict,
    target_names,
)
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.options import CONSTRAINTS
from varprop.estimators.remarks import lonely_classes
from varprop.learning.likelihoods import AbstractClasses, BernoulliLikelihood, Categorical, Ordinal
from varprop.learning.likelihoods.classes import class_frequencies
from varprop.predictive.categories import Categories, codes_of
from varprop.training.recipe import Recipe

_LIKELIHOODS: dict[str, Callable[..., AbstractClasses]] = {
    "logit": BernoulliLikelihood.of_frequencies,
    "probit": functools.partial(BernoulliLikelihood.of_frequencies, link="probit"),
    "softmax": Categorical.of_frequencies,
    "ordinal": Ordinal.of_frequencies,
}


class FAWNClassifier(ClassMethods, AbstractNetwork):
    """A neural network that gives the probabilities of classes, and how far it doubts itself.

    Every weight has a mean and a variance; both are trained and propagated in closed form, without
    sampling, and probabilities are averaged over them. Inputs are standardized inside.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units per hidden layer.
    activation, weights, propagation, prior, kl_weight, kl_warmup
        As in `FAWNRegressor`.
    objective : {"ropd", "vi", "sampled-vi"} or AbstractObjective, default="vi"
        Variational inference, which tells the model's doubt from chance, or regularized
        optimization of the predictive distribution, which does not.
    likelihood : {"auto", "logit", "probit", "softmax", "ordinal"}, default="auto"
        "auto" is "logit" for two classes and "softmax" for more. "ordinal" is for classes whose
        (sorted) labels have an order; see `varprop.likelihoods`.
    class_weight : dict, "balanced" or None, default=None
        Weights of classes, by which those of rows are multiplied; "balanced" gives each class the
        same sum. Probabilities are then those of a world in which classes occur so often.
    output_covariance : bool, default=False
        Model the covariance between the outputs of a softmax.
    dropout, drop_connect, input_noise, n_restarts
        As in `FAWNRegressor`.
    n_members : int, default=1
        Networks in the ensemble, whose probabilities are averaged.
    validation : {"check", "bag"} or None, default="bag"
        As in `FAWNRegressor`; the constant model is the classes' frequencies. "bag" trains six
        networks per member: one on all rows and five without another fifth each.
    batch_size, learning_rate_init, max_iter, tol, n_iter_no_change, recipe
        As in `FAWNRegressor`.
    warm_start, random_state, dtype, verbose, devices, n_jobs
        As in `FAWNRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_, feature_names_in_, target_names_
        As in `FAWNRegressor`, and so are ``members_``, ``shares_``, ``scaling_``, ``trust_``,
        ``outcome_``, ``loss_``, ``loss_curve_``, ``restart_losses_``, ``n_iter_`` and ``n_steps_``.
    constant_numbers_ : ndarray of shape (n_classes,)
        The classes' frequencies.

    Examples
    --------
    >>> import numpy as np
    >>> from varprop import FAWNClassifier
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> y = np.where(np.abs(X[:, 0]) < 0.5, "in", "out")
    >>> model = FAWNClassifier(validation=None, max_iter=2000, random_state=0).fit(X, y)
    >>> model.predict([[0.0], [0.9]]).tolist(), model.predict_proba([[0.0]]).shape
    (['in', 'out'], (1, 2))
    >>> dist = model.predict_dist([[0.0], [5.0]])
    >>> dist.entropy().shape, dist.aleatoric.shape, dist.epistemic.shape
    ((2,), (2,), (2,))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CONSTRAINTS,
        "likelihood": [StrOptions({"auto", *_LIKELIHOODS})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    classes_: np.ndarray
    likelihood: str
    class_weight: Any
    _start: AbstractClasses

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        *,
        activation: Any = "relu",
        objective: Any = "vi",
        likelihood: str = "auto",
        class_weight: Any = None,
        weights: str = "gaussian",
        output_covariance: bool = False,
        propagation: str = "first-order",
        prior: Any = "learned",
        kl_weight: float | None = None,
        kl_warmup: Any = "auto",
        dropout: float = 0.0,
        drop_connect: float = 0.0,
        input_noise: float = 0.0,
        n_restarts: int = 1,
        n_members: int = 1,
        validation: str | None = "bag",
        batch_size: Any = "auto",
        learning_rate_init: float | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        n_iter_no_change: int | None = None,
        recipe: Recipe | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: str = "float32",
        verbose: bool = False,
        devices: str | None = None,
        n_jobs: int | None = None,
    ):
        self._store(locals())

    def _options(self) -> dict[str, Any]:
        known = {"likelihood": self._start, "row_covariance": "weights"}
        return {**self.get_params(deep=False), **known}

    # ---- training ---------------------------------------------------------------------------

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
    ) -> FAWNClassifier:
        """Train on these rows, from a new start unless `warm_start`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), or a source
            Inputs; or a source whose target is the number 0, 1, ... of a class, given alone.
        y : array-like of shape (n_rows,)
            Classes: text, whole numbers or truth values, at least two different ones.
        sample_weight : array-like of shape (n_rows,), default=None
            A weight of 2 is the row twice, a weight of 0 is no row.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error, in the units of X.
        X_cov : array-like of shape (n_rows, n_features, n_features), default=None
            Its covariances, or one for all rows, where errors of a row are correlated.
        groups, times : array-like of shape (n_rows,), default=None
            Which rows are set aside together: as in `FAWNRegressor.fit`.

        Returns
        -------
        FAWNClassifier
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        going_on = self.warm_start and hasattr(self, "members_")
        rows = self.coded(X, y, sample_weight, self.classes_ if going_on else None)
        for sentence in lonely_classes(rows[0], self.classes_):
            warnings.warn(FitWarning(sentence), stacklevel=2)
        self._fit(X, *rows, X_std, X_cov, groups=groups, times=times)
        self._name_target(y)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        X_std: Any = None,
        X_cov: Any = None,
    ) -> FAWNClassifier:
        """Train for one more pass over these rows, from where the model stands.

        See `FAWNRegressor.partial_fit`.

        Parameters
        ----------
        X, y, sample_weight, X_std, X_cov
            As in `fit`.
        classes : array-like of shape (n_classes,), default=None
            All labels there will be; needed in the first call.

        Returns
        -------
        FAWNClassifier
            The estimator itself.
        """
        if hasattr(self, "members_"):
            known = self.classes_
            if classes is not None and not np.array_equal(np.unique(classes), known):
                raise ValueError("classes are not those of the call before.")
        elif classes is None:
            raise ValueError("classes must be given in the first call of partial_fit.")
        else:
            known = np.unique(column_or_1d(classes))
        first = not hasattr(self, "members_")
        rows = self.coded(X, y, sample_weight, known)
        self._partial_fit(X, *rows, X_std, X_cov)
        if first:
            self._name_target(y)
        return self

    def coded(
        self, X: Any, y: Any, sample_weight: Any, known: np.ndarray | None = None
    ) -> tuple[Any, Any]:
        """Return the classes' numbers and the rows' weights; fix the classes and where to start."""
        self._validate_params()
        if isinstance(X, AbstractSource):
            if self.class_weight is not None:
                raise ValueError("class_weight is for arrays: give the source a weight of its own.")
            count = _counted(X)
            labels = np.arange(len(count)) if known is None else known
            codes, weight, shares = y, sample_weight, _padded(count, len(labels))
            shares = (shares + 1 / len(shares)) / (shares.sum() + 1)
        else:
            if y is None:
                raise ValueError(
                    "This FAWNClassifier estimator requires y to be passed, but the target y is "
                    "None."
                )
            check_inputs(self, X, reset=known is None)  # of both, X is spoken of first
            given = column_or_1d(y, warn=True)
            assert_all_finite(given, input_name="y")
            check_classification_targets(given)
            labels, codes = np.unique(given, return_inverse=True)
            if known is not None:
                labels, codes = known, codes_of(given, known)
            weight = check_weight(sample_weight, len(codes))
            if self.class_weight is not None:
                if isinstance(self.class_weight, dict) and min(self.class_weight.values()) < 0:
                    raise ValueError(f"class_weight must not be negative: {self.class_weight}.")
                by_class = compute_sample_weight(self.class_weight, given)
                weight = by_class if weight is None else by_class * weight
            shares = class_frequencies(codes, weight, len(labels))
            codes = codes.astype(float)
        if len(labels) < 2:
            raise ValueError(
                f"y has one class only, {str(labels[0])!r}: a classifier needs at least two "
                "classes."
            )
        kind = self.likelihood
        if kind == "auto":
            kind = "logit" if len(labels) == 2 else "softmax"
        if kind in ("logit", "probit") and len(labels) > 2:
            raise ValueError(
                f"likelihood={kind!r} is for two classes, but y has {len(labels)}: take 'softmax'."
            )
        self.classes_ = labels
        self._start = jax.tree.map(np.asarray, _LIKELIHOODS[kind](shares))
        return codes, weight

    def _name_target(self, y: Any) -> None:
        if y is not None:
            self.target_names_ = target_names(y)

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> Categories:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std, X_cov : array-like, default=None
            As in `FAWNRegressor.predict_dist`.

        Returns
        -------
        Categories
            Probabilities by label, their entropy, and what of it is the model's doubt. Where the
            objective does not tell this from chance, as ROPD, it is what members disagree in.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        return self._predict_mixed(X, x_var).labeled(self.classes_)


def _counted(source: AbstractSource) -> np.ndarray:
    """Return how often each class occurs among the rows of a source, by weight."""
    count = np.zeros(0)
    for block in range(len(source.block_rows)):
        for piece in source.read(block):
            codes = piece.y[:, 0]
            if piece.y.shape[1] != 1 or not ((codes >= 0) & (codes == np.round(codes))).all():
                raise ValueError(
                    "the source's one target must be the number 0, 1, ... of a class in every row."
                )
            found = np.bincount(codes.astype(int), piece.weight)
            count = _padded(count, len(found)) + _padded(found, len(count))
    return count


def _padded(count: np.ndarray, size: int) -> np.ndarray:
    return np.pad(count, (0, max(size - len(count), 0)))
