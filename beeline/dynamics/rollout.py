"""Branched rollouts (Janner et al. 2019): from states that were met, k steps of the policy in the learned model.

Branches are taken in blocks of a fixed shape, so that one compiled program serves any number of them and any k. In a block
each elite gets the same number of rows: the starts are independent draws, so the first rows go to the first elite; before every
further step the rows are shuffled. A branch that has ended is carried along, and its rows are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from beeline import rng
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState

BLOCK = 256  # rows of an elite in a block, at most
Policy = Callable[[Any, Any, Any], tuple[Any, Any]]  # (acting, key, obs) -> actions and their bonus


class Rolled(NamedTuple):
    """Imagined transitions `[n, …]`."""

    obs: NDArray[np.float32]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    next_obs: NDArray[np.float32]
    terminated: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Rollout:
    """Rolls a policy out in a model; compiled once for each number of rows in a block."""

    model: GaussianEnsemble
    policy: Policy
    terminated: Callable[[Any, Any, Any], Any]  # (obs, action, next_obs) -> where an episode ends

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", jax.jit(self._step))
        object.__setattr__(self, "chosen", jax.jit(self.model.members_of))

    step: Callable[..., Any] = dataclasses.field(init=False)
    chosen: Callable[..., Any] = dataclasses.field(init=False)

    def _step(
        self, state: ModelState, acting: Any, root: Array, counter: Any, block: Any, depth: Any, obs: Array, alive: Array,
        order: Array,
    ) -> tuple[Array, ...]:  # fmt: skip
        """One step of all rows of a block; `state` is that of the elites alone."""
        obs, alive = obs[order], alive[order]
        key = rng.fold(jax.random.wrap_key_data(root), "rollout", counter)
        for_policy, for_model = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, block), depth))
        action, _ = self.policy(acting, for_policy, obs)
        elites = len(state.elites)
        shared, taken = (each.reshape(elites, -1, each.shape[-1]) for each in (obs, action))
        noise = jax.random.normal(for_model, (*shared.shape[:-1], self.model.outputs))
        next_obs, reward = self.model.sample(state, shared, taken, noise)
        next_obs, reward = next_obs.reshape(obs.shape), reward.reshape(-1)
        kept = alive & jnp.isfinite(next_obs).all(-1) & jnp.isfinite(reward)
        ended = jnp.broadcast_to(self.terminated(obs, action, next_obs), kept.shape)
        return obs, action, reward, next_obs, ended, kept

    def __call__(
        self,
        state: ModelState,
        acting: Any,
        starts: NDArray[np.float32],
        length: int,
        *,
        seed: int,
        counter: int,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[int], None] = lambda rows: None,
    ) -> Rolled | None:
        """Branches of `length` steps from these states; None where it was told to stop. `tell` hears of rows so far."""
        elites = len(state.elites)
        each = min(BLOCK, -(-len(starts) // elites))
        size = each * elites
        best = self.chosen(state, np.asarray(state.elites))
        found: list[list[NDArray]] = []
        rows = 0
        for block, first in enumerate(range(0, len(starts), size)):
            part = starts[first : first + size]
            alive: Any = self.seats(len(part), elites, each)
            obs: Any = np.zeros((size, self.model.obs_dim), np.float32)
            obs[alive] = part
            for depth in range(length):
                if stop():
                    return None
                order = self.order(size, seed, counter, block, depth)
                at = (np.int32(counter), np.int32(block), np.int32(depth))
                told = self.step(best, acting, rng.root(seed), *at, obs, alive, order)
                *columns, kept = map(np.asarray, told)
                found.append([column[kept] for column in columns])
                rows += int(np.count_nonzero(kept))
                obs, alive = told[3], kept & ~columns[-1]
                if not alive.any():
                    break
            tell(rows)
        return _gathered(found)

    @staticmethod
    def seats(rows: int, elites: int, each: int) -> NDArray[np.bool_]:
        """Which rows of a block are taken: where there are too few for all, as many of each elite, but for one."""
        shares = rows // elites + (np.arange(elites) < rows % elites)
        return (np.arange(each) < shares[:, None]).ravel()

    @staticmethod
    def order(size: int, seed: int, counter: int, block: int, depth: int) -> NDArray[np.int32]:
        """In which order the rows of a block go to the elites; at the first step as they are."""
        if not depth:
            return np.arange(size, dtype=np.int32)
        return rng.stream(seed, f"rollout/permute {block}.{depth}", counter).permutation(size).astype(np.int32)


def _gathered(found: list[list[NDArray]]) -> Rolled:
    obs, action, reward, next_obs, ended = (np.concatenate(each) for each in zip(*found))
    return Rolled(obs, action, reward, next_obs, ended)
