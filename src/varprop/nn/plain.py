"""Plain functions: what one draw of a layer, or of a network, is."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from varprop.nn.contract import PlainLayer


class Affine(eqx.Module):
    """The plain deterministic layer weight @ x + bias: one draw of a `Dense` layer."""

    weight: Float[Array, "m n"]
    bias: Float[Array, " m"] | None

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch m"]:
        """Map rows of shape (..., n) to (..., m)."""
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class Chain(eqx.Module):
    """Plain functions applied one after the other: one draw of a `Sequential` network."""

    layers: tuple[PlainLayer, ...]

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch m"]:
        """Apply the functions in order."""
        for layer in self.layers:
            x = layer(x)
        return x
