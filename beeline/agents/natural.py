"""The step of TRPO (Schulman et al. 2015) as a pure function: natural gradient by conjugate gradients, then a line search.

Whoever has a surrogate to raise and a divergence to bound can take it: on real rollouts, or on those of a model (SLBO).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

Metrics = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class TrustRegion:
    """How far a step may go, and how it is sought."""

    radius: float = 0.01  # δ: the divergence that the full step aims at
    slack: float = 1.5  # a step is taken up to slack · δ
    damping: float = 0.1  # added to the diagonal of F
    iterations: int = 10  # of conjugate gradients
    tolerance: float = 1e-10  # of the squared residual
    tries: int = 10  # of the line search
    shrink: float = 0.5  # from one try to the next


def conjugate_gradient(product: Callable[[Array], Array], b: Array, iterations: int, tolerance: float = 1e-10) -> Array:
    """x with F x ≈ b for a symmetric positive F, given by its products (Hestenes and Stiefel 1952), from x = 0.

    It ends early once the squared residual is below `tolerance`.
    """

    def goes_on(carry: Any) -> Array:
        number, _, _, _, squared = carry
        return (number < iterations) & (squared >= tolerance)

    def step(carry: Any) -> Any:
        number, x, residual, along, squared = carry
        image = product(along)
        share = squared / jnp.dot(along, image)
        x, residual = x + share * along, residual - share * image
        after = jnp.dot(residual, residual)
        return number + 1, x, residual, residual + (after / squared) * along, after

    start = (jnp.int32(0), jnp.zeros_like(b), b, b, jnp.dot(b, b))
    return jax.lax.while_loop(goes_on, step, start)[1]


def trust_step(
    params: Any, surrogate: Callable[[Any], Array], divergence: Callable[[Any], Array], region: TrustRegion
) -> tuple[Any, Metrics]:
    """Raise `surrogate` inside a bound on `divergence` from where it is zero, which is at `params`.

    With g = ∇ surrogate and F = ∇² divergence + damping · I, x = F⁻¹ g and the full step is √(2 δ / xᵀ F x) x. It is shortened
    until the divergence is at most slack · δ and the surrogate is not lower; where no try is, nothing moves.
    """
    flat, unravel = ravel_pytree(params)
    before, gradient = jax.value_and_grad(lambda x: surrogate(unravel(x)))(flat)
    slope = jax.grad(lambda x: divergence(unravel(x)))

    def product(x: Array) -> Array:
        return jax.jvp(slope, (flat,), (x,))[1] + region.damping * x

    along = conjugate_gradient(product, gradient, region.iterations, region.tolerance)
    curvature = jnp.dot(along, product(along))
    full = jnp.sqrt(2.0 * region.radius / jnp.maximum(curvature, 1e-30)) * along

    def at(share: Array) -> tuple[Array, Array]:
        there = unravel(flat + share * full)
        return surrogate(there), divergence(there)

    def goes_on(carry: Any) -> Array:
        tries, _, _, _, good = carry
        return ~good & (tries < region.tries)

    def attempt(carry: Any) -> Any:
        tries, _, _, _, _ = carry
        share = jnp.float32(region.shrink) ** tries
        value, kl = at(share)  # what is not a number is neither small enough nor high enough
        return tries + 1, share, value - before, kl, (kl <= region.slack * region.radius) & (value >= before)

    none = jnp.float32(0.0)
    tries, share, gain, kl, good = jax.lax.while_loop(goes_on, attempt, (jnp.int32(0), none, none, none, jnp.bool_(False)))
    moved = jnp.where(good, flat + share * full, flat)
    told = {
        "step/gain": jnp.where(good, gain, 0.0), "step/kl": jnp.where(good, kl, 0.0), "step/share": jnp.where(good, share, 0.0),
        "step/tries": tries.astype(jnp.float32), "step/gradient": jnp.linalg.norm(gradient),
    }  # fmt: skip
    return unravel(moved), told
