"""Learning from what a model imagines: any off-policy agent, fed by branches that are rolled out in a learned ensemble.

Before a decision, in MBPO's order, where the trigger says that it is due:
  1. the ensemble is trained on everything in the replay (dynamics/training.py), from the weights that it has
  2. branches start at states of the replay, follow the policy for k steps in the model, and go into the memory "model"
then, as ever, the inner agent's updates, on batches that are mixed of real and imagined transitions.

Both are slow and happen in `prepare`: they consume nothing, write the memory last of all and all at once, and are functions of
what a checkpoint holds. So a run that was killed or stopped inside them goes on before them and does the same again.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from beeline import rng
from beeline.agents.base import Task
from beeline.agents.off_policy import OffPolicy
from beeline.agents.off_policy import State as Inner
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState
from beeline.dynamics.rollout import Rollout
from beeline.dynamics.training import Told, Training
from beeline.dynamics.triggers import Due, Look, Settings, Trigger
from beeline.envs.known import never
from beeline.feeds import Beside, Feed, Mixed, Uniform
from beeline.graph import Graph
from beeline.imagined import Imagined
from beeline.memory import Batch, Clock, Data, MemorySpec, Replay
from beeline.networks import Draw

METRICS = (
    "model/error", "model/epochs", "model/batches", "model/rows", "model/trainings", "rollout/length", "rollout/rows",
    "rollout/memory", "rollout/real", "rollout/updates", "time/model", "time/rollout",
)  # fmt: skip


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelBasedState:
    """The inner agent's state, the model's, and on the host the trigger's and how far the work is."""

    inner: Inner
    model: ModelState
    host: dict[str, Any]


