"""What the instruments read off an agent: its actions, its Q, its V and its λ. Nothing here changes the agent's state."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import operators, rng
from beeline.agents.actor_critic import ActorCritic, State
from beeline.agents.parts import Entropy, Signals
from beeline.errors import ConfigError
from beeline.networks import normalise
from beeline.replay import Batch

CHUNK = 1024  # rows per compiled call: however many pairs an episode gave, one program serves


def root_key(seed: int) -> np.ndarray:
    """The raw key that all keys of the instruments are folded from."""
    return np.asarray(jax.random.key_data(jax.random.key(seed)))


class Probe:
    """Compiled readings of an actor-critic: pure functions of its state and of keys named `diagnose/…`."""

    def __init__(self, agent: Any) -> None:
        if not isinstance(agent, ActorCritic):
            raise ConfigError(f"diagnose reads the critics of an actor-critic; {type(agent).__name__} is none.")
        self.agent = agent
        self.soft = isinstance(agent.explore, Entropy)  # whether returns have an entropy-inclusive form
        self.has_value, self.has_blend = agent.exploit is not None, agent.blend is not None
        self._act = jax.jit(self._act_impl)
        self._draw = jax.jit(self._draw_impl)
        self._q = jax.jit(self._q_impl)
        self._v = jax.jit(self._v_impl)
        self._lam = jax.jit(self.lambdas)

    # --- the policy -------------------------------------------------------------------------------------------------

    def sample(self, acting: tuple[Any, Any, Any], key: Array, obs: Array) -> tuple[Array, Array]:
        """ã ~ π(·|s), deterministic where the policy is, and its bonus −α log π(ã|s) (zero where there is no entropy)."""
        params, statistics, explore = acting
        noise = jax.random.normal(key, (*obs.shape[:-1], self.agent.spaces.action_dim))
        action, log_prob = self.agent.actor.sample(noise, self.agent.actor.output(params, normalise(statistics, obs)))
        return action, self.agent.explore.bonus(explore, log_prob)

    @staticmethod
    def acting(state: State) -> tuple[Any, Any, Any]:
        """The part of the state that acting needs."""
        return state.actor, state.normaliser, state.explore

    def _act_impl(self, acting: Any, root: Array, where: Array, obs: Array) -> tuple[Array, Array]:
        key = rng.fold(jax.random.wrap_key_data(root), "diagnose/act", where[0])
        key = jax.random.fold_in(jax.random.fold_in(key, where[1]), where[2])
        action, bonus = self.sample(acting, key, obs[None])
        return action[0], bonus[0]

    def act(self, acting: Any, root: np.ndarray, where: tuple[int, int, int], obs: np.ndarray) -> tuple[np.ndarray, float]:
        """The action at one observation and its bonus; `where` is (step of the run, episode, decision)."""
        action, bonus = self._act(acting, root, np.array(where, np.uint32), obs)
        return np.asarray(action), float(bonus)

    def _draw_impl(self, acting: Any, root: Array, step: Array, obs: Array) -> tuple[Array, Array]:
        return self.sample(acting, rng.fold(jax.random.wrap_key_data(root), "diagnose/draw", step), obs)

    def draw(self, state: State, root: np.ndarray, step: int, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions of the policy and their bonuses at many observations."""
        action, bonus = self._draw(self.acting(state), root, np.uint32(step), obs)
        return np.asarray(action), np.asarray(bonus)

    # --- values -----------------------------------------------------------------------------------------------------

    def _q_impl(self, critic: Any, statistics: Any, obs: Array, action: Array) -> Array:
        return self.agent.q(critic, normalise(statistics, obs), action)

    def _v_impl(self, params: Any, statistics: Any, obs: Array) -> Array:
        assert self.agent.exploit is not None
        return self.agent.exploit.value(params, normalise(statistics, obs))

    def q(self, state: State, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Every critic's Q(s, a), `[E, n]`, for any n."""
        return _in_chunks(functools.partial(self._q, state.critic, state.normaliser), obs, action)

    def v(self, state: State, obs: np.ndarray) -> np.ndarray:
        """The agent's own V(s), `[n]`; only for agents with an exploit estimator."""
        return _in_chunks(functools.partial(self._v, state.exploit["params"], state.normaliser), obs)

    # --- λ ----------------------------------------------------------------------------------------------------------

    def lambdas(self, state: State, batch: Any, key: Array) -> Array:
        """λ of every sample of a batch `[batch_size]`, as the update that came next would choose it with this key."""
        agent = self.agent
        assert agent.blend is not None and agent.exploit is not None
        reward = agent.config.reward_scale * batch.reward
        obs, next_obs = normalise(state.normaliser, batch.obs), normalise(state.normaliser, batch.next_obs)
        acting = state.actor if state.actor_target is None else state.actor_target
        noise = jax.random.normal(key, batch.action.shape)
        action, log_prob = agent.explore.next_action(noise, agent.actor, agent.actor.output(acting, next_obs))
        explore_value = agent.explore.value(state.explore, agent.q(state.critic_target, next_obs, action), log_prob)
        signals = Signals(
            exploit=operators.bellman_target(reward, batch.discount, agent.exploit.value(state.exploit["params"], next_obs)),
            explore=operators.bellman_target(reward, batch.discount, explore_value),
            explore_value=explore_value,
            q=jnp.min(agent.q(state.critic, obs, batch.action), axis=0),
            target_q=jnp.min(agent.q(state.critic_target, obs, batch.action), axis=0),
        )
        return agent.blend(state.blend, signals)[1]

    def lam(self, state: State, batches: Batch, root: np.ndarray, step: int) -> np.ndarray:
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
