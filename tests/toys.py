"""Small environments of our own: a noisy walk with terminations, and the ways in which an environment can misbehave."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np

LIMIT = 20
_made = 0
WRONG: dict[str, Any] = {  # what `step` returns at a fault of that name, made from the observation and the reward
    "one number": lambda obs, reward: (obs[:1], reward, False, False, {}),
    "a scalar": lambda obs, reward: (0.5, reward, False, False, {}),
    "a row": lambda obs, reward: (obs[None], reward, False, False, {}),
    "no info": lambda obs, reward: (obs, reward, False, False, None),
    "text flag": lambda obs, reward: (obs, reward, "False", False, {}),
    "four values": lambda obs, reward: (obs, reward, False, {}),
    "array reward": lambda obs, reward: (obs, np.array([reward]), False, False, {}),
}


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """A point on a line, pushed and shaken; it falls off at |x| > 1.

    `fault` happens at the `at`-th step() of this instance (at its `at`-th reset() for faults of reset). TOY_KILL =
    "instance:step" in the environment sends the process SIGKILL, or the signal TOY_SIGNAL, there; step 0 is the first reset.
    TOY_HANG, likewise, sleeps there for ever.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, fault: str = "", at: int = -1, replayable: bool = True, success: bool = False) -> None:
        global _made
        self.number, _made = _made, _made + 1
        self.fault, self.at, self.beeline_replayable, self.beeline_success = fault, at, replayable, success
        self.steps = self.resets = self.since_reset = 0
        self.log: list[tuple[Any, ...]] = []

    def _die(self, moment: int) -> None:
        if os.environ.get("TOY_KILL") == f"{self.number}:{moment}":
            os.kill(os.getpid(), int(os.environ.get("TOY_SIGNAL", signal.SIGKILL)))
        if os.environ.get("TOY_HANG") == f"{self.number}:{moment}":
            print("hanging", flush=True)
            time.sleep(1e6)

    def _obs(self) -> np.ndarray:
        obs = np.array([self.x, self.since_reset / LIMIT])
        if self.fault == "drift":
            obs[0] += np.frombuffer(os.urandom(1), np.uint8)[0] * 1e-3
        return obs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._die(0)
        self.resets += 1
        self.since_reset = 0
        self.x = self.np_random.uniform(-0.5, 0.5)
        if self.resets == self.at and self.fault == "raise in reset":
            raise RuntimeError("the motor is cold")
        obs = self._obs()
        if self.resets == self.at and self.fault == "nan in reset":
            obs[1] = np.nan
        self.log.append(("reset", seed, obs.astype(np.float32)))
        return obs, {}

    def step(self, action: np.ndarray) -> tuple[Any, Any, Any, bool, Any]:
        assert self.action_space.contains(action), action
        self.steps += 1
        self.since_reset += 1
        self._die(self.steps)
        self.x += 0.2 * (float(action[0]) - 0.5) / 2.5 + 0.05 * self.np_random.normal()
        reward, obs = -self.x**2, self._obs()
        if self.steps == self.at:
            if self.fault == "raise":
                raise RuntimeError("the motor is hot")
            if self.fault == "hang":
                time.sleep(600)
            reward = {"nan reward": np.nan, "inf reward": np.inf, "large reward": 1e39}.get(self.fault, reward)
            if self.fault in WRONG:
                return WRONG[self.fault](obs, reward)
            obs[0] = {"nan obs": np.nan, "inf obs": -np.inf}.get(self.fault, obs[0])
        terminated, truncated = bool(abs(self.x) > 1), self.since_reset == LIMIT
        self.log.append(("step", action.copy(), reward, obs.astype(np.float32), terminated, truncated))
        info = {"success": abs(self.x) < 0.2} if self.beeline_success else {}
        return obs, reward, terminated, truncated, info

    def beeline_terminated(self, obs: Any, action: Any, next_obs: Any) -> Any:
        return abs(next_obs[..., 0]) > 1

    def close(self) -> None:
        if self.fault == "raise in close":
            raise RuntimeError("the motor is stuck")


class Goal(gymnasium.Env[Any, np.ndarray]):
    """A goal environment: dict observations, always truncated."""

    observation_space = gymnasium.spaces.Dict(
        {
            "desired_goal": gymnasium.spaces.Box(-9, 9, (1,)),
            "achieved_goal": gymnasium.spaces.Box(-9, 9, (1,)),
            "observation": gymnasium.spaces.Box(-9, 9, (2,)),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def _obs(self) -> dict[str, np.ndarray]:
        parts = {"observation": [self.x, 1.0], "achieved_goal": [self.x], "desired_goal": [0.5]}
        return {key: np.array(value, np.float32) for key, value in parts.items()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.count = float(self.np_random.uniform(-1, 1)), 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x, self.count = self.x + 0.1 * float(action[0]), self.count + 1
        near = abs(self.x - 0.5) < 0.1
        return self._obs(), float(near), False, self.count == 10, {"is_success": near}


gymnasium.register("Walk-v0", Walk, max_episode_steps=LIMIT)
gymnasium.register("Goal-v0", Goal, max_episode_steps=10)
