"""What every layer is: an analytic form and a sampling form of the same random function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.gaussian import Gaussian, JointGaussian

PlainLayer = Callable[[Float[Array, "*batch n"]], Float[Array, "*batch m"]]


class Adjoint(NamedTuple):
    """Derivatives of a network's k output means by the moments of what comes out of a layer.

    Attributes
    ----------
    mean
        By the means, shape (units, k, rows or 1); None stands for the identity.
    var
        By the variances, likewise; None for none.
    sources
        Of what goes into a layer: independent sources of variance inside it, besides its `own`, as
        pairs of their variances, (n, rows or 1), and the derivatives by them, (n, k, rows).
    """

    mean: Any = None
    var: Any = None
    sources: Sequence[tuple[Any, Any]] = ()


class Partials(NamedTuple):
    """Moments after a function of single entries, and their derivatives by those before it.

    Attributes
    ----------
    out
        Mean and variance.
    slope, bend
        Derivatives of the mean: by the mean, E[f'], and by the variance, E[f''] / 2.
    tilt, gain
        Derivatives of the variance: by the mean, and by the variance.
    """

    out: Gaussian
    slope: Float[Array, "..."]
    bend: Float[Array, "..."]
    tilt: Float[Array, "..."]
    gain: Float[Array, "..."]


class Linearized(NamedTuple):
    """A layer at an uncertain input: its output, and what of it is linear in that input.

    All of it has rows as columns. The variance of an output is `carry` of the inputs' variances
    plus `own`, for independent inputs: an output's covariance with anything below it goes
    through the linear part alone, to first order.

    Attributes
    ----------
    out
        Mean and variance of the outputs, shape (outputs, rows), the inputs taken as independent.
    own
        What of its variance no linear function of the inputs carries, shape (outputs, rows).
    pull
        Transposed derivative of the outputs' moments by the inputs' moments: the `Adjoint` of what
        comes out to that of what comes in.
    carry
        The squared derivative of the means: variances of inputs, (..., inputs, rows), to
        (..., outputs, rows).
    """

    out: Gaussian
    own: Float[Array, "m rows"]
    pull: Callable[[Adjoint], Adjoint]
    carry: Callable[[Any], Any]


class AbstractLayer(eqx.Module):
    """A random function of a vector, given twice (the twin rule).

    `moments` pushes mean and variance through in closed form; `sample` draws one plain
    deterministic function. `varprop.check(layer, x, key)` compares the two, for your own layers as
    well.
    """

    #: Whether an output depends on several inputs, so that outputs may be correlated.
    mixes: ClassVar[bool] = True
    #: Whether its outputs are correlated even where its inputs are known.
    correlates: ClassVar[bool] = False
    #: Whether it gives a `JointGaussian`: the covariance between its outputs.
    joint: ClassVar[bool] = False

    @abstractmethod
    def moments(self, x: Gaussian) -> Gaussian | JointGaussian:
        """Mean and variance of the output; x has shape (..., n)."""

    def moments_of_columns(self, x: Gaussian) -> Gaussian | JointGaussian:
        """Return the same for a batch with its rows as columns: (n, rows) to (outputs, rows).

        Networks run this way round, which is faster (see `Sequential`). This default turns the
        batch and calls `moments`; a layer that can do without turning overrides it. A covariance
        between outputs is given by rows either way.
        """
        out = self.moments(x.T)
        return out.T if isinstance(out, Gaussian) else out

    def linearized(self, x: Gaussian) -> Linearized:
        """Return the output for an uncertain batch (n, rows), and what of it is linear in x.

        This default takes the whole derivative of every row, which is right for any layer and slow;
        those of the library override it.
        """
        out, rows = self.moments_of_columns(x), x.shape[1]
        if not isinstance(out, Gaussian):
            raise TypeError(
                f"first-order propagation does not know the covariance of {type(self).__name__}: "
                "choose propagation='independent'."
            )

        def moments(row: Array, var: Array) -> tuple[Array, Array]:
            found: Any = self.moments(Gaussian(row, var))
            return found.mean, found.variances()

        by_row = jax.vmap(jax.jacrev(moments, argnums=(0, 1)), in_axes=1, out_axes=2)
        (by_mean, by_var), (tilt, gain) = by_row(x.mean, x.var)
        carried = jnp.einsum("mnr,nr->mr", by_mean**2, x.var)

        def pull(at: Adjoint) -> Adjoint:
            if at.mean is None:
                return Adjoint(by_mean.swapaxes(0, 1), by_var.swapaxes(0, 1))

            def back(matrix: Array, g: Array) -> Array:
                return jnp.einsum("mnr,mkr->nkr", matrix, jnp.broadcast_to(g, (*g.shape[:2], rows)))

            g, h = back(by_mean, at.mean), back(by_var, at.mean)
            if at.var is not None:
                g, h = g + back(tilt, at.var), h + back(gain, at.var)
            return Adjoint(g, h)

        return Linearized(
            out,
            jnp.maximum(out.variances() - carried, 0),
            pull,
            lambda v: jnp.einsum("mnr,...nr->...mr", by_mean**2, v),
        )

    def between_rows(
        self, x: Gaussian, other: Gaussian, cov: Float[Array, "n a b"] | None
    ) -> tuple[Float[Array, "m a b"] | None, Float[Array, "m a b"] | None]:
        """Return the covariance of each output between the rows of two batches, and its own part.

        Parameters
        ----------
        x, other
            Two batches with rows as columns, (n, a) and (n, b), that one drawn layer is applied to.
        cov
            Covariance of each input between them; None for none.

        Returns
        -------
        cov, own
            Shape (outputs, a, b), or None for none; `own` is what no linear function carries, as in
            `linearized`.
        """
        raise TypeError(
            f"the covariance between rows is not known for {type(self).__name__}: give it a method "
            "`between_rows`."
        )

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> PlainLayer:
        """Draw one deterministic function of arrays of shape (..., n)."""


class AbstractElementwise(AbstractLayer):
    """A layer that takes every component by itself."""

    mixes: ClassVar[bool] = False

    def partials(self, x: Gaussian) -> Partials:
        """Return the moments of an uncertain batch (n, rows), and their derivatives.

        That of the mean by the input's mean is the slope of the best line, by Stein's lemma.
        """

        def moments(mean: Array, var: Array) -> Any:
            out: Any = self.moments_of_columns(Gaussian(mean, var))
            return out.mean, out.variances()

        at, one, none = (x.mean, x.variances()), jnp.ones_like(x.mean), jnp.zeros_like(x.mean)
        (mean, var), (slope, tilt) = jax.jvp(moments, at, (one, none))
        bend, gain = jax.jvp(moments, at, (none, one))[1]
        return Partials(Gaussian(mean, var), slope, bend, tilt, gain)

    def linearized(self, x: Gaussian) -> Linearized:
        """Return the output, the slope in place of a matrix, and what lies beside the line."""
        out, slope, bend, tilt, gain = self.partials(x)
        # Rounding, or the error of a quadrature, may put it below 0.
        carried = slope**2 * x.variances()
        own = jnp.maximum(out.variances() - carried, 0)

        def pull(at: Adjoint) -> Adjoint:
            g = at.mean
            if g is None:
                g = jnp.eye(len(slope), dtype=slope.dtype)[..., None]
            by_mean, by_var = slope[:, None] * g, bend[:, None] * g
            if at.var is not None:
                by_mean = by_mean + tilt[:, None] * at.var
                by_var = by_var + gain[:, None] * at.var
            return Adjoint(by_mean, by_var)

        return Linearized(out, own, pull, lambda v: slope**2 * v)

    @abstractmethod
    def covariance(
        self, a: Gaussian, b: Gaussian, cov: Float[Array, "..."], *, same: bool
    ) -> Float[Array, "..."]:
        """Return the covariance of two components after the layer, given that before it.

        Parameters
        ----------
        a, b
            The components, of shapes that broadcast against one another.
        cov
            Their covariance.
        same
            Whether they are one component in two rows, for which one draw of a noise is the same,
            or two components of one row.
        """

    def between_rows(self, x, other, cov):
        """Return `covariance` for every pair of rows, and what lies beside the lines."""
        a, b = (
            Gaussian(part.mean[axis], part.variances()[axis])
            for part, axis in ((x, (..., None)), (other, (slice(None), None)))
        )
        before = jnp.zeros(jnp.broadcast_shapes(a.shape, b.shape), x.dtype) if cov is None else cov
        after = self.covariance(a, b, before, same=True)
        if cov is None or x.var is None or other.var is None:
            return after, after
        slopes = self.partials(x).slope[..., None] * self.partials(other).slope[:, None]
        return after, after - slopes * cov
