"""Stepping the environments: one lane each, every episode seeded by (run seed, lane, episode number)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.envs import spec_of
from beeline.envs.boundary import placed
from beeline.envs.remote import RemoteEnv
from beeline.errors import EnvError
from beeline.memory import Replay
from beeline.rng import episode_seed

if TYPE_CHECKING:
    import gymnasium


@dataclasses.dataclass
class Episode:
    """A finished episode: return, length in environment steps, success at its last step and at any step."""

    ret: float
    length: int
    success: bool | None
    success_any: bool | None


@dataclasses.dataclass
class Lane:
    """The open episode of one environment."""

    episode: int = -1
    ret: float = 0.0
    decisions: int = 0
    success_any: bool | None = None


@dataclasses.dataclass(frozen=True)
class Transition:
    """What one lane's step gave; callbacks see it."""

    lane: int
    obs: np.ndarray
    action: np.ndarray
    reward: float
    next_obs: np.ndarray
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    first: bool = False  # whether an episode begins with it; the one before may have been cut without an end


class Collector:
    """Steps all lanes and writes the replay. A finished lane is reset in the same step; no transition is invented."""

    def __init__(self, envs: Sequence[gymnasium.Env], replay: Replay, seed: int) -> None:
        self.envs, self.replay, self.seed = list(envs), replay, seed
        self.spec = spec_of(self.envs[0])
        self.lanes = [Lane() for _ in self.envs]
        self.finished: list[Episode] = []
        self.episodes = 0
        self.obs = np.zeros((len(self.envs), self.spec.obs_dim), np.float32)
        self.first = np.ones(len(self.envs), bool)
        self.between: Callable[[int], None] = lambda lane: None  # called with a lane between two of its episodes

    def begin(self) -> None:
        """Reset every lane for the first time."""
        for lane in range(len(self.envs)):
            self._next_episode(lane)

    def reopen(self) -> None:
        """Begin an episode in every lane that has none because its last reset failed."""
        for lane in range(len(self.envs)):
            if not self.replay.is_open(lane):
                self._next_episode(lane)

    def _reset(self, lane: int, episode: int) -> np.ndarray:
        try:
            return self.envs[lane].reset(seed=episode_seed(self.seed, "train", lane, episode))[0]
        except EnvError as error:
            raise self._of_lane(error, lane)  # noqa: B904 (it is the same error)

    def _of_lane(self, error: EnvError, lane: int) -> EnvError:
        """The error with its lane, where there are several."""
        return placed(error, f"in lane {lane}") if len(self.envs) > 1 else error

    def _next_episode(self, lane: int) -> None:
        number = self.lanes[lane].episode + 1
        self.lanes[lane] = Lane(episode=number)  # first, so that after a reset that fails the next one is tried
        self.replay.cut(lane)
        self.between(lane)
        obs = self._reset(lane, number)
        self.replay.start(lane, obs)
        self.obs[lane], self.first[lane] = obs, True

    def step(self, actions: np.ndarray, extras: Mapping[str, np.ndarray] | None = None) -> list[Transition]:
        """Step every lane with its action, to be stored with its extras; a lane that fails is cut and reset before the error
        goes on its way. Lanes in processes of their own step at the same time; whatever follows is done in the order of lanes."""
        failure: EnvError | None = None
        transitions = []
        for lane, env in enumerate(self.envs):
            if isinstance(env, RemoteEnv):
                env.begin_step(actions[lane])
        for lane, env in enumerate(self.envs):
            state = self.lanes[lane]
            try:
                gave = env.finish_step() if isinstance(env, RemoteEnv) else env.step(actions[lane])
                obs, paid, terminated, truncated, info = gave
            except EnvError as error:
                failure = failure or self._of_lane(error, lane)
                with contextlib.suppress(EnvError):  # the first failure is the one to tell
                    self._next_episode(lane)
                continue
            reward = float(paid)
            own = {name: each[lane] for name, each in extras.items()} if extras else None
            self.replay.add(lane, actions[lane], reward, obs, terminated, truncated, own)
            begins = state.decisions == 0
            transitions.append(
                Transition(lane, self.obs[lane].copy(), actions[lane], reward, obs, terminated, truncated, info, begins)
            )
            state.ret += reward
            state.decisions += 1
            success = info.get("success")
            if success is not None:
                state.success_any = bool(state.success_any or success)
            if terminated or truncated:
                length = state.decisions * self.spec.repeat
                self.finished.append(Episode(state.ret, length, success, state.success_any))
                self.episodes += 1
                try:
                    self._next_episode(lane)
                except EnvError as error:
                    failure = failure or error
            else:
                self.obs[lane], self.first[lane] = obs, False
        if failure is not None:
            raise failure
        return transitions

    def drain(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call."""
        done, self.finished = self.finished, []
        row: dict[str, float] = {"episodes": self.episodes}
        if done:
            row["train/return"] = float(np.mean([e.ret for e in done]))
            row["train/length"] = float(np.mean([e.length for e in done]))
            if all(e.success is not None for e in done):
                row["train/success"] = float(np.mean([bool(e.success) for e in done]))
        return row

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, beside the replay, as plain values."""
        return {
            "lanes": [dataclasses.asdict(lane) for lane in self.lanes],
            "finished": [dataclasses.asdict(episode) for episode in self.finished],
            "episodes": self.episodes,
        }

    def restore(self, state: dict[str, Any], report: Callable[[str], None]) -> None:
        """Bring every env back to where it was, by replaying its open episode's actions.

        Where that is impossible (the env says so, the episode's start has left the ring) or the observations differ, the
        report says why and the lane starts a new episode; the interrupted one stays in the replay as if truncated.
        """
        self.lanes = [Lane(**lane) for lane in state["lanes"]]
        self.finished = [Episode(**episode) for episode in state["finished"]]
        self.episodes = state["episodes"]
        for lane in range(len(self.envs)):
            problem = self._replay_episode(lane)
            if problem:
                report(f"lane {lane}: {problem}; a new episode begins, so this run will differ from one never stopped.")
                self._next_episode(lane)

    def _replay_episode(self, lane: int) -> str:
        if not self.spec.replayable:
            return "the environment declares that it must not be replayed"
        if not self.replay.is_open(lane):
            return "no episode was open"
        rows = self.replay.open_episode(lane)
        if rows is None:
            return "the start of its open episode is no longer in the replay"
        observations, actions = rows
        try:
            obs = self._reset(lane, self.lanes[lane].episode)
        except EnvError as error:
            return f"its open episode cannot be replayed ({error})"
        for step, action in enumerate(actions):
            if not np.array_equal(obs, observations[step]):
                return f"the environment is not deterministic (observation {step} of the replayed episode differs)"
            try:
                obs, _, terminated, truncated, _ = self.envs[lane].step(action)
            except EnvError as error:
                return f"its open episode cannot be replayed ({error})"
            if terminated or truncated:
                return f"the environment is not deterministic (the replayed episode ended after {step + 1} steps)"
        if not np.array_equal(obs, observations[-1]):
            return "the environment is not deterministic (the last observation of the replayed episode differs)"
        self.obs[lane], self.first[lane] = obs, len(actions) == 0
        return ""
