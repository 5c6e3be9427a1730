"""The training loop: prepare, draw, act, update, step, notice. It knows an agent by its protocol and nothing else.

Per decision the order is that of the reference codes: the action is chosen, the update is dispatched and runs on its own
threads, the environments step meanwhile, and the transitions are inserted. As the action was chosen before the update
and the batch was drawn before the insertion, the overlap changes no number. Both are dispatched before the loop waits
for the action, so that nothing but the policy's forward pass lies between the end of one update and the next.
An on-policy agent is updated before it acts: its next rollout must be the new policy's from the first decision on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import trees
from beeline.agents.base import Agent
from beeline.collect import Collector
from beeline.errors import BeelineError, CheckpointError, EnvError, Interrupted, ModelError, copyable
from beeline.evaluate import Evaluation, Player, evaluate
from beeline.handed import Callback, Diagnoser, EvaluationEvent, PolicyWriter, Progress, Record, Restorable, StepEvent, Store
from beeline.memory import Clock, Data, Replay
from beeline.options import TrainConfig

if TYPE_CHECKING:
    import gymnasium

    from beeline.events import Event


class Trainer:
    """A run in memory: agent, environments, memories and record, and the loop over them."""

    def __init__(
        self,
        agent: Agent,
        collector: Collector,
        memories: dict[str, Replay],
        eval_env: gymnasium.Env | None,
        config: TrainConfig,
        identity: dict[str, Any],
        recorder: Record,
        events: Sequence[Event],
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.agent, self.collector, self.memories, self.eval_env = agent, collector, memories, eval_env
        self.config, self.identity, self.recorder = config, identity, recorder
        self.events, self.callbacks = list(events), list(callbacks)
        self.state = agent.init(config.seed)
        self.carry = agent.begin(len(collector.envs))
        self.progress = Progress()
        self.metrics: dict[str, Any] = {}
        self.best_policy: dict[str, np.ndarray] = {}
        self.steps_per_decision = collector.spec.repeat * len(collector.envs)
        self.store: Store | None = None
        self.policies: PolicyWriter | None = None
        self.diagnoser: Diagnoser | None = None
        self.data: Mapping[str, Any] = {}  # of others, by the option that names them: what a run folder keeps copies of
        self.stop_requested: Callable[[], bool] = lambda: False
        self.on_decision: Callable[[], None] = lambda: None
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None
        self.on_work: Callable[[str], None] = lambda words: None  # what goes on while an agent prepares
        self.description: dict[str, Any] = {}  # of the plan, which a checkpoint vouches for
        self.stopping = False  # whether a callback wants to end the training
        self._saved: tuple[int, int] | None = None  # decisions and rows at the last checkpoint
        self.ready = False
        collector.between = self._between

    def _between(self, lane: int) -> None:
        for event in self.events:
            event.between(self, lane)

    @property
    def replay(self) -> Replay:
        """The memory that the environments fill."""
        return self.memories["replay"]

    @property
    def clock(self) -> Clock:
        """How far the run is, as agents are told it."""
        now = self.progress
        return Clock(self.config.seed, now.step, now.decisions, now.updates, self.collector.episodes)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self, until: int) -> bool:
        """Train up to `until` environment steps; False if a callback or a signal ended it earlier."""
        if not self.ready:
            self.begin()
        if self.progress.step < until:  # a process that has nothing to do must not wait for a compiler at its end
            self.agent.warm(self.memories, self.clock)
        self.stopping = False
        try:
            for event in self.events:
                event.start(self)
            if self.progress.pending:
                self._happen()
            self.collector.reopen()
            while self.progress.step < until and not self.stopping and not self.stop_requested():
                self._turn()
        except Interrupted:
            self.save()  # with what is still due noted, so that a resumed run has every row of one never stopped
            return False
        except ModelError as error:
            self.save()  # nothing has changed since the decision before
            kept = f" The run ends here, with a checkpoint of it in {self.folder}." if self.folder else ""
            raise ModelError(f"at step {self.progress.step} of the run: {error}{kept}") from error  # it would come again
        except EnvError as error:
            self.save()  # the failed lane was reset and its step counted: this is a state to go on from
            raise type(error)(f"at step {self.progress.step} of the run: {self._kept(error)}") from error
        self.save()
        return self.progress.step >= until

    def _kept(self, error: object) -> str:
        """What went wrong, and where it can be gone on from."""
        kept = f" A checkpoint is written; go on with: {copyable('resume', self.folder)}" if self.folder else ""
        return f"{error}{'.' if kept and not str(error).endswith('.') else ''}{kept}"

    def begin(self) -> None:
        """Reset the environments and write the checkpoint of step 0."""
        self.collector.begin()
        self.state = self.agent.notice(self.state, self.memories, (), self.collector.obs, self.clock)
        self.ready = True
        self.save()

    def _turn(self) -> None:
        """One decision."""
        self.agent.tell = self.on_work
        prepared = self.agent.prepare(self.state, self.memories, self.clock, self.stop_requested)
        if prepared is None:
            self.stopping = True  # given up half-way: the run resumes before it
            return
        self.state, told = prepared
        self.metrics |= told
        data = self.agent.draw(self.state, self.memories, self.clock)
        if self.agent.on_policy:
            self._update(data)
            data = None
        actions, extras, self.carry = self.agent.act(
            self.agent.policy(self.state), self.carry, self.collector.obs, self.collector.first, self.clock, "collect"
        )
        self._update(data)  # returns at once; runs beside env.step
        actions = self._finite(np.asarray(actions))
        self.progress.decisions += 1
        self.progress.step += self.steps_per_decision
        steps = self.collector.step(actions, {name: np.asarray(each) for name, each in extras.items()})
        self.state = self.agent.notice(self.state, self.memories, steps, self.collector.obs, self.clock)
        self.on_decision()
        told_step = StepEvent(self.progress.step, steps, self)
        self.stopping |= any([callback.on_step(told_step) is False for callback in self.callbacks])
        self._happen()

    def _happen(self) -> None:
        for event in self.events:
            event(self)

    def _update(self, data: Data | None) -> None:
        """Learn from what was drawn, if anything was."""
        if data is not None:
            self.state, metrics = self.agent.update(self.state, data)
            self.metrics |= metrics
            self.progress.updates += data.updates

    def _finite(self, actions: np.ndarray) -> np.ndarray:
        if not np.isfinite(actions).all():
            raise BeelineError(
                f"at step {self.progress.step} of the run: the policy's action is not finite, the networks have diverged. "
                "Lower the learning rates, or bound the gradients with grad_clip; earlier checkpoints are as they were."
            )
        return actions

    def due(self, every: int) -> bool:
        """Whether this decision has crossed a multiple of `every` environment steps."""
        step = self.progress.step
        return step // every > (step - self.steps_per_decision) // every

    # --- evaluation -------------------------------------------------------------------------------------------------

    def player(self) -> Player:
        """The policy as it is, at play."""
        return Player(self.agent, self.agent.policy(self.state), self.config.seed)

    def evaluate(self, keep: bool) -> Evaluation | None:
        """Evaluate the policy as it is, tell everybody, and write it where it is the best so far.

        With `keep` it counts as one of the run's evaluations; without, the run stays as if it had not been.
        """
        if self.eval_env is None or not self.config.eval_episodes:
            return None
        episodes, now = self.config.eval_episodes, self.progress
        result = evaluate(
            self.player(), self.eval_env, seed=self.config.seed, episodes=episodes, first_episode=now.evaluations * episodes,
            stop=self.stop_requested,
        )  # fmt: skip
        best = now.best_return is None or result.mean > now.best_return
        arrays = trees.to_arrays(self.agent.policy(self.state)) if best else {}
        if keep:
            now.evaluations += 1
            if best:
                now.best_return, now.best_step, self.best_policy = result.mean, now.step, arrays
            self.state = self.agent.heed(self.state, result, self.clock)
        if best and self.policies:
            self.policies("policy-best.npz", arrays, now.step, result.mean)
        told = EvaluationEvent(now.step, result, best, self)
        self.stopping |= any([callback.on_evaluation(told) is False for callback in self.callbacks])
        return result

    def record(self, row: dict[str, Any]) -> None:
        """Write one row."""
        self.progress.rows += 1
        self.recorder.write(row)
        self.on_row(row)

    def finish(self) -> None:
        """After the last step: evaluate and record, unless the schedule just did.

        It comes after the last checkpoint and is not part of it, so a run that is extended equals one that was longer
        from the start.
        """
        for event in self.events:
            event.finish(self)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path | None:
        """The run folder, where there is one."""
        return self.recorder.folder

    def _spaces(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self.agent.task.spaces)))

    def save(self, store: Store | None = None) -> None:
        """Write a checkpoint of everything that has state, and the policy alone beside it."""
        target = store or self.store
        moment = (self.progress.decisions, self.progress.rows)
        if target is None or (store is None and moment == self._saved):
            return
        arrays = trees.to_arrays(self.state, "agent") | trees.to_arrays(self.carry, "carry")
        measured = {name: value for name, value in self.metrics.items() if not name.startswith("time/")}  # of this process
        arrays |= trees.to_arrays(measured, "metrics")
        arrays |= {f"best{name}": value for name, value in self.best_policy.items()}
        meta: dict[str, Any] = {
            "identity": self.identity,
            "plan": self.description,
            "spaces": self._spaces(),
            "progress": dataclasses.asdict(self.progress),
            "collector": self.collector.state(),
        }
        meta |= {"rows": self.recorder.rows} if store is not None else {"table": self.recorder.sync()}
        own = {name: memory for name, memory in self.memories.items() if name in self.agent.memories}  # what can change
        target.save(self.progress.step, arrays, meta, own)
        if store is None:
            if self.policies:
                self.policies("policy.npz", trees.to_arrays(self.agent.policy(self.state)), self.progress.step, None)
            self._saved = moment

    def restore(self, checkpoint: Restorable, report: Callable[[str], None]) -> None:
        """Bring everything back to a checkpoint, the environments' open episodes included."""
        arrays, meta = checkpoint.arrays, checkpoint.meta
        if meta["spaces"] != self._spaces():
            raise CheckpointError(
                f"the checkpoint is of an environment with {_describe(meta['spaces'])}, this one has {_describe(self._spaces())}."
            )
        memories = checkpoint.memories()
        lanes = len(self.collector.envs)
        for name, memory in memories.items():
            if memory.collected and (memory.lanes, len(meta["collector"]["lanes"])) != (lanes, lanes):
                raise CheckpointError(f"it is of {memory.lanes} environments side by side, and num_envs is {lanes}.")
            if name not in self.memories or memory.capacity != self.memories[name].capacity:
                held = self.memories[name].capacity if name in self.memories else "none"
                option = "replay_capacity" if memory.collected else "imagined_rows"
                raise CheckpointError(f"its {name} has {memory.capacity} rows, and {option} is {held}.")
        self.memories |= memories
        self.collector.replay = self.replay
        self.state = trees.from_arrays(self.state, arrays, "agent")
        self.carry = trees.from_arrays(self.carry, arrays, "carry")
        self.metrics = {name[len("metrics['") : -len("']")]: each for name, each in arrays.items() if name.startswith("metrics[")}
        self.best_policy = {name[len("best") :]: array for name, array in arrays.items() if name.startswith("best[")}
        self.progress = Progress(**meta["progress"])
        self.recorder.restore(meta, checkpoint.step, report)
        if self.best_policy and self.policies:
            self.policies("policy-best.npz", self.best_policy, self.progress.best_step, self.progress.best_return)
        self.collector.restore(meta["collector"], report)
        self.ready = True


def _describe(spaces: dict[str, Any]) -> str:
    low, high = spaces["action_low"], spaces["action_high"]
    return f"{spaces['obs_dim']} observations and {len(low)} actions in [{min(low):g}, {max(high):g}]"
