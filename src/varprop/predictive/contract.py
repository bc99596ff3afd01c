"""What every prediction can be asked, whatever its targets are: numbers, counts or classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import RandomState, as_alpha, check_share
from varprop.predictive.mixtures import Array, ArrayLike

P = TypeVar("P", bound="AbstractPredictive")
N = TypeVar("N", bound="AbstractNumeric")

NOT_IDENTIFIED = (
    "Model and noise variance are not told apart here, since the objective (such as ROPD) sees "
    "only their sum, `var`: train with objective='vi' to have them apart."
)


class AbstractPredictive(ABC):
    """The predictive distributions of some rows: what judging and mixing models needs.

    Attributes
    ----------
    squeeze
        Whether a single target has no axis of its own.
    """

    squeeze: bool

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows ``n``."""

    @abstractmethod
    def __getitem__(self: P, rows: Any) -> P:
        """Return some rows (int, slice, mask or index array); one row keeps its axis."""

    @classmethod
    @abstractmethod
    def mixture(cls: type[P], members: Sequence[P], weights: ArrayLike | None = None) -> P:
        """Return the mixture of predictions of the same rows and of this kind.

        Parameters
        ----------
        members
            At least one.
        weights
            Shape (members,) or (members, n), not negative, normalized here; equal unless given.
        """

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log density, or log probability, of each row's targets together."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> Array:
        """Return a quadratic proper score of each row (and target), lower is better.

        Of numbers it is the continuous ranked probability score.
        """

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows


class AbstractNumeric(AbstractPredictive):
    """Predictive distributions of ``n`` rows with ``d`` targets that are numbers.

    "Public shape" is ``(n,)`` if the target was one-dimensional and ``(n, d)`` if not. Rows and
    outputs come first, all other axes after them; see `Predictive`.

    Attributes
    ----------
    identified
        Whether model and noise part are told apart; `model_var` and `noise_var` refuse if not.
    """

    identified: bool
    #: Whether targets are whole numbers, each with a probability of its own.
    is_discrete: ClassVar[bool] = False

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs ``d``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The public shape: ``(n,)`` if the target was one-dimensional, else ``(n, d)``."""
        return (self.n_rows,) if self.squeeze else (self.n_rows, self.n_outputs)

    @property
    @abstractmethod
    def mean(self) -> Array:
        """Mean, in the public shape."""

    @property
    @abstractmethod
    def var(self) -> Array:
        """Total variance, in the public shape."""

    @property
    @abstractmethod
    def std(self) -> Array:
        """Total standard deviation, in the public shape."""

    @property
    @abstractmethod
    def model_var(self) -> Array:
        """Variance of what the model is unsure of: of the target's mean given the weights."""

    @property
    @abstractmethod
    def noise_var(self) -> Array:
        """Variance of the noise: of the target given the weights, on the average."""

    @property
    @abstractmethod
    def model_std(self) -> Array:
        """Root of `model_var`."""

    @property
    @abstractmethod
    def noise_std(self) -> Array:
        """Root of `noise_var`."""

    @abstractmethod
    def unsplit(self: N) -> N:
        """Return the same distribution as one whose model and noise part are not told apart."""

    @abstractmethod
    def marginal(self: N, outputs: int | Iterable[int]) -> N:
        """Return the distribution of some outputs, whatever the others are."""

    @abstractmethod
    def cdf(self, y: ArrayLike, *, left: bool = False) -> Array:
        """Return ``P(Y <= y)``, or ``P(Y < y)`` if `left`, of each output by itself.

        Parameters
        ----------
        y : float or array of shape ``(*public, ...)``
        left : bool, default False
            The two differ where a single value has a probability of its own.

        Returns
        -------
        array of the shape of `y` (the public shape for a number)
        """

    @abstractmethod
    def quantile(self, alpha: ArrayLike) -> Array:
        """Return the smallest value whose cdf reaches `alpha`, for each output by itself.

        Parameters
        ----------
        alpha : float or array
            Probabilities strictly between 0 and 1.

        Returns
        -------
        array of shape ``(*public, *alpha.shape)``
        """

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the central interval with equal probability outside on either side.

        Parameters
        ----------
        coverage : float, default 0.9
            Probability inside, strictly between 0 and 1.

        Returns
        -------
        lower, upper : arrays of the public shape

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> lower, upper = Predictive.gaussian([0.0], [1.0], 0.0).interval(0.95)
        >>> print(lower.round(2), upper.round(2))
        [-1.96] [1.96]
        """
        check_share(coverage, "coverage")
        return self.quantile((1.0 - coverage) / 2.0), self.quantile((1.0 + coverage) / 2.0)

    @abstractmethod
    def marginal_logpdf(self, y: ArrayLike) -> Array:
        """Log density of each output by itself, of the shape of `y`; see `cdf` for `y`."""

    def pdf(self, y: ArrayLike) -> Array:
        """Joint density of all outputs of a row: ``exp(logpdf(y))``, of shape ``(n, ...)``.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> Predictive.gaussian([0.0], [1.0], 0.0).pdf([0.0]).round(4).tolist()
        [0.3989]
        """
        with mixtures.quiet():
            return np.exp(self.logpdf(y))

    @abstractmethod
    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw independent rows: array of shape ``(*public, n_samples)``."""

    def to_frame(
        self,
        library: str = "pandas",
        *,
        interval: float = 0.9,
        quantiles: Sequence[float] = (),
        targets: Sequence[str] | None = None,
    ) -> Any:
        """Return the predictions as a data frame: the columns that `varprop predict` writes.

        Parameters
        ----------
        library : {"pandas", "polars"}, default="pandas"
            Of the frame; it must be installed.
        interval : float, default=0.9
            Probability between ``lower`` and ``upper``.
        quantiles : sequence of float, default=()
            Probabilities of further columns.
        targets : sequence of str, default=None
            Names of several targets, which begin those of their columns: "y0", "y1" and so on
            unless given.

        Returns
        -------
        DataFrame
            ``mean``, ``std``, ``model_std`` and ``noise_std`` where these are told apart, and
            ``lower`` and ``upper`` of every target.

        Examples
        --------
        >>> from varprop.predictive import Predictive
        >>> p = Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 4.0)
        >>> print(p.unsplit().to_frame().round(2))
           mean  std  lower  upper
        0   1.0  2.0  -2.29   4.29
        1   2.0  2.0  -1.29   5.29
        """
        # Imported late: it is written in terms of this class.
        from varprop.predictive.columns import as_frame, is_joint, number_names, number_values

        check_share(interval, "interval")
        quantiles = np.atleast_1d(as_alpha(quantiles)).tolist() if len(quantiles) else []
        named = [f"y{i}" for i in range(self.n_outputs)] if targets is None else list(targets)
        if len(named) != self.n_outputs:
            raise ValueError(f"there are {len(named)} targets named, but {self.n_outputs} outputs.")
        names = number_names(
            named,
            quantiles,
            identified=self.identified,
            joint=is_joint(self),
            counts=self.is_discrete,
        )
        if len(set(names)) < len(names):
            raise ValueError(f"two columns would have one name, among {', '.join(names)}.")
        values = number_values(self, quantiles, interval=interval)
        return as_frame(dict(zip(names, values.T, strict=True)), library)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first rows, and a strip for each."""
        from varprop.report.notebook import prediction_html

        return prediction_html(self)

    # ---- shapes -----------------------------------------------------------------------------

    def _public(self, values: Array) -> Array:
        """Return ``(..., n, d)`` with rows and outputs first, in the public shape."""
        values = np.moveaxis(values, (-2, -1), (0, 1))
        return values[:, 0] if self.squeeze else values

    def _arranged(self, y: ArrayLike) -> Array:
        """Return ``y`` as ``(..., n, d)``; a number serves all rows and outputs."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 0:
            return np.broadcast_to(y, (self.n_rows, self.n_outputs))
        if y.shape[: len(self.shape)] != self.shape:
            raise ValueError(f"y has shape {y.shape} but the predictive has shape {self.shape}.")
        y = y[:, None] if self.squeeze else y
        return np.moveaxis(y, (0, 1), (-2, -1))

    def _identified(self, part: Array) -> Array:
        if not self.identified:
            # So that hasattr(prediction, "model_var") tells as well.
            raise AttributeError(NOT_IDENTIFIED)
        return part


