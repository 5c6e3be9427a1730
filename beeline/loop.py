"""The training loop: act, update, step, insert. Everything it needs is handed to it.

Per decision the order is that of the reference codes: the action is chosen, the update is dispatched and runs on its own
threads, the environments step meanwhile, and the transitions are inserted. As the action was chosen before the update
and the batch was drawn before the insertion, the overlap changes no number. Both are dispatched before the loop waits
for the action, so that nothing but the policy's forward pass lies between the end of one update and the next.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from beeline import rng, trees
from beeline.agents.base import Agent, Batches
from beeline.collect import Collector, Transition
from beeline.errors import BeelineError, CheckpointError, EnvError, Interrupted
from beeline.evaluate import Evaluation, evaluate
from beeline.options import TrainConfig
from beeline.replay import Replay
from beeline.run import policy as policies
from beeline.run.checkpoint import Checkpoint, CheckpointStore
from beeline.run.record import Recorder

if TYPE_CHECKING:
    import gymnasium


@dataclasses.dataclass(frozen=True)
class StepEvent:
    """What a callback sees after every decision."""

    step: int
    transitions: Sequence[Transition]
    trainer: Trainer


@dataclasses.dataclass(frozen=True)
class EvaluationEvent:
    """What a callback sees after every evaluation."""

    step: int
    evaluation: Evaluation
    best: bool
    trainer: Trainer


class Diagnoser(Protocol):
    """What is asked every `diagnose` steps; it reads state and replay, and has an environment and streams of its own."""

    env: gymnasium.Env
    columns: tuple[str, ...]
    stop: Callable[[], bool]

    def __call__(self, state: Any, replay: Replay, step: int) -> dict[str, float]:
        """The values of its columns."""


class Callback:
    """Subclass and override what you need; return False from either method to stop the training."""

    def on_step(self, event: StepEvent) -> bool | None:
        """Called after every decision."""

    def on_evaluation(self, event: EvaluationEvent) -> bool | None:
        """Called after every evaluation."""


@dataclasses.dataclass
class Progress:
    """How far a run is; small enough to be stored as plain values."""

    step: int = 0
    decisions: int = 0
    updates: int = 0
    evaluations: int = 0
    rows: int = 0
    best_return: float | None = None
    best_step: int = -1
    pending: bool = False  # what is due after this step was given up at a signal, and is done first when the run goes on


def _describe(spaces: dict[str, Any]) -> str:
    low, high = spaces["action_low"], spaces["action_high"]
    return f"{spaces['obs_dim']} observations and {len(low)} actions in [{min(low):g}, {max(high):g}]"


class Trainer:
    """A run in memory: agent, environments, replay and record, and the loop over them."""

    def __init__(
        self,
        agent: Agent,
        envs: Sequence[gymnasium.Env],
        eval_env: gymnasium.Env | None,
        config: TrainConfig,
        recorder: Recorder,
        store: CheckpointStore | None,
        identity: dict[str, Any],
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.agent, self.config, self.recorder, self.store = agent, config, recorder, store
        self.eval_env, self.identity, self.callbacks = eval_env, identity, list(callbacks)
        spaces = agent.spaces
        self.replay = Replay(config.replay_capacity, spaces.obs_dim, spaces.action_dim, len(envs))
        self.collector = Collector(envs, self.replay, config.seed)
        self.state = agent.init(config.seed)
        self.actor_state = agent.init_actor_state(len(envs))
        self.progress = Progress()
        self.metrics: dict[str, Any] = {}
        self.best_policy: dict[str, np.ndarray] = {}
        self.updates_per_decision = agent.config.critic_updates_per_step * len(envs)
        self.steps_per_decision = self.collector.spec.repeat * len(envs)
        self.stop_requested: Callable[[], bool] = lambda: False
        self.on_decision: Callable[[], None] = lambda: None
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None
        self.diagnoser: Diagnoser | None = None
        self._clock = (time.perf_counter(), 0)
        self._saved: tuple[int, int] | None = None  # decisions and rows at the last checkpoint
        self.ready = False

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self, until: int) -> bool:
        """Train up to `until` environment steps; False if a callback or a signal ended it earlier."""
        if not self.ready:
            self.begin()
        try:
            if not self.progress.rows:
                evaluated = self._evaluate()
                stop = evaluated.pop("stop", False)
                self._write_row(evaluated)
                if stop:
                    self.save()
                    return self.progress.step >= until
            self._clock = (time.perf_counter(), self.progress.step)
            if self.progress.pending and not self._what_is_due():
                self.save()
                return self.progress.step >= until
            self.collector.reopen()
            batches = self._draw()
            while self.progress.step < until:
                actions = self._choose_actions()
                if batches is not None:
                    self.state, metrics = self.agent.update(self.state, batches)  # returns at once; runs beside env.step
                    self.metrics |= metrics
                    self.progress.updates += self.updates_per_decision
                actions = self._finite(np.asarray(actions))
                self._count_decision()
                transitions = self.collector.step(actions)
                go_on = self._after_step(transitions)
                if self.stop_requested() or not go_on:
                    self.save()
                    return self.progress.step >= until
                batches = self._draw()
        except Interrupted:
            self.save()  # with what is still due noted, so that a resumed run has every row of one never stopped
            return False
        except EnvError as error:
            self.save()  # the failed lane was reset and its step counted: this is a state to go on from
            kept = f" A checkpoint is written; go on with: beeline resume {self.folder}" if self.folder else ""
            raise type(error)(f"at step {self.progress.step} of the run: {error}{kept}") from error
        self.save()
        return True

    def begin(self) -> None:
        """Reset the environments and write the checkpoint of step 0."""
        self.collector.begin()
        self._take_statistics()
        self.ready = True
        self.save()

    def _choose_actions(self) -> Any:
        """The actions of this decision, which may still be under way."""
        c, shape = self.collector, (len(self.collector.envs), self.agent.spaces.action_dim)
        if self.progress.step < self.agent.config.random_steps:
            uniform = rng.stream(self.config.seed, "random actions", self.progress.decisions)
            return uniform.uniform(-1.0, 1.0, shape).astype(np.float32)
        actions, _, self.actor_state = self.agent.act(
            self.state, self.actor_state, c.obs, c.first, self.progress.decisions, "explore"
        )
        return actions

    def _finite(self, actions: np.ndarray) -> np.ndarray:
        if not np.isfinite(actions).all():
            raise BeelineError(
                f"at step {self.progress.step} of the run: the policy's action is not finite, the networks have diverged. "
                "Lower the learning rates, or bound the gradients with grad_clip; earlier checkpoints are as they were."
            )
        return actions

    def _draw(self) -> Batches | None:
        """The batches of the next update, drawn while the last one may still be running; None while it is too early."""
        config = self.agent.config
        if len(self.replay) <= config.batch_size or self.progress.step < config.learn_after:
            return None
        train = self.replay.sample(
            self.config.seed, self.progress.updates, self.updates_per_decision, config.batch_size,
            gamma=config.gamma, n_step=config.n_step,
        )  # fmt: skip
        return Batches(train, self.progress.updates)

    def _count_decision(self) -> None:
        self.progress.decisions += 1
        self.progress.step += self.steps_per_decision

    def _due(self, every: int) -> bool:
        step = self.progress.step
        return step // every > (step - self.steps_per_decision) // every

    def _take_statistics(self) -> None:
        if getattr(self.agent.config, "normalize_obs", False):
            # A copy: JAX may read the array after the next step has been written into the collector's own.
            self.state = self.agent.observe(self.state, self.collector.obs.copy())

    def _after_step(self, transitions: Sequence[Transition]) -> bool:
        """Statistics and callbacks, then what is due; False if a callback wants to stop."""
        self._take_statistics()
        self.on_decision()
        event = StepEvent(self.progress.step, transitions, self)
        stop = any([callback.on_step(event) is False for callback in self.callbacks])
        return self._what_is_due() and not stop

    def _what_is_due(self) -> bool:
        """Diagnosis, evaluation, row and checkpoint of this step; False if a callback wants to stop.

        The diagnosis comes first: it leaves no trace, so both can be done again where a signal ends one of them.
        """
        self.progress.pending = True
        diagnosed: dict[str, float] = {}
        if self.diagnoser is not None and self.config.diagnose and self._due(self.config.diagnose):
            diagnosed = self.diagnoser(self.state, self.replay, self.progress.step)
        evaluated: dict[str, Any] = {}
        stop = False
        if self._due(self.config.eval_every):
            evaluated = self._evaluate()
            stop = evaluated.pop("stop", False)
        self.progress.pending = False
        if evaluated or self._due(self.config.log_every):
            self._write_row(evaluated | diagnosed)
        elif diagnosed:  # a row of its own, which takes nothing from the rows that a run without diagnoses writes
            self._record({"step": self.progress.step, "updates": self.progress.updates, **diagnosed, "time/wall": time.time()})
        if self._due(self.config.checkpoint_every):
            self.save()
        return not stop

    # --- evaluation and record --------------------------------------------------------------------------------------

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The greedy action in [-1, 1] for one observation."""
        return policies.greedy(self.agent, self.state, obs)

    def evaluation(self, first_episode: int) -> Evaluation:
        """One evaluation of the policy as it is."""
        assert self.eval_env is not None
        return evaluate(
            self.act, self.eval_env, seed=self.config.seed, episodes=self.config.eval_episodes, first_episode=first_episode,
            stop=self.stop_requested,
        )  # fmt: skip

    def _evaluate(self) -> dict[str, Any]:
        if self.eval_env is None or not self.config.eval_episodes:
            return {}
        result = self.evaluation(self.progress.evaluations * self.config.eval_episodes)
        self.progress.evaluations += 1
        best = self._is_best(result)
        if best:
            self.progress.best_return, self.progress.best_step = result.mean, self.progress.step
            self.best_policy = self.agent.policy(self.state)
            self._write_policy("policy-best.npz", self.best_policy, self.progress.best_step, result.mean)
        return result.row() | ({"stop": True} if self._tell(result, best) else {})

    def _is_best(self, result: Evaluation) -> bool:
        return self.progress.best_return is None or result.mean > self.progress.best_return

    def _tell(self, result: Evaluation, best: bool) -> bool:
        """Show an evaluation to the callbacks; True if one of them wants to stop."""
        event = EvaluationEvent(self.progress.step, result, best, self)
        return any([callback.on_evaluation(event) is False for callback in self.callbacks])

    def _write_row(self, evaluated: dict[str, Any]) -> None:
        now = time.perf_counter()
        began, first_step = self._clock
        row: dict[str, Any] = {"step": self.progress.step, "updates": self.progress.updates, **self.collector.drain()}
        row |= evaluated
        row |= {name: float(value) for name, value in self.metrics.items()}
        row |= {"time/wall": time.time(), "time/steps_per_second": (self.progress.step - first_step) / max(now - began, 1e-9)}
        self._clock = (now, self.progress.step)
        self._record(row)

    def _record(self, row: dict[str, Any]) -> None:
        self.progress.rows += 1
        self.recorder.write(row)
        self.on_row(row)

    def finish(self) -> Evaluation | None:
        """After the last step: evaluate and record, unless the schedule just did.

        It comes after the last checkpoint and is not part of it, so a run that is extended equals one that was longer
        from the start.
        """
        if self.eval_env is None or not self.config.eval_episodes or self._due(self.config.eval_every):
            return None
        result = self.evaluation(self.progress.evaluations * self.config.eval_episodes)
        best = self._is_best(result)
        if best:
            self._write_policy("policy-best.npz", self.agent.policy(self.state), self.progress.step, result.mean)
        self._tell(result, best)
        self._write_row(result.row())
        return result

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path | None:
        """The run folder, where there is one."""
        return self.recorder.folder

    def _write_policy(self, name: str, arrays: dict[str, np.ndarray], step: int, score: float | None) -> None:
        if self.folder:
            policies.save_arrays(self.folder / name, arrays, self.policy_meta(step, score))

    def policy_meta(self, step: int, score: float | None = None) -> dict[str, Any]:
        """What a policy file of this run says of itself."""
        about = {"step": step, "eval_return": score, "repeat": self.config.repeat, "limit": self.config.limit}
        return policies.describe(self.identity["algo"], self.identity["env"], self.agent, **about)

    def _spaces(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self.agent.spaces)))

    def save(self, store: CheckpointStore | None = None) -> None:
        """Write a checkpoint of everything that has state, and the policy alone beside it."""
        target = store or self.store
        moment = (self.progress.decisions, self.progress.rows)
        if target is None or (store is None and moment == self._saved):
            return
        arrays = trees.to_arrays(self.state, "agent") | trees.to_arrays(self.actor_state, "actor_state")
        arrays |= trees.to_arrays(self.metrics, "metrics")
        arrays |= {f"best{name}": value for name, value in self.best_policy.items()}
        meta: dict[str, Any] = {
            "identity": self.identity,
            "spaces": self._spaces(),
            "progress": dataclasses.asdict(self.progress),
            "collector": self.collector.state(),
            "metrics_bytes": self.recorder.sync() if store is None else 0,
        }
        if store is not None:
            meta["rows"] = self.recorder.rows
        target.save(self.progress.step, arrays, meta, self.replay)
        if store is None:
            self._write_policy("policy.npz", self.agent.policy(self.state), self.progress.step, None)
            self._saved = moment

    def restore(self, checkpoint: Checkpoint, report: Callable[[str], None]) -> None:
        """Bring everything back to a checkpoint, the environments' open episodes included."""
        arrays, meta = checkpoint.arrays, checkpoint.meta
        if meta["spaces"] != self._spaces():
            raise CheckpointError(
                f"the checkpoint is of an environment with {_describe(meta['spaces'])}, this one has {_describe(self._spaces())}."
            )
        self.replay = checkpoint.restore_replay()
        self.collector.replay = self.replay
        self.state = trees.from_arrays(self.state, arrays, "agent")
        self.actor_state = trees.from_arrays(self.actor_state, arrays, "actor_state")
        names = [name for name in arrays if name.startswith("metrics[")]
        self.metrics = {name[len("metrics['") : -len("']")]: arrays[name] for name in names}
        self.best_policy = {name[len("best") :]: array for name, array in arrays.items() if name.startswith("best[")}
        self.progress = Progress(**meta["progress"])
        self.recorder.cut(meta["metrics_bytes"])
        if self.best_policy:
            self._write_policy("policy-best.npz", self.best_policy, self.progress.best_step, self.progress.best_return)
        self.collector.restore(meta["collector"], report)
        self.ready = True
