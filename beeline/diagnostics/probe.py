"""What the instruments read off an agent: its actions, its Q, its V and its λ. Nothing here changes the agent's state."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import rng
from beeline.agents.base import Judged
from beeline.errors import ConfigError
from beeline.memory import Batch

CHUNK = 1024  # rows per compiled call: however many pairs an episode gave, one program serves


class Probe:
    """Compiled readings of an agent that can be judged: pure functions of its state and of keys named `diagnose/…`."""

    def __init__(self, agent: Any) -> None:
        if not isinstance(agent, Judged):
            raise ConfigError(
                f"diagnose reads Q and actions of an agent, and {type(agent).__name__} has no Q to read: leave diagnose out, "
                "or choose an algorithm with critics."
            )
        self.agent: Any = agent
        self.soft, self.has_value, self.has_blend = agent.soft, agent.has_value, agent.has_blend
        self.acting = agent.acting
        self._act = jax.jit(self._act_impl)
        self._draw = jax.jit(self._draw_impl)
        self._q, self._v, self._lam = jax.jit(agent.q), jax.jit(agent.v), jax.jit(agent.lam)

    # --- the policy -------------------------------------------------------------------------------------------------

    def _act_impl(self, acting: Any, root: Array, where: Array, obs: Array) -> tuple[Array, Array]:
        key = rng.fold(jax.random.wrap_key_data(root), "diagnose/act", where[0])
        key = jax.random.fold_in(jax.random.fold_in(key, where[1]), where[2])
        action, bonus = self.agent.sample(acting, key, obs[None])
        return action[0], bonus[0]

    def act(self, acting: Any, root: np.ndarray, where: tuple[int, int, int], obs: np.ndarray) -> tuple[np.ndarray, float]:
        """The action at one observation and its bonus; `where` is (step of the run, episode, decision)."""
        action, bonus = self._act(acting, root, np.array(where, np.uint32), obs)
        return np.asarray(action), float(bonus)

    def _draw_impl(self, acting: Any, root: Array, step: Array, obs: Array) -> tuple[Array, Array]:
        return self.agent.sample(acting, rng.fold(jax.random.wrap_key_data(root), "diagnose/draw", step), obs)

    def draw(self, state: Any, root: np.ndarray, step: int, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions of the policy and their bonuses at many observations."""
        action, bonus = self._draw(self.acting(state), root, np.uint32(step), obs)
        return np.asarray(action), np.asarray(bonus)

    # --- values -----------------------------------------------------------------------------------------------------

    def q(self, state: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Every critic's Q(s, a), `[E, n]`, for any n."""
        found = _in_chunks(functools.partial(self._q, state), obs, action)
        return found.reshape(-1, found.shape[-1])

    def v(self, state: Any, obs: np.ndarray) -> np.ndarray:
        """The agent's own V(s), `[n]`; only for agents that have one."""
        found = _in_chunks(functools.partial(self._v, state), obs)
        return np.mean(found.reshape(-1, found.shape[-1]), axis=0)

    # --- λ ----------------------------------------------------------------------------------------------------------

    def lam(self, state: Any, batches: Batch, root: np.ndarray, step: int) -> np.ndarray:
        """λ of every sample of batches with leading axes `[batches, batch_size]`."""
        key = rng.fold(jax.random.wrap_key_data(jnp.asarray(root)), "diagnose/lambda", step)
        rows = [jax.tree.map(lambda x, i=i: x[i], batches) for i in range(len(batches.reward))]
        return np.stack([np.asarray(self._lam(state, row, jax.random.fold_in(key, i))) for i, row in enumerate(rows)])


def _in_chunks(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """Apply a compiled function to rows in chunks of one size, the last one padded."""
    count = len(arrays[0])
    parts = []
    for start in range(0, count, CHUNK):
        rows = [array[start : start + CHUNK] for array in arrays]
        missing = CHUNK - len(rows[0])
        padded = [np.concatenate([row, np.zeros((missing, *row.shape[1:]), row.dtype)]) if missing else row for row in rows]
        parts.append(np.asarray(function(*padded))[..., : CHUNK - missing])
    return np.concatenate(parts, axis=-1)
