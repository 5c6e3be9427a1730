"""Q against Monte Carlo returns of the current policy: over- or underestimation, and when one becomes the other.

Returns are in the units of Q, that is of `reward_scale` × reward, discounted per decision. The gap is Q − Q_MC: positive
is overestimation. docs/diagnostics.md says what is kept of an episode and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beeline.diagnostics.probe import Probe
from beeline.envs import spec_of
from beeline.envs.boundary import during
from beeline.errors import Interrupted
from beeline.evaluate import never
from beeline.rng import episode_seed

if TYPE_CHECKING:
    import gymnasium

Floats = NDArray[np.float64]

NEGLIGIBLE = 0.0015  # what of a return may be missing: γ^350 short of 1000 steps leaves this at γ = .99
SMALLEST_SCALE = 10.0  # a gap is normalised by the return, but by no less than this
EPISODES = 1 << 20  # room for the episodes of one diagnosis in the numbering of seeds


# --- pure functions ---------------------------------------------------------------------------------------------------


def discounted_returns(rewards: Any, gamma: float, bonuses: Any = None, bootstrap: float = 0.0) -> Floats:
    """Return `G_t = r_t + γ (G_{t+1} + b_{t+1})`, backward; b is −α log π, and that of the first action is not in G_t.

    After the last reward comes `bootstrap`: zero at a true end; at a timeout a value of the last state, its bonus included
    where the return is a soft one.
    """
    reward = np.asarray(rewards, np.float64)
    bonus = np.zeros_like(reward) if bonuses is None else np.asarray(bonuses, np.float64)
    returns = np.empty_like(reward)
    following = bootstrap
    for t in range(len(reward) - 1, -1, -1):
        returns[t] = reward[t] + gamma * following
        following = returns[t] + bonus[t]
    return returns


def horizon(gamma: float) -> float:
    """Return `⌈log .0015 / log γ⌉`, the steps after which a reward no longer matters; infinite for γ = 1."""
    if gamma <= 0.0:
        return 1.0
    return math.inf if gamma >= 1.0 else float(math.ceil(math.log(NEGLIGIBLE) / math.log(gamma)))


def is_short(limit: int | None, gamma: float) -> bool:
    """Whether the cutoff would keep less than a quarter of an episode, so that returns are bootstrapped instead.

    So it is too where no time limit is known.
    """
    return limit is None or limit - horizon(gamma) < limit / 4


def kept(length: int, limit: int | None, gamma: float) -> int:
    """Return how many first pairs of an episode count: those with `t ≤ T − ⌈log .0015 / log γ⌉`, or all of a short task."""
    if limit is None or is_short(limit, gamma):
        return length
    return min(length, limit - int(horizon(gamma)) + 1)


def normalised(gap: Floats, returns: Floats) -> float:
    """Return `mean(gap) / max(|mean Q_MC|, 10)`."""
    return float(np.mean(gap) / max(abs(float(np.mean(returns))), SMALLEST_SCALE))


@dataclasses.dataclass(frozen=True)
class SignChange:
    """Where the gap crosses zero, and which way."""

    step: float
    to_under: bool


def sign_changes(steps: Sequence[float], gaps: Sequence[float]) -> list[SignChange]:
    """Return the crossings of zero, on straight lines between the diagnoses; a gap of exactly zero has no sign."""
    signed = [(step, gap) for step, gap in zip(steps, gaps, strict=True) if gap != 0.0]
    return [
        SignChange(step + (following - step) * gap / (gap - after), to_under=after < 0.0)
        for (step, gap), (following, after) in zip(signed, signed[1:])
        if (gap > 0.0) != (after > 0.0)
    ]


# --- playing ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode of the policy: L pairs, and the observation after them."""

    obs: np.ndarray
    action: np.ndarray
    reward: Floats
    bonus: Floats
    last_obs: np.ndarray
    terminated: bool