class ModelBased:
    """The agent: an inner one, a model, when it is trained and how it is used."""

    on_policy = False

    def __init__(
        self,
        config: Any,
        task: Task,
        inner: OffPolicy,
        model: GaussianEnsemble,
        training: Training,
        first_training: Training,
        trigger: Trigger,
    ) -> None:
        self.config, self.task, self.inner = config, task, inner
        self.model, self.training, self.first_training, self.trigger = model, training, first_training, trigger
        inner.feed = self.feed(Settings(config.real_ratio, config.critic_updates_per_step))  # what it is rehearsed on
        self.rollout = Rollout(model, inner.sample, task.terminated or never)
        self.memories: Mapping[str, MemorySpec] = {
            **inner.memories, "model": MemorySpec(capacity=config.imagined_rows, imagined=True),
        }  # fmt: skip
        self.metric_names = (*inner.metric_names, *METRICS)
        self.tell: Callable[[str], None] = lambda words: None  # what goes on while `prepare` works
        self._errors = jax.jit(self._errors_impl)

    def __getattr__(self, name: str) -> Any:
        """What the inner agent has: its parts, and everything that is no state's business."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    # --- state ------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> ModelBasedState:
        """The inner agent's, and a model before any data."""
        host = {"trigger": self.trigger.init(), "asked": np.asarray(-1, np.int64), "rollouts": np.zeros((), np.int64)}
        return ModelBasedState(self.inner.init(seed), self.model.init(Draw(seed, "init/model")), host)

    def _with(self, state: ModelBasedState, inner: Inner) -> ModelBasedState:
        return dataclasses.replace(state, inner=inner)

    def _on_host(self, state: ModelBasedState, **more: Any) -> ModelBasedState:
        return dataclasses.replace(state, host=state.host | more)

    @property
    def parts(self) -> tuple[str, ...]:
        """The inner agent's, and the model."""
        return (*self.inner.parts, "model")

    def renew(self, state: ModelBasedState, parts: Sequence[str], clock: Clock) -> ModelBasedState:
        """Fresh networks; a fresh model keeps its number of trainings, and is trained before anything is imagined with it."""
        if "model" in parts:
            fresh = self.model.init(Draw(clock.seed, "init/model", clock.step))
            kept = {name: getattr(state.model, name) for name in ("mean", "deviation", "unit", "trainings")}
            state = dataclasses.replace(state, model=fresh._replace(**kept))
        return self._with(state, self.inner.renew(state.inner, [part for part in parts if part != "model"], clock))

    # --- acting: the inner agent's ----------------------------------------------------------------------------------

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """The inner agent's action; with `act_greedy` collecting is without noise once the random steps are over."""
        if mode == "collect" and self.config.act_greedy and clock.step >= self.config.random_steps:
            mode = "greedy"
        return self.inner.act(policy, carry, obs, first, clock, mode)

    def policy(self, state: ModelBasedState) -> Any:
        """The inner agent's."""
        return self.inner.policy(state.inner)

    def with_policy(self, state: ModelBasedState, policy: Any) -> ModelBasedState:
        """The inner agent's replaced."""
        return self._with(state, self.inner.with_policy(state.inner, policy))

    def begin(self, lanes: int) -> Any:
        """The inner agent's."""
        return self.inner.begin(lanes)

    def blank_policy(self) -> Any:
        """The inner agent's."""
        return self.inner.blank_policy()

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """The inner agent's."""
        return self.inner.write(graph, policy, obs)

    def notice(self, state: ModelBasedState, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> Any:
        """The inner agent's."""
        return self._with(state, self.inner.notice(state.inner, memories, steps, obs, clock))

    def heed(self, state: ModelBasedState, evaluation: Any, clock: Clock) -> ModelBasedState:
        """The inner agent's."""
        return self._with(state, self.inner.heed(state.inner, evaluation, clock))

    # --- the model --------------------------------------------------------------------------------------------------

    def since(self, clock: Clock) -> int:
        """Environment steps since the warm-up; epochs are counted from there."""
        return clock.step - self.config.warm_up[1]

    def settings(self, state: ModelBasedState, clock: Clock) -> Settings:
        """Share of real data, updates per step and k, now."""
        return self.trigger.settings(state.host["trigger"], self.since(clock))

    def branches(self, length: int) -> int:
        """Branches per environment step: as many as asked, or as the memory holds for `retain_epochs` epochs."""
        config = self.config
        return max(1, min(config.branches, config.imagined_rows // (length * config.epoch_steps * config.retain_epochs)))

    def window(self, length: int) -> int:
        """How many of the newest imagined transitions count: those of `retain_epochs` epochs at this k."""
        config = self.config
        rows = length * self.branches(length) * config.epoch_steps * config.retain_epochs
        return min(max(rows, config.batch_size), config.imagined_rows)

    def prepare(
        self, state: ModelBasedState, memories: Mapping[str, Replay], clock: Clock, stop: Callable[[], bool]
    ) -> tuple[ModelBasedState, dict[str, Any]] | None:
        """Train the model and roll out, where that is due; asked once per step."""
        since, host = self.since(clock), state.host
        if since < 0 or clock.step == int(host["asked"]):
            return state, {}
        told: dict[str, Any] = {}
        trained, fresh = int(state.model.trainings), False
        if self.trigger.trains_first and not trained:
            found = self.fit(state, memories["replay"], clock, stop)
            if found is None:
                return None
            (state, told), fresh = found, True
        own, due = self.trigger.look(host["trigger"], self.look(state, memories, clock))
        state = self._on_host(state, trigger=own, asked=np.asarray(clock.step, np.int64))
        imagined = memories["model"]
        if trained and not len(imagined):  # its rows are lost: only the newest checkpoint has them
            length = self.settings(state, clock).length
            due = Due(due.train, max(due.branches, self.window(length) // length))
        if due.branches and not np.isfinite(state.model.error).any():  # a model made anew has learnt nothing yet
            due = due._replace(train=True)
        if due.train and not fresh:
            found = self.fit(state, memories["replay"], clock, stop)
            if found is None:
                return None
            state, told = found
        if due.branches:
            rolled = self.imagine(state, memories, clock, due.branches, stop)
            if rolled is None:
                return None
            state, more = rolled
            told |= more
        return state, told

    def look(self, state: ModelBasedState, memories: Mapping[str, Replay], clock: Clock) -> Look:
        """What the trigger may look at now."""
        error = functools.partial(self.errors, state.model, memories["replay"], clock)
        branches = self.branches(self.settings(state, clock).length)
        trained = int(state.model.trainings)
        return Look(clock, self.since(clock), self.task.steps_per_decision, trained, branches, memories, error)

    def fit(
        self, state: ModelBasedState, replay: Replay, clock: Clock, stop: Callable[[], bool]
    ) -> tuple[ModelBasedState, dict[str, Any]] | None:
        """Train the model on everything that was met."""
        rows, trainings = replay.whole(), int(state.model.trainings)
        training = self.training if trainings else self.first_training

        def tell(told: Told) -> None:
            self.tell(f"model epoch {told.epoch}, error {float(np.mean(told.error)):.3g}")

        self.tell("model training")
        found = training(self.model, state.model, rows, seed=clock.seed, counter=trainings, stop=stop, tell=tell)
        if found is None:
            return None
        model, told = found
        metrics = {
            "model/error": float(np.mean(told.error[model.elites])), "model/epochs": float(told.epoch),
            "model/batches": float(told.batches), "model/rows": float(len(rows.reward)),
            "model/trainings": float(trainings + 1), "time/model": told.seconds,
        }  # fmt: skip
        return dataclasses.replace(state, model=model), metrics

    def imagine(
        self, state: ModelBasedState, memories: Mapping[str, Replay], clock: Clock, branches: int, stop: Callable[[], bool]
    ) -> tuple[ModelBasedState, dict[str, Any]] | None:
        """Roll the policy out from states that were met, and put what was imagined into its memory."""
        began, counter = time.perf_counter(), int(state.host["rollouts"])
        settings, imagined = self.settings(state, clock), memories["model"]
        assert isinstance(imagined, Imagined)
        starts = memories["replay"].sample(clock.seed, counter, 1, branches, stream="rollout/start").obs[0]

        def tell(rows: int) -> None:
            self.tell(f"rollout of {settings.length}, {rows:,} rows")

        rolled = self.rollout(
            state.model, self.inner.acting(state.inner), starts, settings.length,
            seed=clock.seed, counter=counter, stop=stop, tell=tell,
        )  # fmt: skip
        if rolled is None:
            return None
        imagined.push(*rolled, window=self.window(settings.length))
        metrics = {
            "rollout/length": float(settings.length), "rollout/rows": float(len(rolled.reward)),
            "rollout/memory": float(len(imagined)), "rollout/real": float(self.real(settings)),
            "rollout/updates": float(settings.updates), "time/rollout": time.perf_counter() - began,
        }  # fmt: skip
        return self._on_host(state, rollouts=np.asarray(counter + 1, np.int64)), metrics

    def errors(self, model: ModelState, replay: Replay, clock: Clock, decisions: int) -> NDArray[np.float64]:
        """|ŝ' − s'|₂ of the last decisions' transitions, ŝ' drawn by each elite, the mean over elites."""
        held = min(decisions * self.task.lanes, len(replay)) // self.task.lanes
        if not held:
            return np.zeros(0)
        rows = replay.recent(held)
        flat = [np.asarray(each).reshape(-1, each.shape[-1]) for each in (rows.obs, rows.action, rows.next_obs)]
        return np.asarray(self._errors(model, *flat, rng.root(clock.seed), np.uint32(clock.decisions % 2**32)), np.float64)

    def _errors_impl(self, model: ModelState, obs: Any, action: Any, next_obs: Any, root: Any, counter: Any) -> Any:
        best = self.model.members_of(model, model.elites)
        many, taken = (jnp.broadcast_to(each, (self.model.elites, *each.shape)) for each in (obs, action))
        key = rng.fold(jax.random.wrap_key_data(root), "model/error", counter)
        drawn, _ = self.model.sample(best, many, taken, jax.random.normal(key, (*many.shape[:-1], self.model.outputs)))
        return jnp.mean(jnp.sqrt(jnp.sum(jnp.square(drawn - next_obs), axis=-1)), axis=0)

    # --- learning ---------------------------------------------------------------------------------------------------

    def real(self, settings: Settings) -> int:
        """Real transitions in a batch."""
        return int(self.config.batch_size * settings.ratio)

    def feed(self, settings: Settings) -> Feed:
        """Real and imagined transitions; V, where there is one, is fitted on real ones."""
        uniform = Uniform(self.config.batch_size, self.inner.gamma)
        mixed = Mixed(uniform, self.real(settings))
        return Beside(mixed, uniform) if self.inner.has_value else mixed

    def draw(self, state: ModelBasedState, memories: Mapping[str, Replay], clock: Clock) -> Data | None:
        """The batches of the next updates, once something was imagined."""
        if not len(memories["model"]):
            return None
        settings = self.settings(state, clock)
        return self.feed(settings)(memories, clock, settings.updates * self.task.lanes)

    def update(self, state: ModelBasedState, data: Data) -> tuple[ModelBasedState, dict[str, Any]]:
        """The inner agent's updates; where their number varies they are made in powers of two, each of which is compiled once."""
        inner, metrics = state.inner, dict[str, Any]()
        for part in powers(data) if self.config.varies else [data]:
            inner, told = self.inner.update(inner, part)
            metrics |= told
        return self._with(state, inner), metrics

    # --- what instruments read --------------------------------------------------------------------------------------

    def seen(self, state: ModelBasedState, obs: Any) -> Any:
        """The inner agent's."""
        return self.inner.seen(state.inner, obs)

    def rewarded(self, state: ModelBasedState, reward: Any) -> Any:
        """The inner agent's."""
        return self.inner.rewarded(state.inner, reward)

    def acting(self, state: ModelBasedState) -> Any:
        """The inner agent's."""
        return self.inner.acting(state.inner)

    def q(self, state: ModelBasedState, obs: Any, action: Any) -> Any:
        """The inner agent's."""
        return self.inner.q(state.inner, obs, action)

    def v(self, state: ModelBasedState, obs: Any) -> Any:
        """The inner agent's."""
        return self.inner.v(state.inner, obs)

    def lam(self, state: ModelBasedState, batch: Batch, key: Any) -> Any:
        """The inner agent's."""
        return self.inner.lam(state.inner, batch, key)


def powers(data: Data) -> list[Data]:
    """The updates of a call in parts of 2^n, the largest first."""
    parts, first, left = [], 0, data.updates
    while left:
        size = 1 << (left.bit_length() - 1)
        cut = functools.partial(jax.tree.map, lambda each, a=first, n=size: each[a : a + n])
        parts.append(Data(cut(data.train), data.first + first, None if data.fit is None else cut(data.fit)))
        first, left = first + size, left - size
    return parts
