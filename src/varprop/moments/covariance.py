"""Covariance matrices of the form diagonal + weighted outer products, and Gaussian log-densities.

The last layer of Co-FAWN has covariance C = diag(d) + sum_i w_i u_i u_i^T: as many outer products
as hidden units. Three ways to its log-density live here, and tests compare them:

- ``cholesky``: factor the D x D matrix. Best when there are no more outputs than hidden units.
- ``woodbury``: solve the n x n system instead: D n^2 in place of D^3. Best when there are more.
- ``sherman-morrison``: the paper's recursion of n rank-one updates. Kept for comparison.

In float32 at a noise of 1e-5 (beside variances of order 1) the better of the first two is right to
5e-4 nats; the worse one and the recursion lost up to 0.6.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import as_float_array, check_nonnegative
from varprop.moments.numerics import LOG_2PI, square_root

Method = Literal["auto", "cholesky", "woodbury", "sherman-morrison"]
METHODS: tuple[Method, ...] = ("auto", "cholesky", "woodbury", "sherman-morrison")


class DiagonalPlusLowRank(eqx.Module):
    """The matrix diag(diagonal) + sum_i weight_i factor_i factor_i^T, never formed unless asked.

    The weights stand apart from the factors (they are not folded in by a square root) so that a
    weight of exactly 0, a dead hidden unit, has exact gradients; and so that one factor matrix
    serves all rows of a batch.

    Parameters
    ----------
    diagonal
        Shape (..., d), >= 0.
    weight
        Shape (..., n), >= 0.
    factor
        Shape (n, d), shared by the leading axes, or (..., n, d).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> cov = DiagonalPlusLowRank(jnp.ones(2), jnp.array([2.0]), jnp.array([[1.0, -1.0]]))
    >>> print(cov.dense())
    [[ 3. -2.]
     [-2.  3.]]
    """

    diagonal: Float[Array, "*batch d"]
    weight: Float[Array, "*batch n"]
    factor: Float[Array, "*#batch n d"]

    def __init__(self, diagonal, weight, factor):
        self.diagonal = as_float_array(diagonal, "diagonal")
        self.weight = as_float_array(weight, "weight", self.diagonal.dtype)
        self.factor = as_float_array(factor, "factor", self.diagonal.dtype)

    def __check_init__(self):
        n, d = self.factor.shape[-2:]
        if self.diagonal.shape[-1] != d or self.weight.shape[-1] != n:
            raise ValueError(
                f"factor of shape {self.factor.shape} needs a diagonal ending in {d} and weights "
                f"ending in {n}, but they have shapes {self.diagonal.shape} and "
                f"{self.weight.shape}."
            )
        check_nonnegative(self.diagonal, "diagonal")
        check_nonnegative(self.weight, "weight")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (..., d, d) of the dense matrix."""
        batch = jnp.broadcast_shapes(
            self.diagonal.shape[:-1], self.weight.shape[:-1], self.factor.shape[:-2]
        )
        return (*batch, self.diagonal.shape[-1], self.diagonal.shape[-1])

    @property
    def dtype(self):
        """The common dtype."""
        return self.diagonal.dtype

    def variances(self) -> Float[Array, "*batch d"]:
        """Return the diagonal of the matrix, shape (..., d)."""
        return self.diagonal + jnp.einsum("...n,...nd->...d", self.weight, self.factor**2)

    def dense(self) -> Float[Array, "*batch d d"]:
        """Return the matrix itself, shape (..., d, d), exactly symmetric."""
        outer = jnp.einsum("...n,...nd,...ne->...de", self.weight, self.factor, self.factor)
        outer = 0.5 * (outer + jnp.swapaxes(outer, -1, -2))
        return (
            outer
            + jnp.eye(self.diagonal.shape[-1], dtype=self.dtype) * (self.diagonal[..., None, :])
        )

    def add_diagonal(self, extra: Float[Array, "*#batch d"]) -> DiagonalPlusLowRank:
        """Return the matrix plus diag(extra)."""
        return DiagonalPlusLowRank(self.diagonal + extra, self.weight, self.factor)

    def scale(self, by: Float[Array, "..."]) -> DiagonalPlusLowRank:
        """Return diag(by) C diag(by); `by` has shape (..., d) or ()."""
        by = jnp.asarray(by, self.dtype)
        columns = by[..., None, :] if by.ndim else by
        return DiagonalPlusLowRank(self.diagonal * by**2, self.weight, self.factor * columns)

    def sample(self, key: PRNGKeyArray, batch: tuple[int, ...]) -> Float[Array, "..."]:
        """Draw from N(0, C), shape `batch` + (d,), as the sum of its parts: nothing is factored."""
        own_key, shared_key = jax.random.split(key)
        n, d = self.factor.shape[-2:]
        own = jax.random.normal(own_key, (*batch, d), self.dtype) * square_root(self.diagonal)
        shared = jax.random.normal(shared_key, (*batch, n), self.dtype) * square_root(self.weight)
        return own + jnp.einsum("...n,...nd->...d", shared, self.factor)

    def log_density(
        self, error: Float[Array, "*#batch d"], method: Method = "auto"
    ) -> Float[Array, "..."]:
        """Log-density of N(0, C) at `error`.

        Parameters
        ----------
        error
            Shape (..., d); its leading axes broadcast against those of the matrix.
        method
            ``"auto"`` takes ``"woodbury"`` when there are more outputs than outer products,
            otherwise ``"cholesky"``. The other two need a diagonal that is positive throughout.

        Returns
        -------
        array of shape (...)
            NaN where the matrix is singular.
        """
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, but is {method!r}.")
        n, d = self.factor.shape[-2:]
        if method == "auto":
            method = "woodbury" if d > n else "cholesky"
        batch = jnp.broadcast_shapes(self.shape[:-2], error.shape[:-1])
        if method == "cholesky":
            dense = jnp.broadcast_to(self.dense(), (*batch, d, d))
            return dense_log_density(jnp.broadcast_to(error, (*batch, d)), dense)
        one_row = _woodbury_log_density if method == "woodbury" else _sherman_morrison_log_density
        return jnp.vectorize(one_row, signature="(d),(d),(n),(n,d)->()")(
            jnp.broadcast_to(error, (*batch, d)), self.diagonal, self.weight, self.factor
        )


