"""FAWNRegressor: fast adaptive weight noise behind scikit-learn's interface."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop.data.arrays import Scaling
from varprop.estimators.inputs import (
    TrainingRows,
    check_input_std,
    check_inputs,
    check_predicted,
    target_names,
    training_rows,
)
from varprop.estimators.members import (
    EpochState,
    Trained,
    check_goes_on,
    member_dtype,
    noise_var,
    to_jax,
    to_numpy,
    train_members,
    train_one_epoch,
)
from varprop.estimators.methods import PredictiveMethods
from varprop.estimators.options import (
    check_options,
    epoch_recipe,
    make_objective,
    make_recipe,
    model_factory,
)
from varprop.learning.model import Model
from varprop.predictive.distribution import Predictive
from varprop.training.prediction import propagate


class FAWNRegressor(PredictiveMethods, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A neural network that gives a whole predictive distribution in one forward pass.

    Every weight has a mean and a variance; both are trained and propagated in closed form, without
    sampling (Bayer et al., "Fast Adaptive Weight Noise"). Inputs and targets are standardized
    inside; results are in the units of the data and do not depend on the target's scale.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units per hidden layer. With one hidden layer the propagated moments are exact; deeper
        networks treat the units of a layer as independent.
    activation : str or AbstractActivation, default="relu"
        "relu", "leaky_relu", "identity", "logistic", "tanh", "erf", "gelu", "silu" or "softplus".
    objective : {"ropd", "vi", "sampled-vi"} or AbstractObjective, default="ropd"
        Regularized optimization of the predictive distribution, variational inference in closed
        form, or variational inference by sampling weights (for reference).
    weights : {"gaussian", "bernoulli"}, default="gaussian"
        Distribution of a weight. Bernoulli weights have half the parameters.
    output_covariance : bool, default=False
        Model the covariance between outputs (Co-FAWN).
    prior : {"learned", "per-layer", "fixed"} or AbstractPrior, default="learned"
        One learned prior for all weights (the paper's), one per layer, or a fixed one (standard
        normal; probability 1/2 for Bernoulli weights).
    kl_weight : float, default=1.0
        Factor of the KL divergence to the prior; 1 is the paper's objective.
    kl_warmup : "auto" or int, default="auto"
        Epochs over which the KL's factor rises from 0. "auto" is `Recipe`'s default, shortened in
        proportion where `max_iter` is. Every other restart trains without warm-up.
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
    batch_size : "auto", int or None, default="auto"
        Rows per step; None takes all rows. "auto" is `Recipe`'s default. Data of at most so many
        rows is one full batch.
    learning_rate_init : float, default=None
        Of Adam; `Recipe`'s default unless given.
    max_iter : int, default=None
        Epochs at most; unless given as many as make `Recipe`'s default number of steps.
    tol : float, default=None
        Relative improvement of the training loss below which a window of epochs is flat; 0 trains
        all epochs; `StopRule`'s default unless given.
    n_iter_no_change : int, default=None
        Epochs without improvement after which training ends. They are divided into (at most ten)
        windows over which the loss is averaged, and all must be flat; `StopRule`'s default, which
        counts steps, unless given.
    warm_start : bool, default=False
        `fit` goes on from the members and the scaling of the last call, one start each. Otherwise
        `fit` always starts anew.
    random_state : int, RandomState or None, default=None
        Source of the starts and of the order of rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the network; results are float64 in either case.
    verbose : bool, default=False
        Show a progress bar.
    n_jobs : int, default=None
        Lanes (members and restarts) trained at a time, on threads; -1 for all cores.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    n_outputs_ : int
        Number of targets.
    target_names_ : list of str or None
        Names of the targets, if they came as a data frame or a named series.
    members_ : list of varprop.Model
        The trained networks, in standardized units, with NumPy arrays.
    scaling_ : varprop.Scaling
        Shift and scale of inputs and targets.
    noise_std_ : ndarray of shape (n_outputs,)
        Standard deviation of the noise (averaged over members as variances), in the target's units.
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
    scaling_: Scaling
    _epoch_state: EpochState | None
    _epoch_seed: int

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        *,
        activation: Any = "relu",
        objective: Any = "ropd",
        weights: str = "gaussian",
        output_covariance: bool = False,
        prior: Any = "learned",
        kl_weight: float = 1.0,
        kl_warmup: Any = "auto",
        dropout: float = 0.0,
        drop_connect: float = 0.0,
        input_noise: float = 0.0,
        n_restarts: int = 1,
        n_members: int = 1,
        batch_size: Any = "auto",
        learning_rate_init: float | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        n_iter_no_change: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: str = "float32",
        verbose: bool = False,
        n_jobs: int | None = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.objective = objective
        self.weights = weights
        self.output_covariance = output_covariance
        self.prior = prior
        self.kl_weight = kl_weight
        self.kl_warmup = kl_warmup
        self.dropout = dropout
        self.drop_connect = drop_connect
        self.input_noise = input_noise
        self.n_restarts = n_restarts
        self.n_members = n_members
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose
        self.n_jobs = n_jobs

    # ---- training ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_std: Any = None) -> FAWNRegressor:
        """Train on these rows, from a new start unless `warm_start`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_rows,), default=None
            A weight of 2 is the row twice, a weight of 0 is no row.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error, in the units of X. The
            error is propagated through the network, whose hidden units count as independent. Units
            that share an uncertain input are not: with hidden layers the spread this adds is a
            rough approximation (see docs/regressor.md), without any it is exact.

        Returns
        -------
        FAWNRegressor
            The estimator itself.
        """
        options = self.get_params(deep=False)
        check_options(options)
        going_on = self.warm_start and hasattr(self, "members_")
        rows = training_rows(self, X, y, sample_weight, X_std, reset=not going_on)
        if going_on:
            self._check_same_targets(rows)
            scaling = self.scaling_
        else:
            scaling = rows.scaling()
        with jax.enable_x64(self.dtype == "float64"):
            init = model_factory(options, self.n_features_in_, rows.y.shape[1])
            trained = train_members(
                init,
                rows.standardized(scaling, self.dtype),
                make_objective(self.objective),
                key=self._key(),
                recipe=make_recipe(options, len(rows.X)),
                n_members=self.n_members,
                n_restarts=self.n_restarts,
                n_threads=effective_n_jobs(self.n_jobs),
                progress=bool(self.verbose),
                floor=rows.noise_floor(scaling),
                start=self._last_members(init) if going_on else None,
            )
        self.n_outputs_, self._y_ndim = rows.y.shape[1], rows.y_ndim
        self.target_names_ = target_names(y)
        return self._take(trained, scaling)

    def _take(self, trained: Trained, scaling: Scaling) -> FAWNRegressor:
        self.scaling_, self.members_ = scaling, trained.members
        self.outcome_, self.loss_ = trained.outcome, trained.loss
        self.loss_curve_, self.restart_losses_ = trained.loss_curve, trained.restart_losses
        self.n_iter_ = trained.n_epochs
        self._set_noise_std()
        self._epoch_state = None
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_std: Any = None
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
        options = self.get_params(deep=False)
        check_options(options)
        new = not hasattr(self, "members_")
        rows = training_rows(self, X, y, sample_weight, X_std, reset=new)
        state = None if new else self._epoch_state
        with jax.enable_x64(self.dtype == "float64"):
            init = model_factory(options, self.n_features_in_, rows.y.shape[1])
            if new:
                scaling, seed = rows.scaling(), self._seed()
                keys = jax.random.split(jax.random.key(seed), self.n_members)
                members = [to_numpy(init(key)) for key in keys]
            else:
                self._check_same_targets(rows)
                scaling, members = self.scaling_, self._last_members(init)
                seed = self._seed() if state is None else self._epoch_seed
            warm_up = new if state is None else state.warm_up
            members, state, loss = train_one_epoch(
                members,
                rows.standardized(scaling, self.dtype),
                make_objective(self.objective),
                key=jax.random.fold_in(jax.random.key(seed), 1),
                recipe=epoch_recipe(options, len(rows.X), warm_up=warm_up),
                floor=rows.noise_floor(scaling),
                state=state,
            )
        if new:
            self.scaling_, self.n_outputs_, self._y_ndim = scaling, rows.y.shape[1], rows.y_ndim
            self.target_names_ = target_names(y)
            self.loss_curve_, self.n_iter_ = np.empty(0), 0
        self.members_, self._epoch_state, self._epoch_seed = members, state, seed
        self.loss_, self.outcome_ = loss, "max_steps"
        self.loss_curve_ = np.append(self.loss_curve_, loss)
        self.restart_losses_ = np.full((len(members), 1), loss)
        self.n_iter_ += 1
        self._set_noise_std()
        return self

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _key(self) -> jax.Array:
        return jax.random.key(self._seed())

    def _check_same_targets(self, rows: TrainingRows) -> None:
        if rows.y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {rows.y.shape[1]} targets, but the model was fitted with {self.n_outputs_}."
            )

    def _last_members(self, init: Callable[[jax.Array], Model]) -> list[Model]:
        if len(self.members_) != self.n_members:
            raise ValueError(
                f"n_members is {self.n_members}, but the model to go on from has "
                f"{len(self.members_)} members: fit anew."
            )
        check_goes_on(self.members_[0], init)
        return self.members_

    def _set_noise_std(self) -> None:
        mean_var = np.mean([noise_var(member) for member in self.members_], axis=0)
        self.noise_std_ = np.sqrt(mean_var) * self.scaling_.y_scale

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(self, X: Any, X_std: Any = None) -> Predictive:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error.

        Returns
        -------
        Predictive
            In the units of the target; a mixture if there are several members.
        """
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        std = check_input_std(X_std, X)
        x_var = None if std is None else std**2
        parts = []
        for member in self.members_:
            with jax.enable_x64(member_dtype(member) == np.float64):
                out = propagate(to_jax(member), X, x_var=x_var, scaling=self.scaling_)
            check_predicted(out)
            if self._y_ndim == 1:
                parts.append(Predictive.gaussian(out.mean[:, 0], out.var[:, 0], out.noise_var))
            elif out.cov is None:
                parts.append(Predictive.gaussian(out.mean, out.var, out.noise_var))
            else:
                parts.append(Predictive.joint(out.mean, out.cov, out.noise_var))
        return parts[0] if len(parts) == 1 else Predictive.mixture(parts)

    # ---- files ------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one ``.safetensors`` file, atomically.

        The file holds arrays and a JSON header, no code, and a model loaded from it predicts the
        same to the bit. The state of the optimizer is not kept: `partial_fit` of a loaded model
        starts with a new one.

        Parameters
        ----------
        path
            Where to.
        """
        from varprop.files.regressor import save_regressor

        check_is_fitted(self)
        save_regressor(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FAWNRegressor:
        """Read a model that `save` wrote; a damaged or foreign file is a `ModelFileError`.

        Parameters
        ----------
        path
            The file. Reading it runs no code, whoever made it.
        """
        from varprop.files.regressor import load_regressor

        return load_regressor(path)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an ONNX graph that runs without Python; needs ``varprop[onnx]``.

        The graph takes ``X``, double of shape (rows, n_features) in the units of the training data,
        and gives ``mean`` and ``std``, double of shape (rows, n_outputs), and ``cov`` of shape
        (rows, n_outputs, n_outputs) if the covariance between outputs is modeled. An ensemble gives
        its mixture's moments.

        Parameters
        ----------
        path
            Where to.
        """
        from varprop.files.onnx import export_onnx

        check_is_fitted(self)
        export_onnx(self, path)