def play(
    probe: Probe, state: Any, env: gymnasium.Env, root: np.ndarray, seed: int, step: int, number: int,
    stop: Callable[[], bool] = never,
) -> Episode:  # fmt: skip
    """One episode of the policy as it learns: sampled where it has a density, without exploration noise where not."""
    acting = probe.acting(state)
    observations: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    rewards: list[float] = []
    bonuses: list[float] = []
    with during("in an episode of a diagnosis"):
        obs, _ = env.reset(seed=episode_seed(seed, "diagnose", 0, step * EPISODES + number))
        terminated = truncated = False
        while not (terminated or truncated):
            if stop():
                raise Interrupted
            action, bonus = probe.act(acting, root, (step, number, len(rewards)), obs)
            observations.append(obs)
            obs, reward, terminated, truncated, _ = env.step(action)
            actions.append(action)
            rewards.append(float(reward))
            bonuses.append(bonus)
    return Episode(
        np.stack(observations), np.stack(actions), np.array(rewards), np.array(bonuses), np.array(obs, np.float32), terminated
    )


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Q of every critic `[E, n]` and the returns `[n]` at pairs (s, a) of the policy's own episodes."""

    q: np.ndarray
    plain: Floats
    soft: Floats

    def row(self, soft: bool) -> dict[str, float]:
        """The columns of the record; those of the entropy-inclusive return only where there is an entropy."""
        q = {"min": np.min(self.q, axis=0), "mean": np.mean(self.q, axis=0)}
        row = {"diag/pairs": float(len(self.plain)), "diag/return": float(np.mean(self.plain))}
        row |= {f"diag/q_{name}": float(np.mean(value)) for name, value in q.items()}
        for name, value in q.items():
            gap = value - self.plain
            row |= {f"diag/gap_{name}": float(np.mean(gap)), f"diag/gap_{name}_norm": normalised(gap, self.plain)}
        row["diag/gap_std"] = float(np.std(q["min"] - self.plain))
        if soft:
            row["diag/soft_return"] = float(np.mean(self.soft))
            for name, value in q.items():
                gap = value - self.soft
                row |= {f"diag/soft_gap_{name}": float(np.mean(gap)), f"diag/soft_gap_{name}_norm": normalised(gap, self.soft)}
        return row


def measure(
    probe: Probe, state: Any, env: gymnasium.Env, *, root: np.ndarray, seed: int, step: int, pairs: int,
    stop: Callable[[], bool] = never,
) -> Pairs:  # fmt: skip
    """Play whole episodes until at least `pairs` pairs are kept, and compare Q with their returns.

    Of a short task, a return cut off by a timeout goes on with Q_min(s_T, ã_T), and with ã_T's bonus if it is a soft one.
    """
    spec = spec_of(env)
    limit = None if spec.max_episode_steps is None else math.ceil(spec.max_episode_steps / spec.repeat)
    bootstraps = is_short(limit, probe.agent.gamma)
    obs, action, plain, soft = [], [], [], []
    have = number = 0
    while have < pairs:
        episode = play(probe, state, env, root, seed, step, number, stop)
        value = bonus = 0.0
        if bootstraps and not episode.terminated:
            last, bonus = probe.act(probe.acting(state), root, (step, number, len(episode.reward)), episode.last_obs)
            value = float(np.min(probe.q(state, episode.last_obs[None], last[None])))
        count = kept(len(episode.reward), limit, probe.agent.gamma)
        reward = np.asarray(probe.agent.rewarded(state, episode.reward), np.float64)
        plain.append(discounted_returns(reward, probe.agent.gamma, bootstrap=value)[:count])
        soft.append(discounted_returns(reward, probe.agent.gamma, episode.bonus, value + bonus)[:count])
        obs.append(episode.obs[:count])
        action.append(episode.action[:count])
        have, number = have + count, number + 1
    q = probe.q(state, np.concatenate(obs), np.concatenate(action))
    return Pairs(q.astype(np.float64), np.concatenate(plain), np.concatenate(soft))
