"""`beeline check-env`: everything that would go wrong with an environment later, found in a few seconds now."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from beeline.envs import trust
from beeline.envs.registry import make
from beeline.envs.spec import check_finite
from beeline.errors import BeelineError, NonFiniteError

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.envs.registry import EnvLike

Level = Literal["ok", "warning", "error"]
MAX_STEPS = 2000  # an episode that goes on for longer is not followed to its end
SLOW = 50.0  # environment steps per second


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    message: str


def check(env: EnvLike) -> list[Finding]:
    """Look at an environment's spaces, values, seeding, ends and speed; no error among the findings means it trains."""
    trust.allow(env)
    try:
        adapted = make(env)
    except BeelineError as error:
        return [Finding("error", str(error))]
    findings = list(_spaces(adapted))
    if not adapted.facts.replayable:
        # Two seeded episodes on hardware would be two surprises; what can be read without moving it was read.
        return [*findings, Finding("warning", "declared as not replayable: no episode was played.")]
    try:
        findings += _episodes(adapted)
        findings += _gymnasium(adapted)
    except NonFiniteError as error:
        findings.append(Finding("error", str(error)))
    except Exception as error:
        findings.append(Finding("error", f"{type(error).__name__} while playing an episode: {error}"))
    return findings


def _spaces(env: Adapter) -> Iterator[Finding]:
    facts, inner = env.facts, env.env.observation_space
    low, high = float(facts.action_low.min()), float(facts.action_high.max())
    yield Finding("ok", f"{facts.obs_dim} observations ({inner}), {facts.action_dim} actions in [{low:g}, {high:g}]")
    if high - low > 1e3:
        yield Finding("warning", f"actions span [{low:g}, {high:g}]: exploration covers it all. Is that meant?")
    if facts.max_episode_steps is None:
        yield Finding("warning", "no time limit is declared: register it with max_episode_steps, or use ?limit=N.")
    else:
        yield Finding("ok", f"episodes are truncated after {facts.max_episode_steps} environment steps")


def _episodes(env: Adapter) -> Iterator[Finding]:
    started = time.perf_counter()
    first, steps, ended = _play(env, seed=0)
    seconds = time.perf_counter() - started
    yield Finding("ok", f"{steps} steps: every reward and observation is finite")
    yield from _reset_space(env)
    other, *_ = _play(env, seed=1)
    again, *_ = _play(env, seed=0)
    if _same(first, again):
        yield Finding("ok", "reset(seed=0) gives the same episode again, also after another one")
    else:
        where = next((i for i, (a, b) in enumerate(zip(first, again)) if not _same([a], [b])), len(first))
        yield Finding(
            "warning",
            f"reset(seed=0) with the same actions gave another episode from step {where} on: runs will not repeat, and "
            "resume starts a new episode. Draw all random numbers from self.np_random after super().reset(seed=seed).",
        )
    if _same(first[:1], other[:1]):
        yield Finding("warning", "reset gives the same first observation for different seeds: the start is fixed.")
    if not ended:
        yield Finding("warning", f"no episode ended within {MAX_STEPS} steps of random actions.")
    speed = steps / max(seconds, 1e-9)
    level: Level = "warning" if speed < SLOW else "ok"
    yield Finding(level, f"{speed:,.0f} environment steps per second")


def _play(env: Adapter, seed: int) -> tuple[list[tuple[np.ndarray, float]], int, bool]:
    """Play random actions; return what came out, the environment steps, and whether the episode ended."""
    actions = np.random.default_rng(seed=12345)
    obs, _ = env.reset(seed=seed)
    check_finite(env.facts.id, 0, 0, obs, 0.0)
    out, reward, done, steps = [(obs, 0.0)], 0.0, False, 0
    while not done and steps < MAX_STEPS:
        obs, reward, terminated, truncated, _ = env.step(actions.uniform(-1, 1, env.facts.action_dim))
        steps += env.facts.repeat
        check_finite(env.facts.id, 0, steps, obs, reward)
        out.append((obs, reward))
        done = terminated or truncated
    return out, steps, done


def _same(first: list[tuple[np.ndarray, float]], second: list[tuple[np.ndarray, float]]) -> bool:
    return len(first) == len(second) and all(
        a.tobytes() == b.tobytes() and r == s for (a, r), (b, s) in zip(first, second)
    )


def _reset_space(env: Adapter) -> Iterator[Finding]:
    raw, _ = env.env.reset(seed=0)
    if not env.env.observation_space.contains(raw):
        yield Finding("warning", f"the first observation is not in its own observation_space: {_difference(env, raw)}.")
    *_, reward, terminated, truncated, info = env.env.step(np.asarray(env.facts.action_low))
    for name, value, kinds in (
        ("reward", reward, (int, float, np.floating, np.integer)),
        ("terminated", terminated, (bool, np.bool_)),
        ("truncated", truncated, (bool, np.bool_)),
        ("info", info, (dict,)),
    ):
        if not isinstance(value, kinds):
            yield Finding("warning", f"step returns {name} as {type(value).__name__}, not {kinds[0].__name__}.")


def _difference(env: Adapter, raw: Any) -> str:
    space = env.env.observation_space
    want, have = getattr(space, "dtype", None), getattr(raw, "dtype", None)
    if want is not None and have is not None and want != have:
        return f"its dtype is {have}, declared is {want}"
    return "its values leave the declared bounds or its shape differs"


def _gymnasium(env: Adapter) -> Iterator[Finding]:
    """Run Gymnasium's own checker on the environment as Beeline sees it."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as error:  # the checker asserts
            yield Finding("error", f"Gymnasium's checker: {error}")
            return
    # Beeline leaves observations unbounded on purpose.
    said = [str(warning.message) for warning in caught if "infinity" not in str(warning.message)]
    yield from (Finding("warning", f"Gymnasium's checker: {text.strip()}") for text in dict.fromkeys(said))
    yield Finding("ok", "Gymnasium's checker passes")
