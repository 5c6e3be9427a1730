"""A model that predicts one next state, trained on how far it drifts from real paths (SLBO, Luo et al. 2019).

    ŝ' = s + μ_Δ + σ_Δ f(s̄, a), at most 100 deviations from the mean state;  r̂ = μ_r + σ_r g(s̄, a)
    e_i = ((ŝ_{i+1} − ŝ_i) − (s_{i+1} − s_i)) / σ_Δ,  ŝ_0 = s_0
    L = mean_batch (1/H) Σ_{i<H} ( √(mean_dims e_i²) + ((r̂_i − r_i) / σ_r)² ) + ½ c ‖θ‖²

The norm is not squared: a few bad rows do not rule the others. The term of the reward is left out where the reward is known. A
path goes on from the predicted state, unless an episode ended there: then from the row that comes next, whatever its episode.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline.dynamics.ensemble import truncated_normal
from beeline.memory import Batch
from beeline.networks import Draw, Params, Slot, adam
from beeline.networks.base import move

REACH = 100.0  # deviations from the mean state that a prediction may lie at
LEAST = 1e-6  # of a deviation
TINY = 1e-12  # under the root, so that a perfect prediction has a gradient


class Scale(NamedTuple):
    """Means and deviations of states, of their changes, and of rewards."""

    obs: tuple[Any, Any]
    change: tuple[Any, Any]
    reward: tuple[Any, Any]


class Paths(NamedTuple):
    """Rows in the order in which they were met; `follows` says where a row begins where the one before it led to."""

    obs: Any
    action: Any
    change: Any
    reward: Any
    follows: Any


@dataclasses.dataclass(frozen=True)
class Deterministic:
    """The shape of the model and how it is moved; it holds no numbers."""

    obs_dim: int
    action_dim: int
    hidden: tuple[int, ...] = (500, 500)
    rate: float = 1e-3
    decay: float = 1e-5
    clip: float = 2.0
    learns_reward: bool = True

    @property
    def optimiser(self) -> Any:
        """Adam on a gradient of bounded norm, the decay's included."""
        return adam(self.rate, clip=self.clip)

    def init(self, draw: Draw) -> Slot:
        """Weights from normals of deviation 1/(2 √fan_in) cut at two of them, no bias."""
        widths = (self.obs_dim + self.action_dim, *self.hidden, self.obs_dim + 1)
        generator, layers = draw.member(0), []
        for pair in zip(widths, widths[1:], strict=False):
            w = truncated_normal(generator, *pair) / (2.0 * math.sqrt(pair[0]))
            layers.append({"w": jnp.asarray(w, jnp.float32), "b": jnp.zeros(pair[1], jnp.float32)})
        params = tuple(layers)
        return Slot(params, None, self.optimiser.init(params))

    def predict(self, params: Params, scale: Scale, obs: Array, action: Array) -> tuple[Array, Array]:
        """ŝ' and r̂ for rows of s and a."""
        mean, deviation = scale.obs
        x = jnp.concatenate([(obs - mean) / deviation, jnp.clip(action, -1.0, 1.0)], axis=-1)
        *hidden, last = params
        for layer in hidden:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        out = x @ last["w"] + last["b"]
        moved = obs + scale.change[0] + scale.change[1] * out[..., :-1]
        moved = mean + deviation * jnp.clip((moved - mean) / deviation, -REACH, REACH)
        return moved, scale.reward[0] + scale.reward[1] * out[..., -1]

    def loss(self, params: Params, scale: Scale, paths: Paths) -> tuple[Array, Array]:
        """L of paths `[H, B, …]`, and the mean norm alone."""
        steps, now = paths.obs.shape[0], paths.obs[0]
        norms, rewards = jnp.float32(0.0), jnp.float32(0.0)
        for i in range(steps):
            after, reward = self.predict(params, scale, now, paths.action[i])
            error = (after - now - paths.change[i]) / scale.change[1]
            norms += jnp.mean(jnp.sqrt(jnp.mean(jnp.square(error), axis=-1) + TINY)) / steps
            rewards += jnp.mean(jnp.square((reward - paths.reward[i]) / scale.reward[1])) / steps
            if i + 1 < steps:
                now = jnp.where(paths.follows[i + 1][:, None], after, paths.obs[i + 1])
        decay = 0.5 * self.decay * sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
        return norms + decay + (rewards if self.learns_reward else 0.0), norms


def paths_of(rows: Batch) -> Paths:
    """All transitions of a memory in the order of their places."""
    led = (rows.obs[1:] == rows.next_obs[:-1]).all(axis=-1) & (rows.discount[:-1] > 0)
    return Paths(rows.obs, rows.action, rows.next_obs - rows.obs, rows.reward, np.concatenate([[False], led]))


def padded(paths: Paths) -> Paths:
    """The rows on the device, padded to a power of two, so that a growing memory rarely means another program."""
    size = max(1024, 1 << (len(paths.reward) - 1).bit_length())
    room = size - len(paths.reward)
    return Paths(*(jnp.asarray(np.pad(each, [(0, room)] + [(0, 0)] * (each.ndim - 1))) for each in paths))


@partial(jax.jit, static_argnums=(0, 5))
def fitted(model: Deterministic, slot: Slot, scale: Scale, paths: Paths, starts: Array, steps: int) -> tuple[Slot, Array]:
    """One step of Adam for each row of `starts` `[n, B]`, on paths of so many steps from there; the norm of the last one."""

    def one(slot: Slot, start: Array) -> tuple[Slot, Array]:
        index = start + jnp.arange(steps)[:, None]
        gradients, norm = jax.grad(model.loss, has_aux=True)(slot.live, scale, jax.tree.map(lambda each: each[index], paths))
        return move(model.optimiser, slot, gradients), norm

    slot, norms = jax.lax.scan(one, slot, starts)
    return slot, norms[-1]
