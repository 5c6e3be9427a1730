"""The conformance test of an algorithm: `check_agent(entry)` trains it for a moment and holds it to the promises of the protocol.

    from beeline.testing import check_agent
    def test_my_algorithm(): check_agent(my_package.ENTRY)

A broken promise is a `BrokenPromiseError` that names it and says what was seen. The entry need not be installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

from beeline import agents, api, trees
from beeline.agents.base import Agent
from beeline.agents.registry import Entry, examine
from beeline.config import located
from beeline.errors import BeelineError
from beeline.evaluate import Player, evaluate
from beeline.loop import Callback, StepEvent, Trainer
from beeline.memory import Replay
from beeline.options import TrainConfig
from beeline.run.checkpoint import CheckpointStore
from beeline.run.opened import Run
from beeline.run.policy import load_policy
from beeline.run.record import LOOP_COLUMNS, TIME_COLUMNS

# What makes a method small; an entry that lacks an option goes without it.
SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 8, "random_steps": 20, "learn_after": 20}
RUN: dict[str, Any] = {
    "steps": 120, "eval_every": 50, "eval_episodes": 1, "log_every": 20, "checkpoint_every": 30, "replay_capacity": 10_000,
    "tensorboard": False,
}  # fmt: skip


_WHOLE = "the array itself"  # the name of a leaf that is the whole tree


class BrokenPromiseError(BeelineError, AssertionError):
    """An agent does not keep a promise of the protocol."""


class Point(gymnasium.Env[np.ndarray, np.ndarray]):
    """A point that is pushed along a line towards zero and shaken; it falls off at |x| > 1, and 20 steps are an episode."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def beeline_terminated(self, obs: Any, action: Any, next_obs: Any) -> Any:
        """Where an episode ends, for methods with a learned model."""
        return abs(next_obs[..., 0]) > 1

    def _obs(self) -> np.ndarray:
        return np.array([self._x, self._time / 20])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin somewhere near zero."""
        super().reset(seed=seed)
        self._x, self._time = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Push."""
        self._x += 0.08 * (float(action[0]) - 0.5) + 0.05 * float(self.np_random.normal())
        self._time += 1
        return self._obs(), -(self._x**2), abs(self._x) > 1, self._time == 20, {}


def check_agent(entry: Entry, env: Any = Point, **options: Any) -> None:
    """Hold an algorithm to every promise of the protocol `Agent`; raise `BrokenPromiseError` at the first that is broken.

    `env` is an id or a factory; `options` make the algorithm small enough to learn within 120 steps. Where its config has
    `hidden`, `batch_size`, `random_steps` and `learn_after`, these are small already.
    """
    examine(entry)
    known = {*entry.config.names(), *TrainConfig.names()}
    small = SMALL | RUN | ({"limit": 20} if env is Point else {})
    chosen = {name: value for name, value in small.items() if name in known} | options
    check = _Check(entry, env, chosen)
    check.sizes()
    check.metrics()
    check.leaves()
    check.drawn_twice()
    check.consumed()
    check.acting()
    check.renewed()
    check.policy_file()
    with tempfile.TemporaryDirectory() as folder:
        check.same_seed(Path(folder))
        check.resumed(Path(folder))


def _broken(promise: str, seen: str) -> BrokenPromiseError:
    return BrokenPromiseError(f"{promise}: {seen}.")


def _different(left: Any, right: Any) -> str:
    """The name of the first leaf in which two pytrees differ, or nothing."""
    return _unequal(trees.to_arrays(left), trees.to_arrays(right))


def _unequal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> str:
    """The same of named arrays."""
    if ours.keys() != theirs.keys():
        return f"{min(ours.keys() ^ theirs.keys())} is in one of them only"
    unequal = [name for name in ours if ours[name].dtype != theirs[name].dtype or ours[name].tobytes() != theirs[name].tobytes()]
    return (unequal[0] or _WHOLE) if unequal else ""


def _gone(tree: Any) -> str:
    """The name of a leaf whose memory was given away, or nothing."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    dead = [jax.tree_util.keystr(path) for path, leaf in leaves if isinstance(leaf, jax.Array) and leaf.is_deleted()]
    return (dead[0] or _WHOLE) if dead else ""


def _form(tree: Any) -> dict[str, str]:
    """Where each leaf lives, its type and its shape."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        host = isinstance(leaf, np.ndarray | np.generic)
        kind = f"{'NumPy' if host else 'JAX'} {leaf.dtype}{list(leaf.shape)}" if host or isinstance(leaf, jax.Array) else ""
        found[jax.tree_util.keystr(path)] = kind or f"a {type(leaf).__name__}, no array"
    return found


