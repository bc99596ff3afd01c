"""A whole fitted model as a plan: networks, a linear model, a constant, their mixture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from varprop.data.domain import Domain
from varprop.data.statistics import Scaling
from varprop.plans.ends import CLASS_ENDS, ENDS, Component, Probabilities
from varprop.plans.propagation import propagated
from varprop.plans.steps import Activation, Dense, Network
from varprop.predictive.blend import mixture
from varprop.predictive.categories import Categories
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.kernels import UnknownKernel
from varprop.predictive.simple import LinearModel, constant_gaussian, in_units
from varprop.predictive.warped import Warped
from varprop.predictive.warps import YeoJohnson

# Numbers of a layer at once: few enough to stay in the processor's cache, many enough that NumPy's
# calls do not count.
_AT_ONCE = 2**15
_BY_ROW = (
    "A plan predicts row by row: what rows have in common, and where their variance comes from, "
    "is known to the model that it was made of."
)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Networks:
    """Networks of one kind, mixed by their shares.

    Attributes
    ----------
    members
        The networks.
    identified
        Whether the variances of model and noise are told apart.
    """

    members: tuple[Network, ...]
    identified: bool


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """A fitted estimator, flat: all that a prediction needs, and NumPy runs it.

    It has the names of a fitted `StackedRegressor` or `StackedClassifier`, so that whatever
    predicts takes either.

    Attributes
    ----------
    scaling_
        Of inputs and targets; all else is in standardized units.
    parts
        What is mixed, by name: networks, a linear model, or None for the constant model.
    weights_
        Of the parts, by name; their sum is 1.
    n_seen_
        Different training rows, if they were counted.
    squeeze
        Whether a single target comes without an axis of its own.
    domain_
        Where the training rows lie, if it is known.
    feature_names_in_, target_names_
        If there are any.
    classes_, constant_numbers_
        Labels and frequencies, shape (classes,), if the target is a class.

    Examples
    --------
    >>> step = Dense(np.ones((1, 2)), np.full((1, 2), 0.25), None, None, joint=False)
    >>> end = {"noise_var": np.array([1.0])}
    >>> network = Network((step,), "first-order", "GaussianLikelihood", end)
    >>> parts = {"network": Networks((network,), identified=True)}
    >>> plan = Plan(Scaling.identity(2, 1), parts, {"network": 1.0}, squeeze=True)
    >>> found = plan.predict_dist(np.array([[3.0, 4.0]]))
    >>> found.mean.tolist(), found.model_var.tolist(), found.noise_var.tolist()
    ([7.0], [6.25], [1.0])
    """

    scaling_: Scaling
    parts: Mapping[str, Networks | LinearModel | None]
    weights_: Mapping[str, float]
    squeeze: bool
    n_seen_: int | None = None
    domain_: Domain | None = None
    feature_names_in_: tuple[str, ...] | None = None
    target_names_: tuple[str, ...] | None = None
    classes_: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))
    constant_numbers_: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        """Return the weights of the parts, not their numbers."""
        return f"Plan({dict(self.weights_)})"

    @property
    def n_features_in_(self) -> int:
        """Number of inputs."""
        return len(self.scaling_.x_shift)

    @property
    def n_outputs_(self) -> int:
        """Number of targets."""
        return len(self.scaling_.y_shift)

    @property
    def tells_apart(self) -> dict[str, bool]:
        """Whether networks tell their own doubt from noise, by name."""
        parts = self.parts.items()
        return {name: part.identified for name, part in parts if isinstance(part, Networks)}

    @property
    def _ordered(self) -> bool:
        """Whether classes have an order."""
        networks = [part for part in self.parts.values() if isinstance(part, Networks)]
        return any(each.likelihood == "Ordinal" for part in networks for each in part.members)

    def predict_dist(
        self, X: np.ndarray, X_std: np.ndarray | None = None, *, model: str | None = None
    ) -> AbstractPredictive:
        """Return the predictive distribution of rows.

        Parameters
        ----------
        X
            Shape (rows, features), in the units of the training data.
        X_std
            Standard deviations of the inputs' errors, of the same shape; none unless given.
        model
            One of the parts alone; the mixture unless given.

        Raises
        ------
        ValueError
            If a prediction is not finite.
        """
        x_var = None if X_std is None else np.square(X_std)
        weights = {name: weight for name, weight in self.weights_.items() if weight > 0}
        weights = weights if model is None else {model: 1.0}
        found = [self._predict(self.parts[name], X, x_var) for name in weights]
        return mixture(found, list(weights.values()))

    def _predict(
        self, part: Networks | LinearModel | None, X: np.ndarray, x_var: np.ndarray | None
    ) -> Any:
        if part is None:
            n, seen = len(X), self.n_seen_
            if len(self.classes_):
                same = np.tile(self.constant_numbers_, (n, 1))
                return Categories(same, classes=self.classes_, ordered=self._ordered)
            return constant_gaussian(self.scaling_, n, n_seen=seen, squeeze=self.squeeze)
        if isinstance(part, LinearModel):
            return part.predict_dist(X, x_var, squeeze=self.squeeze)
        scaled, scaled_var = self.scaling_.inputs(X, x_var, np.float64)
        found, shares = [], []
        for network in part.members:
            for each in self._in_blocks(network, scaled, scaled_var):
                found.append(self._in_units(each, X))
                shares.append(network.share * each.weight)
        mixed = mixture(found, shares)
        return mixed if part.identified else mixed.unsplit()

    def _in_units(self, part: Component | Probabilities, X: np.ndarray) -> Any:
        """Return what a network says of rows, for the targets as they are."""
        if isinstance(part, Probabilities):
            return Categories(
                part.probability,
                part.aleatoric[:, 0],
                classes=self.classes_,
                ordered=self._ordered,
            )
        spread, scaling = part.var if part.cov is None else part.cov, self.scaling_
        if part.power is not None:
            scaling = Scaling.identity(0, self.n_outputs_)
        found = in_units(part.mean, spread, part.noise, scaling, squeeze=self.squeeze)
        found = dataclasses.replace(found, between=(UnknownKernel(X, None, None, _BY_ROW),))
        if part.power is None:
            return found
        return Warped(found, YeoJohnson(part.power, self.scaling_.y_shift, self.scaling_.y_scale))

    def _in_blocks(
        self, network: Network, x: np.ndarray, x_var: np.ndarray | None
    ) -> Iterator[Component | Probabilities]:
        """Yield the components of a network, its rows taken some at a time."""
        widest = max((len(s.weight) for s in network.steps if isinstance(s, Dense)), default=1)
        nodes = [s.numbers.get("n_nodes", 1) for s in network.steps if isinstance(s, Activation)]
        size = max(1, int(_AT_ONCE / max(widest, x.shape[1]) / max(nodes, default=1)))
        blocks = []
        for start in range(0, max(len(x), 1), size):
            rows = slice(start, start + size)
            var = None if x_var is None else x_var[rows]
            with np.errstate(all="ignore"):  # what overflows is found out at the end
                blocks.append(self.components(network, x[rows], var))
        for parts in zip(*blocks, strict=True):
            kind = type(parts[0])
            yield parts[0] if len(parts) == 1 else kind(*map(_joined, zip(*parts, strict=True)))

    def components(self, network: Network, x: Any, x_var: Any = None) -> Sequence[Any]:
        """Return what one network says of standardized rows, as `plans.ends` has it."""
        out = propagated(network.steps, network.propagation, x, x_var)
        ends = CLASS_ENDS if len(self.classes_) else ENDS
        return ends[network.likelihood].parts(out, network.numbers)


def _joined(blocks: tuple[Any, ...]) -> Any:
    """Put rows together; what is the same for all of them, or missing, stays as it is."""
    first = blocks[0]
    return np.concatenate(blocks) if np.ndim(first) > 1 else first
