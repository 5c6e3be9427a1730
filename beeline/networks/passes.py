"""Layers with gradients written out, for networks so small that what surrounds the products costs as much as the products.

The formulas are those that `jax.grad` would derive; what differs is their form. Weight gradients come out of the product in the
layout of the weights, where derived ones are transposed afterwards (a slow walk through memory inside Adam's fused loop). Sums
over a row that is weighted by γ are products with γ: XLA's CPU kernel for reductions takes over ten times as long when one
operand is broadcast. docs/performance.md has the figures.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import dot_general

LN_EPSILON = 1e-6  # Flax's

Layer = dict[str, Array]


@jax.custom_vjp
def linear(params: Layer, x: Array) -> Array:
    """z = x W + b at rows `[B, in]`."""
    return _linear_forth(params, x)[0]


def _linear_forth(params: Layer, x: Array) -> tuple[Array, Any]:
    return x @ params["w"] + params["b"], (params["w"], x)


def _linear_back(kept: Any, dz: Array) -> tuple[Layer, Array]:
    """dW = xᵀ dz, db = Σ dz, dx = dz Wᵀ."""
    w, x = kept
    rows = (((0,), (0,)), ((), ()))
    # Few columns make a poor product; as few rows they make a good one, and what is transposed then is small.
    dw = dot_general(dz, x, rows).T if dz.shape[1] < x.shape[1] else dot_general(x, dz, rows)
    return {"w": dw, "b": jnp.sum(dz, axis=0)}, dot_general(dz, w, (((1,), (1,)), ((), ())))


linear.defvjp(_linear_forth, _linear_back)


@jax.custom_vjp
def ln_relu(params: Layer, x: Array) -> Array:
    """y = ReLU(γ n + β) at rows `[B, in]`, n = (z − mean z) / √(var z + ε), z = x W + b."""
    return _ln_relu_forth(params, x)[0]


def _ln_relu_forth(params: Layer, x: Array) -> tuple[Array, Any]:
    z = x @ params["w"] + params["b"]
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    slope = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + LN_EPSILON)
    normal = centred * slope
    y = jax.nn.relu(normal * params["scale"] + params["shift"])
    return y, (params["w"], params["scale"], x, normal, slope, y)


def _ln_relu_back(kept: Any, dy: Array) -> tuple[Layer, Array]:
    """da = dy where y > 0, dγ = Σ da n, dβ = Σ da, dn = γ da, dz = (dn − mean dn − n mean(n dn)) / √(var z + ε)."""
    w, scale, x, normal, slope, y = kept
    da = jnp.where(y > 0.0, dy, 0.0)
    along = da * normal
    mean, tilt = ((each @ scale)[:, None] / len(scale) for each in (da, along))  # of dn and of n dn
    own, dx = _linear_back((w, x), slope * (da * scale - mean - normal * tilt))
    return own | {"scale": jnp.sum(along, axis=0), "shift": jnp.sum(da, axis=0)}, dx


ln_relu.defvjp(_ln_relu_forth, _ln_relu_back)