def _held(memories: Mapping[str, Replay]) -> dict[str, Any]:
    """Everything that memories hold."""
    return {
        f"{name}/{lane}": memory.export(lane, memory.oldest(lane), memory.rows(lane))
        for name, memory in memories.items()
        for lane in range(memory.lanes)
    }


class _Killed(BaseException):
    """What ends a run as a power cut does: nothing is written after it."""


class _Killer(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, event: StepEvent) -> None:
        if event.step >= self.step:
            raise _Killed


class _Check:
    """One method per promise, on an agent that has trained for a while."""

    def __init__(self, entry: Entry, env: Any, options: dict[str, Any]) -> None:
        self.entry, self.env, self.options, self.steps = entry, env, options, int(options["steps"])
        with self.fresh():
            self.model = api.model(entry.name)(env, **options)
            self.initial = _form(self.trainer.state)
            self.model.learn(self.steps)
            if not self.trainer.progress.updates and not self.trainer.metrics:
                raise _broken("nothing can be checked where nothing is learnt", f"give options with which {self.steps} steps do")

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """The entry under its name, with agents that share nothing with those from before, as in another process."""
        build: Callable[..., Agent] = functools.partial(located(self.entry.build_at))
        with agents.ALGORITHMS.lend(dataclasses.replace(self.entry, build_at=build)):
            yield

    @property
    def trainer(self) -> Trainer:
        return self.model.trainer

    @property
    def agent(self) -> Agent:
        return self.trainer.agent

    def unharmed(self, promise: str, what: str, before: dict[str, np.ndarray], now: Any) -> None:
        """What a call was given is as it was, by its arrays from before."""
        if gone := _gone(now):
            raise _broken(promise, f"{what} was consumed ({gone})")
        if name := _unequal(before, trees.to_arrays(now)):
            raise _broken(promise, f"{what} was changed ({name})")

    # --- the promises -----------------------------------------------------------------------------------------------

    def sizes(self) -> None:
        """Actions, extras and policies have the sizes that were agreed on."""
        promise = "actions, extras and policies must have the agreed sizes"
        agent, width = self.agent, self.agent.task.spaces.action_dim
        policy = agent.policy(self.trainer.state)
        for mode in ("collect", "sample", "greedy"):
            for lanes in (1, 3):
                obs, first = np.zeros((lanes, agent.task.spaces.obs_dim), np.float32), np.ones(lanes, bool)
                action, extras, _ = agent.act(policy, agent.begin(lanes), obs, first, self.trainer.clock, mode)
                found = np.asarray(action)
                if found.shape != (lanes, width):
                    raise _broken(promise, f"{lanes} lanes want actions {[lanes, width]}, but {mode} gave {list(found.shape)}")
                if not (np.abs(found) <= 1.0).all():
                    raise _broken(promise, f"actions lie in [-1, 1], but {mode} gave {found.tolist()}")
                columns = {name: (lanes, *shape) for name, shape in agent.memories["replay"].columns.items()}
                given = {name: np.shape(each) for name, each in extras.items()}
                if mode == "collect" and given != columns:
                    raise _broken(promise, f"the replay keeps the columns {columns}, but act gave the extras {given}")
        blank, own = _form(agent.blank_policy()), _form(policy)
        for name in blank.keys() | own.keys():
            if blank.get(name) != own.get(name):
                kinds = f"{blank.get(name, 'absent')} in blank_policy() and {own.get(name, 'absent')} in policy(state)"
                raise _broken(promise, f"{name} is {kinds}")

    def metrics(self) -> None:
        """Every metric of `metric_names` is reported, and nothing else."""
        promise = "every metric of metric_names must be reported, and no other"
        names = self.agent.metric_names
        for name in {*names} & {*LOOP_COLUMNS, *TIME_COLUMNS}:
            raise _broken(promise, f"{name!r} is a column of every run")
        if missing := sorted(set(names) - set(self.trainer.metrics)):
            raise _broken(promise, f"{', '.join(missing)} was never reported within {self.steps} steps")
        if unknown := sorted(set(self.trainer.metrics) - set(names)):
            raise _broken(promise, f"{', '.join(unknown)} is reported and not among them")
        for name, value in self.trainer.metrics.items():
            if np.shape(value) != ():
                raise _broken(promise, f"{name!r} is no single number but has the shape {list(np.shape(value))}")

    def leaves(self) -> None:
        """The state is a pytree of arrays whose places, types and shapes stay."""
        promise = "the state must stay a pytree of the same arrays, on the host where they were NumPy"
        now = _form(self.trainer.state)
        for name in self.initial.keys() | now.keys():
            before, after = self.initial.get(name, "absent"), now.get(name, "absent")
            if before != after or "no array" in after:
                raise _broken(promise, f"{name} was {before} and became {after}")

    def drawn_twice(self) -> None:
        """`draw` is a function of its arguments and changes nothing."""
        promise = "drawn twice it must be the same, and draw must change nothing"
        trainer, agent = self.trainer, self.agent
        clock = self.drawing_clock()
        state, kept = trees.to_arrays(trainer.state), trees.to_arrays(_held(trainer.memories))
        first = agent.draw(trainer.state, trainer.memories, clock)
        again = agent.draw(trainer.state, trainer.memories, clock)
        if (first is None) != (again is None):
            raise _broken(promise, "there were data once, and none the other time")
        if name := _different(first, again):
            raise _broken(promise, f"two draws differ ({name})")
        self.unharmed(promise, "the state", state, trainer.state)
        self.unharmed(promise, "a memory", kept, _held(trainer.memories))

    def drawing_clock(self) -> Any:
        """A clock at which there is something to draw: now, or the moment after one of the next decisions."""
        for _ in range(self.steps):
            if self.agent.draw(self.trainer.state, self.trainer.memories, self.trainer.clock) is not None:
                break
            self.model.learn(1)
        return self.trainer.clock

    def consumed(self) -> None:
        """`update` consumes the state it is given and nothing else; the other calls consume nothing."""
        promise = "update may consume the state alone, and no other call anything"
        trainer, agent = self.trainer, self.agent
        clock, obs, first = self.drawing_clock(), trainer.collector.obs, trainer.collector.first
        before, kept = trees.to_arrays(trainer.state), trees.to_arrays(_held(trainer.memories))

        def intact(what: str) -> None:
            self.unharmed(promise, f"the state given to {what}", before, trainer.state)

        agent.prepare(trainer.state, trainer.memories, clock, lambda: True)
        intact("prepare")
        data = agent.draw(trainer.state, trainer.memories, clock)
        policy = agent.policy(trainer.state)
        carry = trees.to_arrays(trainer.carry)
        action = agent.act(policy, trainer.carry, obs, first, clock, "sample")[0]
        intact("act")
        self.unharmed(promise, "the carry given to act", carry, trainer.carry)
        chosen = trees.to_arrays(action)
        agent.notice(trainer.state, trainer.memories, (), obs, clock)
        intact("notice")
        if data is not None:
            drawn, live = trees.to_arrays(data), trees.from_arrays(trainer.state, before)
            host = [leaf for leaf in jax.tree.leaves(live) if isinstance(leaf, np.ndarray)]
            copies = trees.to_arrays(host)
            agent.update(live, data)
            self.unharmed(promise, "the data", drawn, data)
            self.unharmed(promise, "an array on the host", copies, host)
            self.unharmed(promise, "the carry", carry, trainer.carry)
            self.unharmed(promise, "an action that was chosen before", chosen, action)
        self.unharmed(promise, "a memory", kept, _held(trainer.memories))

    def acting(self) -> None:
        """What acting carries is in the carry: evaluations do not touch the training, nor one another."""
        promise = "what acting remembers must be in the carry, of which training and every evaluation have their own"
        trainer, agent = self.trainer, self.agent
        policy, obs, first = agent.policy(trainer.state), trainer.collector.obs, trainer.collector.first
        clock = trainer.clock

        def act() -> Any:
            action, extras, carry = agent.act(policy, trainer.carry, obs, first, clock, "collect")
            return {"action": np.asarray(action), "extras": extras, "carry": carry}

        if name := _different(agent.begin(2), agent.begin(2)):
            raise _broken(promise, f"begin gives another carry the second time ({name})")
        before = act()
        returns = [self.evaluated(mode) for mode in ("greedy", "greedy", "sample", "sample")]
        if returns[0] != returns[1] or returns[2] != returns[3]:
            raise _broken(promise, "the same policy evaluated twice on the same episodes has other returns")
        if name := _different(before, act()):
            raise _broken(promise, f"an evaluation changed what the training chooses next ({name})")

    def evaluated(self, mode: str) -> list[float]:
        """The returns of two episodes."""
        assert self.trainer.eval_env is not None
        player = Player(self.agent, self.agent.policy(self.trainer.state), seed=3, mode=mode)
        return evaluate(player, self.trainer.eval_env, seed=3, episodes=2).returns

    def renewed(self) -> None:
        """`renew` gives fresh parts from streams keyed by the step."""
        promise = "renewed parts must be fresh, of the same form, and a function of seed and step"
        agent, state, clock = self.agent, self.trainer.state, self.trainer.clock
        before, form = trees.to_arrays(state), _form(state)
        if name := _unequal(before, trees.to_arrays(agent.renew(state, (), clock))):
            raise _broken(promise, f"renewing nothing changed {name}")
        for parts in (*((part,) for part in agent.parts), agent.parts):
            fresh = agent.renew(state, parts, clock)
            self.unharmed(promise, "the state given to renew", before, state)
            if _form(fresh) != form:
                name = next(each for each in form if form[each] != _form(fresh).get(each))
                raise _broken(promise, f"{name} was {form[name]} and is {_form(fresh).get(name, 'absent')} after {parts}")
            if name := _different(fresh, agent.renew(state, parts, clock)):
                raise _broken(promise, f"renewed twice at one step, {', '.join(parts)} differ ({name})")
            if set(parts) == set(agent.parts) and parts:
                if not _unequal(before, trees.to_arrays(fresh)):
                    raise _broken(promise, f"nothing changed when {', '.join(parts)} were renewed")
                if not _different(fresh, agent.renew(state, parts, clock._replace(step=clock.step + 1))):
                    raise _broken(promise, "the same networks are drawn at another step")

    def policy_file(self) -> None:
        """A policy goes through a file, and into another state, unchanged."""
        promise = "a policy must come back from its file as it was, and into another state"
        agent, policy = self.agent, self.model.policy
        with tempfile.TemporaryDirectory() as folder, self.fresh():
            loaded = load_policy(policy.save(Path(folder) / "policy.npz")).on(self.env)
        if name := _different(policy.policy, loaded.policy):
            raise _broken(promise, f"{name} differs")
        obs = np.linspace(-1, 1, 4 * agent.task.spaces.obs_dim, dtype=np.float32).reshape(4, -1)
        for greedy in (True, False):
            ours, theirs = (
                dataclasses.replace(each, seed=5, calls=0).predict(obs, deterministic=greedy)[0] for each in (policy, loaded)
            )
            if ours.tobytes() != theirs.tobytes():
                raise _broken(promise, f"the loaded policy chooses {theirs.tolist()} instead of {ours.tolist()}")
        other = agent.with_policy(agent.init(7), loaded.policy)
        if name := _different(policy.policy, agent.policy(other)):
            raise _broken(promise, f"with_policy leaves {name} as it was")
        if _form(other) != self.initial:
            raise _broken(promise, "with_policy changes the form of the state")

    def trained(self, folder: Path, name: str, kill: int | None = None) -> Path:
        """A run in a folder of its own, by an agent of its own, whole or killed."""
        path = folder / name
        with self.fresh(), contextlib.suppress(_Killed):
            callbacks = () if kill is None else (_Killer(kill),)
            api.train(self.entry.name, self.env, out=path, callbacks=callbacks, **self.options)
        return path

    def same_run(self, promise: str, left: Path, right: Path) -> None:
        """Two runs have the same table and the same last checkpoint."""
        ours, theirs = (self.last(path) for path in (left, right))
        if name := _different(ours, theirs):
            raise _broken(promise, f"at the end {name} differs")

    def last(self, path: Path) -> dict[str, Any]:
        """What a run is at its end: the arrays of its checkpoint, its memories, its rows without the clock on the wall."""
        checkpoint = CheckpointStore(path).load(_ignore)
        rows = [
            {name: np.float64(np.nan if value is None else value) for name, value in row.items() if not name.startswith("time/")}
            for row in Run(path).metrics
        ]
        return {"arrays": checkpoint.arrays, "memories": _held(checkpoint.memories()), "rows": rows}

    def same_seed(self, folder: Path) -> None:
        """The same seed gives the same run, by agents that share nothing."""
        whole, again = self.trained(folder, "whole"), self.trained(folder, "again")
        self.same_run("the same seed must give the same bytes", whole, again)

    def resumed(self, folder: Path) -> None:
        """A run that is killed and resumed equals one that was not."""
        killed = self.trained(folder, "killed", kill=self.steps * 2 // 3)
        with self.fresh():
            api.resume(killed, env=None if isinstance(self.env, str) else self.env, report=_ignore)
        promise = "a run that was killed and resumed must equal one that was not, so what matters must be in the state"
        self.same_run(promise, folder / "whole", killed)


def _ignore(message: str) -> None:
    """Reports of a resumed run are not asked for here."""


__all__ = ["BrokenPromiseError", "Point", "check_agent"]