def _woodbury_log_density(error, diagonal, weight, factor):
    # C = D + U^T W U. The n x n matrix I + G W, G = U D^-1 U^T, is not symmetric, but unlike
    # W^-1 + G and I + W^(1/2) G W^(1/2) it and its gradient stay finite at a weight of 0.
    scaled = factor / diagonal
    small = jnp.eye(weight.shape[0], dtype=error.dtype) + (scaled @ factor.T) * weight
    lu = jax.scipy.linalg.lu_factor(small)
    log_det_small = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(lu[0]))))
    # The quadratic form is the smallest value of a ridge regression of the error on the factors.
    # Written as its sum of squares it subtracts nothing, where the textbook form takes the
    # difference of two numbers as large as 1 / diagonal; and errors of `ridge` count only squared.
    ridge = jax.scipy.linalg.lu_solve(lu, scaled @ error)
    residual = error - (weight * ridge) @ factor
    quadratic = jnp.sum(residual**2 / diagonal) + jnp.sum(weight * ridge**2)
    log_det = jnp.sum(jnp.log(diagonal)) + log_det_small
    return -0.5 * (error.shape[0] * LOG_2PI + log_det + quadratic)


def _sherman_morrison_log_density(error, diagonal, weight, factor):
    # The paper's recursion: A_0 = diag, A_{i+1} = A_i + w_i u_i u_i^T, with inverse and log det.
    def update(carry, term):
        inverse, log_det = carry
        w, u = term
        image = inverse @ u
        growth = 1.0 + w * (u @ image)
        return (inverse - (w / growth) * jnp.outer(image, image), log_det + jnp.log(growth)), None

    start = (jnp.diag(1.0 / diagonal), jnp.sum(jnp.log(diagonal)))
    (inverse, log_det), _ = jax.lax.scan(update, start, (weight, factor))
    return -0.5 * (error.shape[0] * LOG_2PI + log_det + error @ inverse @ error)


@jax.custom_jvp
def dense_log_density(
    error: Float[Array, "*batch d"], cov: Float[Array, "*batch d d"]
) -> Float[Array, "*batch"]:
    """Log-density of N(0, cov) at `error` by a Cholesky factor; NaN unless positive definite.

    The derivative is given in closed form (it needs only the precision matrix), which traces to a
    smaller program than differentiating the factorization.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{dense_log_density(jnp.zeros(2), jnp.eye(2)):.4f}")
    -1.8379
    """
    chol = jnp.linalg.cholesky(cov)
    white = jax.scipy.linalg.solve_triangular(chol, error[..., None], lower=True)[..., 0]
    half_log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)), axis=-1)
    return -0.5 * (error.shape[-1] * LOG_2PI + jnp.sum(white**2, axis=-1)) - half_log_det


@dense_log_density.defjvp
def _dense_log_density_jvp(primals, tangents):
    error, cov = primals
    derror, dcov = tangents
    chol = jnp.linalg.cholesky(cov)
    identity = jnp.broadcast_to(jnp.eye(cov.shape[-1], dtype=cov.dtype), cov.shape)
    white = jax.scipy.linalg.solve_triangular(chol, identity, lower=True)
    precision = jnp.swapaxes(white, -1, -2) @ white
    image = jnp.einsum("...de,...e->...d", precision, error)
    half_log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)), axis=-1)
    value = -0.5 * (error.shape[-1] * LOG_2PI + jnp.sum(error * image, axis=-1)) - half_log_det
    slope = 0.5 * (image[..., :, None] * image[..., None, :] - precision)
    change = jnp.einsum("...de,...de->...", slope, dcov) - jnp.sum(image * derror, axis=-1)
    return value, change
