"""Policies: how observations become actions, for learning (`sample`), for collecting (`explore`) and for use (`greedy`).

Actions lie in [-1, 1]; the environment rescales them to its own bounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import operators, rng
from beeline.networks import Params, apply_mlp, init_layer, init_mlp

PINK_LENGTH = 1000


@dataclasses.dataclass(frozen=True)
class GaussianActor:
    """Tanh-Gaussian policy with state-dependent deviation (SAC): a = tanh(μ(s) + σ(s) ε), log σ clipped to [-20, 2]."""

    action_dim: int
    hidden: Sequence[int]
    body: str
    initialiser: str
    stochastic: ClassVar[bool] = True

    def init(self, draw: np.random.Generator, obs_dim: int) -> Params:
        """Parameters; one last layer holds both heads, each drawn as if it were a layer of its own."""
        *trunk, mean = init_mlp(draw, (obs_dim, *self.hidden, self.action_dim), self.body, self.initialiser)
        log_std = init_layer(draw, self.hidden[-1], self.action_dim, self.initialiser)
        both: dict[str, Any] = {name: np.concatenate([mean[name], log_std[name]], axis=-1) for name in mean}
        return (*trunk, both)

    def output(self, params: Params, obs: Array) -> tuple[Array, Array]:
        """Mean and log σ of the Gaussian before tanh."""
        mean, log_std = jnp.split(apply_mlp(params, obs, self.body), 2, axis=-1)
        return mean, jnp.clip(log_std, -20.0, 2.0)

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The reparameterised action for standard noise ε, and its log π in [-1, 1] units."""
        assert noise is not None, "a stochastic policy is sampled with noise"
        return operators.tanh_gaussian_sample(noise, *output)

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting, for standard noise ε (white or pink)."""
        mean, log_std = self.output(params, obs)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def greedy(self, params: Params, obs: Array) -> Array:
        """The deterministic action tanh(μ(s))."""
        return jnp.tanh(self.output(params, obs)[0])


@dataclasses.dataclass(frozen=True)
class DeterministicActor:
    """Deterministic policy a = tanh(f(s)) (TD3); collecting adds N(0, σ²) and clips."""

    action_dim: int
    hidden: Sequence[int]
    body: str
    initialiser: str
    exploration_noise: float
    stochastic: ClassVar[bool] = False

    def init(self, draw: np.random.Generator, obs_dim: int) -> Params:
        """Parameters of the perceptron."""
        return init_mlp(draw, (obs_dim, *self.hidden, self.action_dim), self.body, self.initialiser)

    def output(self, params: Params, obs: Array) -> Array:
        """The action itself."""
        return jnp.tanh(apply_mlp(params, obs, self.body))

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The action; a deterministic policy has no density, and no part that needs one is built with it."""
        return output, jnp.zeros(output.shape[:-1])

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting: clip(π(s) + σ ε)."""
        return jnp.clip(self.output(params, obs) + self.exploration_noise * noise, -1.0, 1.0)

    def greedy(self, params: Params, obs: Array) -> Array:
        """The action π(s)."""
        return self.output(params, obs)


Actor = GaussianActor | DeterministicActor


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
