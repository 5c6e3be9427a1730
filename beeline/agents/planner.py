"""The agent of PETS: its state is a model, and what it carries from decision to decision is a plan.

One decision (Chua et al. 2018; the details are those of kchua/handful-of-trials):
  1. the plan begins as the last one without its first action and with a zero appended; at the start of an episode it is zeros
  2. `cem.TruncatedCem` searches around it for the sequence whose score under the model (`dynamics.planning`) is highest
  3. its first action is taken
Whenever an episode has ended, or every `model_every` steps, the model is trained on all transitions before the next decision.
Until the first training actions are uniformly random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import rng
from beeline.agents.base import Defaults, Task
from beeline.cem import TruncatedCem
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState
from beeline.dynamics.planning import Planner
from beeline.dynamics.training import Told, Training
from beeline.errors import CheckpointError, ExportError
from beeline.graph import Graph
from beeline.memory import Clock, Data, MemorySpec, Replay
from beeline.networks import Draw, Slot

if TYPE_CHECKING:
    from beeline.agents.pets import PETSConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The model, and how far the run was at its last training."""

    model: ModelState
    host: dict[str, Any]  # NumPy: episodes and steps


class PETS(Defaults):
    """Plans every action under a model that it learns."""

    metric_names = ("model/mse", "model/epochs", "model/batches", "model/rows", "model/trainings")

    def __init__(self, config: PETSConfig, task: Task) -> None:
        self.config, self.task = config, task
        self.memories: Mapping[str, MemorySpec] = {"replay": MemorySpec()}
        self.model = GaussianEnsemble(
            task.spaces.obs_dim, task.spaces.action_dim, members=config.model_members, elites=config.model_members,
            hidden=config.hidden, decay=config.model_decay, rate=config.model_lr,
        )  # fmt: skip
        self.training = Training(
            batch_size=config.batch_size, holdout=0.0, rule="fixed", epochs=config.model_epochs, batches=config.model_batches
        )
        self._act = jax.jit(self._act_impl)

    @property
    def planner(self) -> Planner:
        """The search, under the task's own end and, where it is known and wanted, its own reward."""
        config = self.config
        if self.task.terminated is None:
            raise CheckpointError(
                "a policy of pets plans, for which it must know where episodes of its task end: give the task, policy.on(env)."
            )
        return Planner(
            self.model, TruncatedCem(config.population, config.elites, config.iterations, config.momentum), config.lookahead,
            config.particles, config.propagation, self.task.terminated,
            self.task.reward if config.known_reward else None,
        )  # fmt: skip

    # --- state ------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """A model that has learnt nothing."""
        host = {name: np.zeros((), np.int64) for name in ("episodes", "step")}
        return State(self.model.init(Draw(seed, "init/model")), host)

    def policy(self, state: State) -> Any:
        """The model without its optimiser: what a search reads."""
        model = state.model
        kept = {"mean": model.mean, "deviation": model.deviation, "unit": model.unit, "trainings": model.trainings}
        return {"nets": model.slot.live, **kept}

    def blank_policy(self) -> Any:
        """A policy of the right shapes."""
        return self.policy(State(self.model.init(Draw(0, "init/model")), {}))

    def with_policy(self, state: State, policy: Any) -> State:
        """The state with the model replaced; Adam begins anew."""
        nets = jax.tree.map(jnp.array, policy["nets"])
        fresh = self.model.init(Draw(0, "init/model"))
        own = {name: policy[name] for name in ("mean", "deviation", "unit", "trainings")}
        return dataclasses.replace(state, model=fresh._replace(slot=fresh.slot._replace(live=nets), **own))

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """There is no function of one observation."""
        raise ExportError(
            "pets has no policy network: it searches for every action under its model, and goes on from its last plan. "
            "Train another method on the same task for a file that acts by itself."
        )

    # --- acting -----------------------------------------------------------------------------------------------------

    def begin(self, lanes: int) -> np.ndarray:
        """No plan yet, in any lane."""
        return np.zeros((lanes, self.config.lookahead, self.task.spaces.action_dim), np.float32)

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """The first action of each lane's plan, in every mode; random ones before the model's first training."""
        role = "collect" if mode == "collect" else f"{mode}/{clock.episodes}"
        if not int(policy["trainings"]):
            random = rng.stream(clock.seed, f"random/{role}", clock.decisions)
            return random.uniform(-1.0, 1.0, (len(obs), self.task.spaces.action_dim)).astype(np.float32), {}, carry
        role_tag, counter = np.uint32(rng.tag(f"plan/{role}")), np.uint32(clock.decisions % 2**32)
        action, carry = self._act(policy, rng.root(clock.seed), role_tag, counter, carry, obs, first)
        return action, {}, carry

    def _act_impl(
        self, policy: Any, key: Array, role: Array, counter: Array, carry: Array, obs: Array, first: Array
    ) -> tuple[Array, Array]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(key), role), counter)
        model = ModelState(Slot(policy["nets"], None, ()), policy["mean"], policy["deviation"], policy["unit"], *self._unread)
        start = jnp.where(first[:, None, None], 0.0, carry)
        plan = self.planner.plan(model, obs, start, key)
        return plan[:, 0], jnp.concatenate([plan[:, 1:], jnp.zeros_like(plan[:, :1])], axis=1)

    @property
    def _unread(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a model state has beside: all members predict."""
        members = self.config.model_members
        return np.arange(members, dtype=np.int32), np.zeros(members, np.float32), np.zeros((), np.int64)

    # --- learning ---------------------------------------------------------------------------------------------------

    def due(self, state: State, clock: Clock) -> bool:
        """Whether the model is trained before the next decision."""
        if self.config.model_every is None:
            return clock.episodes > int(state.host["episodes"])
        return clock.step - int(state.host["step"]) >= self.config.model_every

    def prepare(
        self, state: State, memories: Mapping[str, Replay], clock: Clock, stop: Callable[[], bool]
    ) -> tuple[State, dict[str, Any]] | None:
        """Train the model on all that was met, where it is time."""
        if not self.due(state, clock):
            return state, {}
        rows = memories["replay"].whole()
        found: tuple[ModelState, Told] | None = self.training(
            self.model, state.model, rows, seed=clock.seed, counter=int(state.model.trainings), stop=stop,
            tell=lambda told: self.tell(f"model epoch {told.epoch}, error {float(np.mean(told.error)):.3g}"),
        )  # fmt: skip
        if found is None:
            return None
        model, told = found
        host = {"episodes": np.asarray(clock.episodes, np.int64), "step": np.asarray(clock.step, np.int64)}
        metrics = {
            "model/mse": float(np.mean(told.error)), "model/epochs": float(told.epoch), "model/batches": float(told.batches),
            "model/rows": float(len(rows.reward)), "model/trainings": float(model.trainings),
        }  # fmt: skip
        return State(model, host), metrics

    def draw(self, state: State, memories: Any, clock: Clock) -> Data | None:
        """Nothing is learnt but the model."""
        return None

    def update(self, state: State, data: Data) -> tuple[State, dict[str, Any]]:
        """Never called, since nothing is drawn."""
        return state, {}
