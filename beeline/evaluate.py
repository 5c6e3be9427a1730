"""Evaluation on an environment of its own, with seeds of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.agents.base import Agent
from beeline.envs.boundary import during
from beeline.envs.registry import spec_of
from beeline.errors import Interrupted
from beeline.memory import Clock
from beeline.rng import episode_seed

if TYPE_CHECKING:
    import gymnasium

Act = Callable[[np.ndarray], np.ndarray]


def never() -> bool:
    """No signal asks to stop."""
    return False


class Player:
    """A policy at play in one environment, with whatever acting carries through an episode."""

    def __init__(self, agent: Agent, policy: Any, seed: int = 0, mode: str = "greedy") -> None:
        self.agent, self.policy, self.seed, self.mode = agent, policy, seed, mode
        self.start(0)

    def start(self, episode: int) -> None:
        """Begin an episode."""
        self._carry, self._clock, self._first = self.agent.begin(1), Clock(self.seed, episodes=episode), True

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action in [-1, 1] for the next observation of the episode."""
        first = np.full(1, self._first)
        action, _, self._carry = self.agent.act(self.policy, self._carry, obs[None], first, self._clock, self.mode)
        self._clock, self._first = self._clock._replace(decisions=self._clock.decisions + 1), False
        return np.asarray(action)[0]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Per-episode results of a deterministic policy; lengths count environment steps."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    successes_any: list[bool] | None

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    def row(self) -> dict[str, float]:
        """The evaluation's columns of the metrics table."""
        row = {
            "eval/return": self.mean,
            "eval/return_std": float(np.std(self.returns)),
            "eval/length": float(np.mean(self.lengths)),
        }
        if self.successes is not None and self.successes_any is not None:
            row |= {
                "eval/success": float(np.mean(self.successes)),
                "eval/success_any": float(np.mean(self.successes_any)),
            }
        return row


def run_episode(act: Act, env: gymnasium.Env, seed: int, stop: Callable[[], bool] = never) -> tuple[float, int, Any, Any]:
    """One seeded episode: return, decisions, success at the last step and at any step (None where not reported).

    `stop` is asked at every decision; where it says so, the episode is given up with Interrupted.
    """
    with during("in an evaluation episode"):
        obs, _ = env.reset(seed=seed)
        total, decisions, last, ever = 0.0, 0, None, None
        while True:
            if stop():
                raise Interrupted
            obs, reward, terminated, truncated, info = env.step(act(obs))
            total += float(reward)
            decisions += 1
            if "success" in info:
                last = bool(info["success"])
                ever = bool(ever or last)
            if terminated or truncated:
                return total, decisions, last, ever


def evaluate(
    act: Act, env: gymnasium.Env, *, seed: int, episodes: int, first_episode: int = 0, stop: Callable[[], bool] = never
) -> Evaluation:
    """Run `episodes` episodes, numbered from `first_episode`, each seeded by (run seed, "eval", number)."""
    repeat = spec_of(env).repeat
    results = []
    for number in range(first_episode, first_episode + episodes):
        if isinstance(act, Player):
            act.start(number)
        results.append(run_episode(act, env, episode_seed(seed, "eval", 0, number), stop))
    reported = all(last is not None for _, _, last, _ in results)
    return Evaluation(
        returns=[total for total, *_ in results],
        lengths=[decisions * repeat for _, decisions, *_ in results],
        successes=[last for *_, last, _ in results] if reported else None,
        successes_any=[ever for *_, ever in results] if reported else None,
    )
