"""FAWNRegressor: fast adaptive weight noise behind scikit-learn's interface."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from varprop.data.statistics import Statistics
from varprop.estimators.base import AbstractRegressor
from varprop.estimators.inputs import rows_to_predict, training_data
from varprop.estimators.members import (
    Epochs,
    Task,
    Trained,
    check_goes_on,
    kept,
    member_dtype,
    to_jax,
    worst,
)
from varprop.estimators.options import CONSTRAINTS
from varprop.estimators.remarks import remarks
from varprop.estimators.validation import Judged, trust
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.nn.registry import chosen
from varprop.predictive.distribution import Predictive
from varprop.predictive.simple import constant_gaussian
from varprop.training.recipe import Recipe
from varprop.training.result import propagate


class FAWNRegressor(AbstractRegressor):
    """A neural network that gives a whole predictive distribution in one forward pass.

    Every weight has a mean and a variance; both are trained and propagated in closed form, without
    sampling (Bayer et al., "Fast Adaptive Weight Noise"). Inputs and targets are standardized
    inside; results are in the units of the data.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units per hidden layer.
    activation : str or AbstractActivation, default="relu"
        "relu", "leaky_relu", "identity", "logistic", "tanh", "erf", "gelu", "silu" or "softplus".
    objective : {"ropd", "vi", "sampled-vi"} or AbstractObjective, default="ropd"
        Regularized optimization of the predictive distribution, variational inference in closed
        form, or variational inference by sampling weights (for reference).
    likelihood : {"gaussian", "heteroscedastic"} or class of AbstractLikelihood, default="gaussian"
        Noise of one learned size per target, noise whose size depends on the input, or a class of
        your own.
    weights : {"gaussian", "bernoulli"}, default="gaussian"
        Distribution of a weight. Bernoulli weights have half the parameters.
    output_covariance : bool, default=False
        Model the covariance between outputs (Co-FAWN).
    propagation : {"first-order", "independent", "second-order"}, default="first-order"
        What is made of the correlation between units of a layer (`varprop.nn.Sequential`). With one
        hidden layer and known inputs there is none, and all are exact.
    prior : {"learned", "per-layer", "fixed"} or AbstractPrior, default="learned"
        One learned prior for all weights (the paper's), one per layer, or a fixed standard normal
        (probability 1/2 for Bernoulli weights).
    kl_weight : float, default=None
        Factor of the KL divergence to the prior; `recipe`'s unless given, which is 1, the paper's
        objective.
    kl_warmup : "auto" or int, default="auto"
        Epochs over which the KL's factor rises from 0. "auto" is `Recipe`'s default, shortened as
        `max_iter` is. Every other restart trains without if the recipe says so (`alternate`).
    dropout : float, default=0.0
        Probability of dropping a hidden unit, averaged over in closed form, also in `predict`.
    drop_connect : float, default=0.0
        Probability of dropping a weight, likewise.
    input_noise : float, default=0.0
        Standard deviation of noise on every input, in units of that input's own.
    n_restarts : int, default=1
        Starts per member, of which the one with the lowest final training objective is kept.
    n_members : int, default=1
        Networks in the ensemble, predicted as a mixture of Gaussians.
    validation : {"check", "bag"} or None, default="check"
        How it is found out what the network makes of rows it was not trained on. "check" trains one
        more without a fifth of the rows (identical ones are always together); the density it gives
        to these decides how the network is mixed with the constant Gaussian, which knows nothing
        but the targets' mean and spread. "bag" trains six per member, one on all rows and five
        without another fifth each, and predicts with all. None trusts the network, as the paper
        does: it can be far too sure without a word. Of more rows than memory holds a part is set
        aside for good.
    batch_size : "auto", int or None, default="auto"
        Rows per step; None takes all rows. "auto" is `Recipe`'s default. Data of at most so many
        rows is one full batch.
    learning_rate_init : float, default=None
        Of Adam; `Recipe`'s default unless given.
    max_iter : int, default=None
        Epochs at most; as many as make `Recipe`'s number of steps unless given.
    tol : float, default=None
        Relative improvement of the training loss below which a window of epochs is flat; 0 trains
        all epochs; `StopRule`'s default unless given.
    n_iter_no_change : int, default=None
        Epochs without improvement after which training ends. They are divided into (at most ten)
        windows over which the loss is averaged, and all must be flat; `StopRule`'s default, which
        counts steps, unless given.
    recipe : varprop.Recipe, default=None
        How to train, in steps: what the arguments above leave open is taken from it.
        ``Recipe.paper()`` is the paper's protocol; `Recipe`'s defaults unless given.
    warm_start : bool, default=False
        `fit` goes on from the members and the scaling of the last call, one start each.
    random_state : int, RandomState or None, default=None
        Source of the starts and of the order of rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the network; results are float64 in either case.
    verbose : bool, default=False
        Show a progress bar.
    devices : {"all"} or None, default=None
        "all" shards every batch over all devices that JAX sees, also those of other processes
        after `varprop.distributed.initialize`; one device unless given.
    n_jobs : int, default=None
        Lanes (members and restarts) trained at a time, on threads; -1 for all cores.

    Attributes
    ----------
    n_features_in_, feature_names_in_, n_outputs_
        As in scikit-learn.
    target_names_ : list of str or None
        Names of the targets, if they came as a data frame or a named series.
    members_ : list of varprop.Model
        The trained networks, in standardized units, as NumPy arrays.
    shares_ : ndarray
        Of the members in their mixture.
    scaling_ : varprop.Scaling
        Shift and scale of inputs and targets.
    trust_ : float or None
        Share of the network in the prediction; the rest is the constant Gaussian's. None for all.
    noise_std_ : ndarray of shape (n_outputs,) or None
        Standard deviation of the noise (averaged over members as variances), in the target's units;
        None if it depends on the input, or if the objective, as ROPD, does not tell it apart.
    outcome_ : str
        "converged", "max_steps" or "interrupted": of the members' outcomes the worst.
    loss_ : float
        Final training objective per row in standardized units, averaged over members.
    loss_curve_ : ndarray of shape (n_iter,)
        Training loss of every epoch, averaged over the members still training.
    restart_losses_ : ndarray of shape (n_members, n_restarts)
        Final training objective of every start.
    n_iter_ : int
        Epochs trained (by the member that trained longest).
    n_steps_ : int
        Optimization steps of all members; of the epochs in a row, after `partial_fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from varprop import FAWNRegressor
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> y = 1e6 * np.sin(3 * X[:, 0])
    >>> model = FAWNRegressor(max_iter=2000, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, bool((std > 0).all()), model.score(X, y) > 0.95
    ((100,), True, True)
    >>> lower, upper = model.predict_interval(X, coverage=0.9)
    """

    members_: list[Model]
    shares_: np.ndarray
    trust_: float | None
    _epochs: Epochs | None
    _held: Judged | None
    _aside_seed: int
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        *,
        activation: Any = "relu",
        objective: Any = "ropd",
        likelihood: Any = "gaussian",
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
        validation: str | None = "check",
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
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.objective = objective
        self.likelihood = likelihood
        self.weights = weights
        self.output_covariance = output_covariance
        self.propagation = propagation
        self.prior = prior
        self.kl_weight = kl_weight
        self.kl_warmup = kl_warmup
        self.dropout = dropout
        self.drop_connect = drop_connect
        self.input_noise = input_noise
        self.n_restarts = n_restarts
        self.n_members = n_members
        self.validation = validation
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.recipe = recipe
        self.warm_start = warm_start
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose
        self.devices = devices
        self.n_jobs = n_jobs

    # ---- training ---------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_std: Any = None
    ) -> FAWNRegressor:
        """Train on these rows, from a new start unless `warm_start`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), or a source
            Inputs; or a source of inputs and targets, such as `varprop.data.ParquetSource`, for
            more rows than fit into memory, which is given alone.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_rows,), default=None
            A weight of 2 is the row twice, a weight of 0 is no row.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error, in the units of X.

        Returns
        -------
        FAWNRegressor
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        members = self.members_ if self.warm_start and hasattr(self, "members_") else None
        task = self._task(members, X, y, sample_weight, X_std)
        told = self._train(task, members)
        self._held = None  # what it was judged by has served
        self._see(task.data)
        for remark in told:
            warnings.warn(remark, stacklevel=2)
        return self

    def _train(self, task: Task, members: list[Model] | None = None) -> list[Warning]:
        """Train on what was checked; return what the user should be told."""
        squeeze = self._y_ndim == 1
        with jax.enable_x64(self.dtype == "float64"):
            seed = None if members is None else self._aside_seed
            trained = task.train(members, aside_seed=seed)
            self._keep(trained, trained.held(squeeze=squeeze), squeeze)
            return remarks(self, task, trained)

    def _keep(self, trained: Trained, held: list[Predictive | None], squeeze: bool) -> None:
        """Set what a fitted estimator has."""
        fits = trained.fits
        self.members_, self.shares_ = [kept(fit.model) for fit in fits], trained.shares
        self.scaling_, self._epochs = fits[0].scaling, None
        self.trust_, self._held, self._aside_seed = None, None, trained.aside_seed
        self.n_seen_ = None if trained.aside is None else trained.aside.n_different
        if trained.aside is not None and trained.aside.folds:
            self._held = Judged.of(trained.aside, held)
            self.trust_ = trust(self._held, self.scaling_, squeeze=squeeze)
        self.outcome_ = worst(fit.outcome for fit in fits).value
        self.loss_ = float(np.mean([fit.loss for fit in fits]))
        # Those of all rows come first; an epoch of others is shorter.
        whole = fits[: self.n_members]
        self.n_iter_ = max(len(fit.history) for fit in whole)
        self.n_steps_ = sum(fit.n_steps for fit in fits)
        curves = np.full((len(whole), self.n_iter_), np.nan)
        for curve, fit in zip(curves, whole, strict=True):
            curve[: len(fit.history)] = fit.history
        self.loss_curve_ = np.nanmean(curves, axis=0)
        self.restart_losses_ = np.array([fit.restart_losses for fit in fits])

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_std: Any = None
    ) -> FAWNRegressor:
        """Train for one more pass over these rows, from where the model stands.

        The first call on a new estimator starts the network (one start per member) and fixes the
        scaling by its rows. After `fit` it goes on from the fitted model. The state of the
        optimizer is kept from call to call. The rows given are taken as the whole data, so the KL
        divergence counts once per call: where the data comes in B parts, set ``kl_weight=1 / B``.

        Parameters
        ----------
        X, y, sample_weight, X_std
            As in `fit`.

        Returns
        -------
        FAWNRegressor
            The estimator itself.
        """
        before = getattr(self, "members_", None)
        epochs = None if before is None else self._epochs
        task = self._task(before, X, y, sample_weight, X_std)
        with jax.enable_x64(self.dtype == "float64"):
            members, self._epochs, self.loss_ = task.train_epoch(before, epochs)
        if before is None:
            self.scaling_, self.loss_curve_, self.n_iter_ = task.scaling, np.empty(0), 0
            self.trust_ = self.n_seen_ = self.domain_ = self.fingerprints_ = None
            self.shares_ = np.full(len(members), 1 / len(members))
        self.members_, self.outcome_ = members, "max_steps"
        self.loss_curve_ = np.append(self.loss_curve_, self.loss_)
        self.restart_losses_ = np.full((len(members), 1), self.loss_)
        self.n_iter_ += 1
        self.n_steps_ = self._epochs.n_steps
        return self

    def _task(
        self, members: list[Model] | None, X: Any, y: Any, sample_weight: Any, X_std: Any
    ) -> Task:
        """Check all that was given, and return what members, new or old, are trained on."""
        self._validate_params()
        options = self.get_params(deep=False)
        data = training_data(self, X, y, sample_weight, X_std, reset=members is None)
        statistics = Statistics.of(data)
        scaling = statistics.scaling
        if members is None:
            scaled = chosen(AbstractLikelihood, self.likelihood, "likelihood").scales_targets
            return Task(options, data, statistics, scaling if scaled else scaling.raw_targets())
        with jax.enable_x64(self.dtype == "float64"):
            check_goes_on(members, options, self.n_features_in_)
        return Task(options, data, statistics, self.scaling_)

    @property
    def noise_std_(self) -> np.ndarray | None:
        """Standard deviation of the noise, if it is told apart and does not depend on the input."""
        found = [member.likelihood.noise_var for member in self.members_]
        if any(var is None for var in found) or not self._identifies_noise:
            return None
        mean_var = np.mean([np.asarray(var, np.float64) for var in found], axis=0)
        return np.sqrt(mean_var) * self.scaling_.y_scale

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> Predictive:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error.
        X_cov : array-like of shape (n_rows, n_features, n_features), default=None
            Its covariances, or one for all rows, where errors of a row are correlated.

        Returns
        -------
        Predictive
            In the units of the target; a mixture if there are several members.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        network = self._predict_network(X, x_var)
        if self.trust_ is None:
            return network
        seen, squeeze = self.n_seen_, network.squeeze
        constant = constant_gaussian(self.scaling_, len(X), n_seen=seen, squeeze=squeeze)
        return Predictive.mixture([network, constant], [self.trust_, 1 - self.trust_])

    def _predict_network(self, X: np.ndarray, x_var: np.ndarray | None) -> Predictive:
        """Return what the members say, whatever the rows set aside said of them."""
        squeeze, parts = self._y_ndim == 1, []
        for member in self.members_:
            with jax.enable_x64(member_dtype(member) == np.float64):
                model, scaling = to_jax(member), self.scaling_
                parts.append(propagate(model, X, x_var=x_var, scaling=scaling, squeeze=squeeze))
        found = parts[0] if len(parts) == 1 else Predictive.mixture(parts, self.shares_)
        return found if self._identifies_noise else found.unsplit()

    @property
    def _identifies_noise(self) -> bool:
        return chosen(AbstractObjective, self.objective, "objective").identifies_noise
