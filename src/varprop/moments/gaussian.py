"""Gaussian and JointGaussian: the only things that flow between layers.

Both are pytrees, so they pass through `jit`, `vmap` and `grad`. The last axis holds the components
of one row; leading axes, if any, are a batch.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import (
    as_float_array,
    check_all,
    check_nonnegative,
    check_shape,
    is_concrete,
)
from varprop.moments.covariance import DiagonalPlusLowRank, Method, dense_log_density
from varprop.moments.numerics import normal_log_density, square_root


def add_variances(a: Array | None, b: Array | None) -> Array | None:
    """Sum of two variances of which either may be None (exactly known)."""
    if a is None:
        return b
    return a if b is None else a + b


class Gaussian(eqx.Module):
    """Independent Gaussians, one per entry: a mean and a variance of the same shape.

    Parameters
    ----------
    mean
        Any shape.
    var
        Same shape as the mean, or a scalar for all entries; >= 0. ``None`` means *exactly known*:
        it is static structure, and whatever takes this value in does no work for its variance.
        A negative variance is an error; under `jit`, where it cannot be seen, it becomes NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> a, b = Gaussian(jnp.array([1.0, 2.0]), 0.5), Gaussian(jnp.array([3.0, 4.0]))
    >>> (a + b).mean.tolist(), (a + b).var.tolist()
    ([4.0, 6.0], [0.5, 0.5])
    >>> (a * b).var.tolist()  # the product of independents
    [4.5, 8.0]
    """

    # Lets `numpy_array + gaussian` come here instead of looping over entries.
    __array_ufunc__ = None

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"] | None

    def __init__(self, mean: Any, var: Any = None):
        self.mean = as_float_array(mean, "mean")
        if var is not None:
            var = as_float_array(var, "var", self.mean.dtype)
            if var.ndim == 0:
                var = jnp.broadcast_to(var, self.mean.shape)
            if not is_concrete(var):
                # A negative entry could hide in the sums of the next layer; NaN cannot.
                var = jnp.where(var >= 0, var, jnp.nan)
        self.var = var

    def __check_init__(self):
        if self.var is not None:
            check_shape(self.var, self.mean.shape, "var", "it must match the mean")
            if is_concrete(self.mean) and is_concrete(self.var):
                # What is NaN already may have a variance of NaN: a NaN input comes out as NaN.
                mean, var = np.asarray(self.mean), np.asarray(self.var)
                fine = (var >= 0) | np.isnan(mean)
                check_all(fine, var, "var must not be negative, but is {value:g}{where}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the mean."""
        return self.mean.shape

    @property
    def dtype(self):
        """Dtype of the mean and the variance."""
        return self.mean.dtype

    @property
    def T(self) -> Gaussian:
        """The same with its axes in reverse: the rows of a batch as columns, or back."""
        return Gaussian(self.mean.T, None if self.var is None else self.var.T)

    def variances(self) -> Float[Array, "*shape"]:
        """Return the variance as an array: zeros where it is exactly known."""
        return jnp.zeros_like(self.mean) if self.var is None else self.var

    def second_moment(self) -> Float[Array, "*shape"]:
        """E[a^2], elementwise."""
        square = self.mean**2
        return square if self.var is None else square + self.var

    def __add__(self, other: Any) -> Gaussian:
        """Sum with an independent Gaussian, or shift by an array."""
        if isinstance(other, JointGaussian):
            return NotImplemented
        other = as_gaussian(other, self.dtype)
        mean = self.mean + other.mean
        return Gaussian(mean, _broadcast(add_variances(self.var, other.var), mean))

    __radd__ = __add__

    def __neg__(self) -> Gaussian:
        """Mirror at zero."""
        return Gaussian(-self.mean, self.var)

    def __sub__(self, other: Any) -> Gaussian:
        """Difference of independents."""
        if isinstance(other, JointGaussian):
            return NotImplemented
        return self + (-as_gaussian(other, self.dtype))

    def __rsub__(self, other: Any) -> Gaussian:
        """Difference of independents."""
        return (-self) + other

    def __mul__(self, other: Any) -> Gaussian:
        """Product with an independent Gaussian, or scaling by an array.

        The product's first two moments are exact; it is not itself a Gaussian.
        """
        if isinstance(other, JointGaussian):
            return NotImplemented
        other = as_gaussian(other, self.dtype)
        mean = self.mean * other.mean
        var = None if self.var is None else self.var * other.second_moment()
        if other.var is not None:
            var = add_variances(var, self.mean**2 * other.var)
        return Gaussian(mean, _broadcast(var, mean))

    __rmul__ = __mul__

    def affine(self, matrix: ArrayLike, offset: ArrayLike | None = None) -> Gaussian:
        """Return the marginals of x @ matrix + offset (`to_joint().affine` keeps the covariance).

        Parameters
        ----------
        matrix
            Shape (n, m); the last axis of this Gaussian has n entries.
        offset
            Shape (m,).
        """
        matrix = _matrix_for(matrix, self.mean)
        mean = self.mean @ matrix
        if offset is not None:
            mean = mean + as_float_array(offset, "offset", self.dtype)
        return Gaussian(mean, None if self.var is None else self.var @ matrix**2)

    def to_joint(self) -> JointGaussian:
        """Return the same distribution as a JointGaussian with a diagonal covariance."""
        var = self.variances()
        none = jnp.zeros((*self.shape[:-1], 0), self.dtype)
        factor = jnp.zeros((0, self.shape[-1]), self.dtype)
        return JointGaussian(self.mean, DiagonalPlusLowRank(var, none, factor))

    def log_prob(self, y: ArrayLike) -> Float[Array, "..."]:
        """Log-density at y, summed over the last axis (one row is one event).

        Where a variance is 0 the density is that of a point mass: +inf at the mean, -inf elsewhere.
        """
        if self.var is None:
            raise ValueError("var is None: an exactly known value has no density.")
        error = _error(y, self.mean)
        density = normal_log_density(error, jnp.broadcast_to(self.var, error.shape))
        return jnp.sum(density, axis=-1) if density.ndim else density

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Draw samples of shape `shape` + the shape of the mean."""
        if self.var is None:
            return jnp.broadcast_to(self.mean, (*shape, *self.shape))
        noise = jax.random.normal(key, (*shape, *self.shape), self.dtype)
        return self.mean + square_root(self.var) * noise


class JointGaussian(eqx.Module):
    """A multivariate Gaussian over the last axis: a mean and a full covariance.

    Parameters
    ----------
    mean
        Shape (..., d).
    cov
        Shape (..., d, d), symmetric and positive semi-definite, or a `DiagonalPlusLowRank`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> joint = JointGaussian(jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> joint.affine(jnp.array([[1.0], [1.0]])).dense_cov().tolist()
    [[6.0]]
    """

    __array_ufunc__ = None  # as in `Gaussian`

    mean: Float[Array, "*batch d"]
    cov: Float[Array, "*batch d d"] | DiagonalPlusLowRank

    def __init__(self, mean: Any, cov: Any):
        self.mean = as_float_array(mean, "mean")
        if not isinstance(cov, DiagonalPlusLowRank):
            cov = as_float_array(cov, "cov", self.mean.dtype)
        elif cov.dtype != self.mean.dtype:
            raise TypeError(f"cov has dtype {cov.dtype}, but the mean has {self.mean.dtype}.")
        self.cov = cov

    def __check_init__(self):
        if self.mean.ndim == 0:
            raise ValueError("mean has no axis: a JointGaussian needs a mean of shape (..., d).")
        d = self.mean.shape[-1]
        check_shape(self.cov, (*self.shape[:-1], d, d), "cov", "mean has shape " + str(self.shape))
        if isinstance(self.cov, DiagonalPlusLowRank) or not is_concrete(self.cov):
            return
        cov = np.asarray(self.cov)
        check_nonnegative(np.diagonal(cov, axis1=-2, axis2=-1), "the diagonal of cov")
        size = np.max(np.abs(cov), initial=0.0)
        skew = np.max(np.abs(cov - np.swapaxes(cov, -1, -2)), initial=0.0)
        if skew > 1e3 * jnp.finfo(cov.dtype).eps * size:
            raise ValueError(f"cov must be symmetric, but differs from its transpose by {skew:g}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the mean."""
        return self.mean.shape

    @property
    def dtype(self):
        """Dtype of the mean and the covariance."""
        return self.mean.dtype

    def dense_cov(self) -> Float[Array, "*batch d d"]:
        """Return the covariance as an array of shape (..., d, d)."""
        return self.cov.dense() if isinstance(self.cov, DiagonalPlusLowRank) else self.cov

    def variances(self) -> Float[Array, "*batch d"]:
        """Return the variances of the components, shape (..., d)."""
        if isinstance(self.cov, DiagonalPlusLowRank):
            return self.cov.variances()
        return jnp.diagonal(self.cov, axis1=-2, axis2=-1)

    def marginals(self) -> Gaussian:
        """Return the components one by one, without their covariances."""
        return Gaussian(self.mean, self.variances())

    def __add__(self, other: Any) -> JointGaussian:
        """Sum with an independent Gaussian or JointGaussian, or shift by an array."""
        if isinstance(other, JointGaussian):
            return JointGaussian(self.mean + other.mean, self.dense_cov() + other.dense_cov())
        other = as_gaussian(other, self.dtype)
        mean = self.mean + other.mean
        check_shape(mean, self.shape, "the sum", "only a batch of rows may be shifted")
        if other.var is None:
            return JointGaussian(mean, self.cov)
        extra = jnp.broadcast_to(other.var, self.shape)
        if isinstance(self.cov, DiagonalPlusLowRank):
            return JointGaussian(mean, self.cov.add_diagonal(extra))
        identity = jnp.eye(self.shape[-1], dtype=self.dtype)
        return JointGaussian(mean, self.cov + identity * extra[..., None, :])

    __radd__ = __add__

    def __neg__(self) -> JointGaussian:
        """Mirror at zero."""
        return JointGaussian(-self.mean, self.cov)

    def __sub__(self, other: Any) -> JointGaussian:
        """Difference of independents."""
        if not isinstance(other, Gaussian | JointGaussian):
            other = as_gaussian(other, self.dtype)
        return self + (-other)

    def __rsub__(self, other: Any) -> JointGaussian:
        """Difference of independents."""
        return (-self) + other

    def __mul__(self, other: Any) -> JointGaussian:
        """Elementwise product with an independent (joint) Gaussian, or scaling by an array.

        The product's mean and covariance are exact; it is not itself Gaussian.
        """
        if not isinstance(other, Gaussian | JointGaussian):
            by = as_float_array(other, "scale", self.dtype)
            if isinstance(self.cov, DiagonalPlusLowRank):
                return JointGaussian(self.mean * by, self.cov.scale(by))
            outer = by[..., :, None] * by[..., None, :] if by.ndim else by**2
            return JointGaussian(self.mean * by, self.cov * outer)
        if isinstance(other, Gaussian):
            # One variable may stand for all components, each with a draw of its own.
            mean = jnp.broadcast_to(other.mean, self.shape)
            other = Gaussian(mean, _broadcast(other.var, mean)).to_joint()
        a, b = self.dense_cov(), other.dense_cov()
        a_means = self.mean[..., :, None] * self.mean[..., None, :]
        b_means = other.mean[..., :, None] * other.mean[..., None, :]
        return JointGaussian(self.mean * other.mean, a * b + a * b_means + a_means * b)

    __rmul__ = __mul__

    def affine(self, matrix: ArrayLike, offset: ArrayLike | None = None) -> JointGaussian:
        """Return x @ matrix + offset, exactly; matrix has shape (d, m), offset (m,)."""
        matrix = _matrix_for(matrix, self.mean)
        mean = self.mean @ matrix
        if offset is not None:
            mean = mean + as_float_array(offset, "offset", self.dtype)
        cov = matrix.T @ self.dense_cov() @ matrix
        return JointGaussian(mean, 0.5 * (cov + jnp.swapaxes(cov, -1, -2)))

    def log_prob(self, y: ArrayLike, *, method: Method = "auto") -> Float[Array, "..."]:
        """Joint log-density of each row, shape (...).

        Parameters
        ----------
        y
            Shape (..., d).
        method
            ``"cholesky"``, ``"woodbury"``, ``"sherman-morrison"`` or ``"auto"``; see
            `DiagonalPlusLowRank.log_density`. A dense covariance has only the first.

        Returns
        -------
        array
            NaN under `jit` where the covariance is not positive definite; otherwise that is an
            error.
        """
        error = _error(y, self.mean)
        if isinstance(self.cov, DiagonalPlusLowRank):
            density = self.cov.log_density(error, method)
        elif method in ("auto", "cholesky"):
            batch = jnp.broadcast_shapes(error.shape[:-1], self.cov.shape[:-2])
            d = self.shape[-1]
            density = dense_log_density(
                jnp.broadcast_to(error, (*batch, d)), jnp.broadcast_to(self.cov, (*batch, d, d))
            )
        else:
            raise ValueError(
                f"method {method!r} needs a DiagonalPlusLowRank covariance, but this one is dense."
            )
        if is_concrete(density) and jnp.any(jnp.isnan(density) & jnp.all(jnp.isfinite(error), -1)):
            raise ValueError("cov is not positive definite: add a noise variance to it.")
        return density

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Draw samples of shape `shape` + the shape of the mean.

        By a Cholesky factor; with fewer outer products than outputs by their sum instead, which
        needs no factorization at all. Where the factor does not exist, since the covariance is
        singular, that is an error; under `jit` it gives NaN.
        """
        if isinstance(self.cov, DiagonalPlusLowRank):
            n, d = self.cov.factor.shape[-2:]
            if d > n:
                return self.mean + self.cov.sample(key, (*shape, *self.shape[:-1]))
        noise = jax.random.normal(key, (*shape, *self.shape), self.dtype)
        chol = jnp.linalg.cholesky(self.dense_cov())
        if is_concrete(chol) and jnp.any(jnp.isnan(chol)):
            raise ValueError("cov is not positive definite: add a noise variance to it.")
        return self.mean + jnp.einsum("...de,...e->...d", chol, noise)


def as_gaussian(value: Any, dtype: Any = None) -> Gaussian:
    """Return a Gaussian unchanged, and anything else as exactly known values."""
    return value if isinstance(value, Gaussian) else Gaussian(as_float_array(value, "value", dtype))


def _error(y: Any, mean: Array) -> Array:
    y = as_float_array(y, "y", mean.dtype)
    # Only further leading axes may differ: (n, 1) against (n,) would silently become (n, n).
    if y.shape[y.ndim - mean.ndim :] != mean.shape:
        raise ValueError(
            f"y has shape {y.shape}, but the mean has {mean.shape}: y needs the same shape, with "
            "any number of axes before it."
        )
    return y - mean


def _broadcast(var: Array | None, like: Array) -> Array | None:
    return None if var is None else jnp.broadcast_to(var, like.shape)


def _matrix_for(matrix: Any, mean: Array) -> Array:
    matrix = as_float_array(matrix, "matrix", mean.dtype)
    if matrix.ndim != 2 or mean.ndim == 0 or matrix.shape[0] != mean.shape[-1]:
        raise ValueError(
            f"matrix has shape {matrix.shape}, but the mean of shape {mean.shape} needs "
            f"({mean.shape[-1] if mean.ndim else 'n'}, m)."
        )
    return matrix
