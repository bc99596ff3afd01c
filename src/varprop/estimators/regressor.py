"""FAWNRegressor: fast adaptive weight noise behind scikit-learn's interface."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from varprop.estimators.base import AbstractRegressor
from varprop.estimators.inputs import rows_to_predict
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.options import CONSTRAINTS
from varprop.predictive.contract import AbstractNumeric
from varprop.training.recipe import Recipe


class FAWNRegressor(AbstractNetwork, AbstractRegressor):
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
    likelihood : str or class of AbstractLikelihood, default="gaussian"
        What the targets are. Numbers: "gaussian", noise of one learned size per target;
        "heteroscedastic", of a size that depends on the input; "student-t", with heavy tails;
        "yeo-johnson", a Gaussian behind a learned transform, for skewed targets; "log-normal", for
        positive ones. Counts: "poisson", "negative-binomial". Bounds: "censored",
        "censored-log-normal", y of shape (n_rows, 2), lower and upper, equal where the target is
        known, -inf and inf where there is no bound. Or a class of your own.
    weights : {"gaussian", "bernoulli"}, default="gaussian"
        Distribution of a weight. Bernoulli weights have half the parameters.
    output_covariance : bool, default=False
        Model the covariance between outputs (Co-FAWN).
    propagation : {"first-order", "independent", "second-order"}, default="first-order"
        What is made of the correlation between units of a layer (`varprop.nn.Sequential`).
    row_covariance : {"weights", "gauss-newton"}, default="weights"
        What rows have in common, for totals: the weights as they are learned, independent, or by
        what the rows of `fit` say of all together; up to 4,000 of them (docs/how-to/totals.md).
    prior : {"learned", "per-layer", "fixed"} or AbstractPrior, default="learned"
        One learned prior for all weights (the paper's), one per layer, or a fixed standard normal
        (probability 1/2 for Bernoulli weights).
    kl_weight : float, default=None
        Factor of the KL divergence to the prior; `recipe`'s unless given, which is 1, the paper's
        objective.
    kl_warmup : "auto" or int, default="auto"
        Epochs over which the KL's factor rises from 0. "auto" is `Recipe`'s default, shortened as
        `max_iter` is. Every other restart trains without if the recipe says so (`alternate`).
    dropout, drop_connect : float, default=0.0
        Probability of dropping a hidden unit or a weight, averaged over, also in `predict`.
    input_noise : float, default=0.0
        Standard deviation of noise on every input, in units of that input's own.
    n_restarts, n_members : int, default=1
        Networks in the ensemble, predicted as a mixture of Gaussians, and starts for each, of which
        the one with the lowest final training objective is kept.
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
        Of Adam; `Recipe`'s unless given.
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
        Members and restarts trained at a time, each on one core; -1 for all cores. A network alone
        that is large takes all cores in any case.

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
    constant_numbers_ : ndarray
        What the constant model keeps of the targets besides their mean and spread, often nothing.
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
    >>> model = FAWNRegressor(max_iter=6000, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, bool((std > 0).all()), model.score(X, y) > 0.95
    ((100,), True, True)
    >>> lower, upper = model.predict_interval(X, coverage=0.9)
    """

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
        row_covariance: str = "weights",
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
        self._store(locals())

    def _options(self) -> dict[str, Any]:
        return self.get_params(deep=False)

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
    ) -> FAWNRegressor:
        """Train on these rows, from a new start unless `warm_start`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), or a source
            Inputs; or a source of inputs and targets, such as `varprop.data.ParquetSource`, for
            more rows than fit into memory, which is given alone.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Targets; bounds of theirs for likelihoods that take such.
        sample_weight : array-like of shape (n_rows,), default=None
            A weight of 2 is the row twice, a weight of 0 is no row.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error, in the units of X.
        X_cov : array-like of shape (n_rows, n_features, n_features), default=None
            Its covariances, or one for all rows, where errors of a row are correlated.
        exposure : array-like of shape (n_rows,), default=None
            Of counts: what a row's rate is multiplied by (hours, people, area); 1 unless given.
        groups : array-like of shape (n_rows,), default=None
            Labels of rows that belong together (a patient, a machine, a day): those of one group
            are set aside together or not at all, as identical rows are. Of a source, in its order.
        times : array-like of shape (n_rows,), default=None
            Numbers or dates, instead of groups: what is set aside are blocks of time. With
            ``validation="check"`` these are the last fifth of the rows.

        Returns
        -------
        FAWNRegressor
            The estimator itself. After Ctrl-C it is what there was then, with a warning.
        """
        self._fit(X, y, sample_weight, X_std, X_cov, exposure, groups=groups, times=times)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_std: Any = None,
        X_cov: Any = None,
        *,
        exposure: Any = None,
    ) -> FAWNRegressor:
        """Train for one more pass over these rows, from where the model stands.

        The first call on a new estimator starts the network (one start per member) and fixes the
        scaling by its rows. After `fit` it goes on from the fitted model. The state of the
        optimizer is kept from call to call. The rows given are taken as the whole data, so the KL
        divergence counts once per call: where the data comes in B parts, set ``kl_weight=1 / B``.

        Parameters
        ----------
        X, y, sample_weight, X_std, X_cov, exposure
            As in `fit`.

        Returns
        -------
        FAWNRegressor
        """
        self._partial_fit(X, y, sample_weight, X_std, X_cov, exposure)
        return self

    @property
    def noise_std_(self) -> np.ndarray | None:
        """Standard deviation of the noise, if it is told apart and does not depend on the input."""
        found = [member.likelihood.noise_var for member in self.members_]
        if any(var is None for var in found) or not self._identifies_noise:
            return None
        mean_var = np.mean([np.asarray(var, np.float64) for var in found], axis=0)
        return np.sqrt(mean_var) * self.scaling_.y_scale[: self.n_outputs_]

    # ---- prediction -------------------------------------------------------------------------

    def predict_dist(
        self, X: Any, X_std: Any = None, *, X_cov: Any = None, exposure: Any = None
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

        Returns
        -------
        AbstractNumeric
            In the units of the target; a mixture if there are several members.
        """
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        return self._exposed(self._predict_mixed(X, x_var), exposure)
