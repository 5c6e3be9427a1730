"""Heads that learn a distribution over atoms instead of a number: two-hot and HL-Gauss (Farebrother et al. 2024).

The atoms z_i lie evenly on [low, high], Δ apart. The value is Σ_i p_i z_i with p the softmax of the output, and the loss the
cross-entropy −Σ_i t_i log p_i of the target's projection t. Targets stay numbers, and are clipped to the support.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array

SPREAD = 0.75  # of HL-Gauss: the deviation of what is put around the target, in units of Δ


@dataclasses.dataclass(frozen=True)
class TwoHot:
    """t_i = max(0, 1 − |y − z_i|/Δ): the two atoms next to the target share it, and its mean is the target."""

    width: int
    low: float
    high: float

    @property
    def step(self) -> float:
        """Δ."""
        return (self.high - self.low) / (self.width - 1)

    @property
    def atoms(self) -> Array:
        """z_i."""
        return jnp.linspace(self.low, self.high, self.width)

    def value(self, out: Array) -> Array:
        """The mean of the distribution."""
        return jax.nn.softmax(out, axis=-1) @ self.atoms

    def loss(self, out: Array, y: Array) -> Array:
        """Cross-entropy of the projected target."""
        return -jnp.sum(self.project(y) * jax.nn.log_softmax(out, axis=-1), axis=-1)

    def project(self, y: Array) -> Array:
        """The target as a distribution over the atoms, `[..., width]`."""
        place = (jnp.clip(y, self.low, self.high) - self.low) / self.step
        return self.spread(place[..., None] - jnp.arange(self.width))

    def spread(self, away: Array) -> Array:
        """Weights of the atoms from how far the target is from them, in units of Δ."""
        return jnp.maximum(1.0 - jnp.abs(away), 0.0)


class HLGauss(TwoHot):
    """t_i: what a normal distribution of deviation .75 Δ around the target puts within Δ/2 of z_i, in shares of their sum."""

    def spread(self, away: Array) -> Array:
        """The normal distribution's mass in the bin of every atom, renormalised."""
        edge = math.sqrt(2.0) * SPREAD
        mass = jax.scipy.special.erf((away + 0.5) / edge) - jax.scipy.special.erf((away - 0.5) / edge)
        return mass / jnp.sum(mass, axis=-1, keepdims=True)


HEADS = {"two_hot": TwoHot, "hl_gauss": HLGauss}
