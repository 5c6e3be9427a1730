"""The parts of RRS: targets with a shift each, a policy judged by the selected pair of critics, and who selects it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import rng
from beeline.agents.backup import Smoothed
from beeline.agents.objective import FirstCritic, Metrics
from beeline.agents.off_policy import OffPolicy, State
from beeline.memory import Batch, Clock
from beeline.networks import Params

if TYPE_CHECKING:
    from beeline.agents.rrs import RRSConfig


@dataclasses.dataclass(frozen=True)
class Shifted(Smoothed):
    """y_k = r + b_k + γ m min_j Q̄_kj(s', ã'), with TD3's ã': the shift b_k is there on terminal transitions too."""

    shifts: tuple[float, ...]

    def reward(self, batch: Batch) -> Array:
        """r + b_k, `[K, B]`."""
        return batch.reward + jnp.array(self.shifts, batch.reward.dtype)[:, None]


@dataclasses.dataclass(frozen=True)
class Selected(FirstCritic):
    """L_π = −mean Q_{k*,1}(s, π(s)): the first critic of the selected pair; k* is `host["selected"]`."""

    shifts: tuple[float, ...] = ()
    metric_names: tuple[str, ...] = ("shift",)

    def judge(self, critic: Params, state: Any) -> Params:
        """The one critic that judges the policy, as an ensemble of one pair of one."""
        selected = state.host["selected"]
        return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, selected)[:, :1], critic)

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """That critic's, and b_{k*} to be logged."""
        value, _ = super().loss(params, own, state, critic, batch, noise)
        return value, jnp.array(self.shifts)[state.host["selected"]]

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """Nothing to learn."""
        return own, {"shift": seen}


class ShiftedAgent(OffPolicy):
    """Off-policy learning with a pair of critics per shift. Which pair judges the policy is drawn on the host.

    k* is drawn before the first decision, and again whenever an episode ends in any lane and at least `switch_every` environment
    steps, those of all lanes together, have passed since the last draw. There is one policy, hence one k* for all lanes.
    """

    config: RRSConfig

    def init_host(self) -> dict[str, Any]:
        """The statistics, k*, and the step at which it was drawn."""
        return super().init_host() | {"selected": np.int32(0), "drawn_at": np.int32(0)}

    def notice(self, state: State, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> State:
        """Draw k* where it is due."""
        state = super().notice(state, memories, steps, obs, clock)
        ended = any(step.terminated or step.truncated for step in steps)
        long_enough = clock.step - int(state.host["drawn_at"]) >= self.config.switch_every
        if clock.decisions and not (ended and long_enough):
            return state
        selected = rng.stream(clock.seed, "select shift", clock.step).integers(len(self.config.shifts))
        host = state.host | {"selected": np.int32(selected), "drawn_at": np.int32(clock.step)}
        return dataclasses.replace(state, host=host)

    # --- what instruments read --------------------------------------------------------------------------------------

    @property
    def nearest(self) -> int:
        """The pair that instruments read: the one with the smallest shift, zero in all of the published lists."""
        return int(np.argmin(np.abs(self.config.shifts)))

    @property
    def surplus(self) -> float:
        """What its shift adds to every value, where that is known: b Σ_t γ^t of an episode without end."""
        gamma = self.gamma
        return 0.0 if self.task.ends or gamma == 1.0 else self.config.shifts[self.nearest] / (1.0 - gamma)

    def q(self, state: State, obs: Array, action: Array) -> Array:
        """Q(s, a) of the pair with the smallest shift, less that shift's value where episodes have no end."""
        return super().q(state, obs, action)[self.nearest] - self.surplus

    def v(self, state: State, obs: Array) -> Array:
        """V(s) of the same shift, likewise."""
        return super().v(state, obs)[self.nearest] - self.surplus
