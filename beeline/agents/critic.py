"""The critics: an ensemble of networks over (s, a), read through a head."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
from jax import Array

from beeline.networks import Head, Learnable, Params


@dataclasses.dataclass(frozen=True)
class Critic:
    """Q of every member, `[*shape, B]`. Of the ensemble's axes the last one holds the critics whose minimum is taken."""

    learnable: Learnable
    head: Head
    shape: tuple[int, ...]
    mean: bool = False  # whether several critics are read as their mean

    def out(self, params: Params, obs: Array, action: Array) -> Array:
        """What the networks put out, `[*shape, B, width]`."""
        return self.learnable.net.apply(params, jnp.concatenate([obs, action], axis=-1))

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Q(s, a) of every member."""
        return self.head.value(self.out(params, obs, action))

    def worst(self, q: Array) -> Array:
        """min_i Q_i over the last axis of the ensemble, or their mean."""
        return jnp.mean(q, axis=-2) if self.mean else jnp.min(q, axis=-2)

    def loss(self, out: Array, y: Array) -> Array:
        """Σ_i mean_B ℓ(Q_i, y), the mean of it over groups of critics that have targets of their own."""
        each = jnp.sum(jnp.mean(self.head.loss(out, y[..., None, :]), axis=-1))
        groups = math.prod(self.shape[:-1])
        return each if groups == 1 else each / groups
