"""Evaluation on an environment of its own, with seeds of its own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.agents.base import Agent
from beeline.envs import check_finite, spec_of
from beeline.errors import EnvError, NonFiniteError
from beeline.memory import Clock
from beeline.rng import episode_seed

if TYPE_CHECKING:
    import gymnasium

Act = Callable[[np.ndarray], np.ndarray]
ENDLESS = 1_000_000  # decisions after which an episode is taken to have no end


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


@contextlib.contextmanager
def _named(call: str, env_id: str) -> Iterator[None]:
    """Errors of the environment as errors that name it and say that it was an evaluation."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"in an evaluation episode: {error}") from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise EnvError(f"environment {env_id!r} failed in {call}() of an evaluation episode: {cause}") from error


def run_episode(act: Act, env: gymnasium.Env, seed: int) -> tuple[float, int, Any, Any]:
    """One seeded episode: return, decisions, success at the last step and at any step (None where not reported)."""
    spec = spec_of(env)
    with _named("reset", spec.id):
        obs, _ = env.reset(seed=seed)
        check_finite(spec.id, 0, 0, obs, 0.0)
    total, decisions, last, ever = 0.0, 0, None, None
    while True:
        action = act(obs)
        with _named("step", spec.id):
            obs, reward, terminated, truncated, info = env.step(action)
            reward = float(reward)
            decisions += 1
            check_finite(spec.id, 0, decisions, obs, reward)
        total += reward
        if "success" in info:
            last = bool(info["success"])
            ever = bool(ever or last)
        if terminated or truncated:
            return total, decisions, last, ever
        if decisions >= ENDLESS:
            raise EnvError(
                f"environment {spec.id!r}: an evaluation episode did not end within {ENDLESS:,} decisions. "
                "Give the task a time limit, for example with ?limit=1000 after its id."
            )


def evaluate(act: Act, env: gymnasium.Env, *, seed: int, episodes: int, first_episode: int = 0) -> Evaluation:
    """Run `episodes` episodes, numbered from `first_episode`, each seeded by (run seed, "eval", number)."""
    repeat = spec_of(env).repeat
    results = []
    for number in range(first_episode, first_episode + episodes):
        if isinstance(act, Player):
            act.start(number)
        results.append(run_episode(act, env, episode_seed(seed, "eval", 0, number)))
    reported = all(last is not None for _, _, last, _ in results)
    return Evaluation(
        returns=[total for total, *_ in results],
        lengths=[decisions * repeat for _, decisions, *_ in results],
        successes=[last for *_, last, _ in results] if reported else None,
        successes_any=[ever for *_, ever in results] if reported else None,
    )
