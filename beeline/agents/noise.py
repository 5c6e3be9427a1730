"""The noise of acting: white, or pink with a memory over the episode."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from beeline import operators, rng

PINK_LENGTH = 1000


@dataclasses.dataclass(frozen=True)
class WhiteNoise:
    """Independent standard normal noise at every decision; carries nothing."""

    def init(self, lanes: int, action_dim: int) -> Any:
        """No state."""
        return ()

    def __call__(self, key: Array, state: Any, first: Array, shape: tuple[int, int]) -> tuple[Array, Any]:
        """Noise for all lanes."""
        return jax.random.normal(key, shape), state


@dataclasses.dataclass(frozen=True)
class PinkNoise:
    """Temporally correlated noise with a 1/f spectrum (Eberhard et al. 2023), drawn anew at each episode's start."""

    length: int = PINK_LENGTH

    def init(self, lanes: int, action_dim: int) -> Any:
        """One sequence per lane, marked as used up so that the first call draws."""
        return {"noise": jnp.zeros((lanes, self.length, action_dim)), "time": jnp.full(lanes, self.length, jnp.int32)}

    def __call__(self, key: Array, state: Any, first: Array, shape: tuple[int, int]) -> tuple[Array, Any]:
        """The next noise of every lane's sequence."""
        renew = first | (state["time"] >= self.length)

        def draw(noise: Array) -> Array:
            keys = jax.vmap(lambda lane: rng.fold(key, "pink", lane))(jnp.arange(shape[0]))
            fresh = jax.vmap(lambda k: operators.colored_noise(k, 1.0, self.length, shape[1]))(keys)
            return jnp.where(renew[:, None, None], fresh, noise)

        noise = jax.lax.cond(jnp.any(renew), draw, lambda noise: noise, state["noise"])
        time = jnp.where(renew, 0, state["time"])
        return noise[jnp.arange(shape[0]), time], {"noise": noise, "time": time + 1}


ActingNoise = WhiteNoise | PinkNoise