class AbstractContinuous(AbstractNumeric):
    """Predictive distributions of real numbers: those that can be mixed with one another.

    What is said of several rows together, and of sources of variance, follows from means and
    covariances alone: a sum of many rows is nearly Gaussian, whatever each of them is.
    """

    @abstractmethod
    def second_order(self) -> Any:
        """Return the `Predictive` with the same members' means and covariances of rows."""

    def combine(self, weights: ArrayLike) -> AbstractContinuous:
        """Return the distribution of linear combinations of rows; see `Predictive.combine`."""
        return self.second_order().combine(weights)

    def total(self) -> AbstractContinuous:
        """Return the distribution of the sum over all rows, as one of one row."""
        return self.second_order().total()

    def average(self) -> AbstractContinuous:
        """Return the distribution of the mean over all rows, as one of one row."""
        return self.second_order().average()

    def rows_cov(self) -> Array:
        """Return the covariance between rows, with the noise on its diagonal."""
        return self.second_order().rows_cov()

    @property
    def output_cov(self) -> Array:
        """Total covariance of the outputs, always of shape ``(n, d, d)``."""
        return self.second_order().output_cov

    def budget(self, feature_names: Sequence[str] | None = None) -> Any:
        """Return the `Budget`: where each row's variance comes from; see `Predictive.budget`."""
        return self.second_order().budget(feature_names)

    @abstractmethod
    def survival(self, y: ArrayLike) -> Array:
        """Return ``P(Y > y)``, exact also where it is tiny; see `cdf` for shapes."""

    @abstractmethod
    def knots(self) -> tuple[Array, Array]:
        """Return numbers at which to cut integrals of the cdf, and how far apart they must be.

        In panels that are no wider than is said at any number in them the cdf is as smooth as a
        polynomial; outside all it is 0 or 1. Both have shape (m, n, d).
        """
