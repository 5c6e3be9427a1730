"""Evaluation on an environment of its own, with seeds of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.envs import spec_of
from beeline.envs.boundary import during
from beeline.errors import Interrupted
from beeline.rng import episode_seed

if TYPE_CHECKING:
    import gymnasium

Act = Callable[[np.ndarray], np.ndarray]


def never() -> bool:
    """No signal asks to stop."""
    return False


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
    seeds = (episode_seed(seed, "eval", 0, first_episode + number) for number in range(episodes))
    results = [run_episode(act, env, each, stop) for each in seeds]
    reported = all(last is not None for _, _, last, _ in results)
    return Evaluation(
        returns=[total for total, *_ in results],
        lengths=[decisions * repeat for _, decisions, *_ in results],
        successes=[last for *_, last, _ in results] if reported else None,
        successes_any=[ever for *_, ever in results] if reported else None,
    )
