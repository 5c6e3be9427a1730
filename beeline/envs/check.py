"""`beeline check-env`: everything that would go wrong with an environment later, found in a few seconds now."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from beeline.envs import ids, trust
from beeline.envs.boundary import calling
from beeline.envs.registry import make
from beeline.envs.tables import SUITES
from beeline.errors import BeelineError, EnvError, notes

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.envs.registry import EnvLike

Level = Literal["ok", "warning", "error"]
MAX_STEPS = 2000  # an episode that goes on for longer is not followed to its end
SLOW = 50.0  # environment steps per second
QUICK_STEPS, QUICK_SECONDS = 100, 0.3  # what a training looks at before it begins
WIDE, NARROW = 100.0, 1e-3  # deviations of an observation that networks learn badly from
NAMED = 3  # dimensions that a finding names before it counts the others
Steps = list[tuple[np.ndarray, float]]


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
        return [_error(error)]
    findings = [*_spaces(adapted), _limit(adapted)]
    if not adapted.facts.replayable:
        # Two seeded episodes on hardware would be two surprises; what can be read without moving it was read.
        return [*findings, Finding("warning", "declared as not replayable: no episode was played.")]
    try:
        findings += _episodes(adapted)
        findings += _gymnasium(adapted)
    except EnvError as error:
        findings.append(_error(error))
    return findings


def quick(env_id: str, scaled: bool = False, optional: bool = True) -> list[Finding]:
    """What a part of a second shows of an environment that is the user's own: the errors and the warnings.

    Nothing is looked at where the task is one of a suite's list, which the tests hold, or where it must not be moved; nothing
    is said of scales where the run scales its observations itself. `optional`: whether it could.
    """
    suite, task, _ = ids.split(env_id)
    if suite not in SUITES or task in SUITES[suite].tasks:
        return []
    adapted = make(env_id)
    try:
        findings = [*_spaces(adapted)]
        if adapted.facts.replayable:
            steps, *_ = _play(adapted, seed=0, most=QUICK_STEPS, seconds=QUICK_SECONDS)
            findings += [*_bounds(adapted, steps), *(() if scaled else _scales(adapted, steps, optional))]
    finally:
        adapted.close()
    return [finding for finding in findings if finding.level != "ok"]


def _error(error: BeelineError) -> Finding:
    return Finding("error", "\n".join([str(error), *notes(error)]))


def _spaces(env: Adapter) -> Iterator[Finding]:
    facts, inner = env.facts, env.env.observation_space
    spans = [f"[{low:g}, {high:g}]" for low, high in zip(facts.action_low, facts.action_high)]
    alike = spans[:1] if len(set(spans)) == 1 else spans
    yield Finding("ok", f"{facts.obs_dim} observations ({inner}), {facts.action_dim} actions in {_listed(alike, ', ')}")
    wide = [f"action[{i}] spans {spans[i]}" for i in np.flatnonzero(facts.action_high - facts.action_low > 1e3)]
    if wide:
        yield Finding("warning", f"{_listed(wide)}: exploration covers it all. Is that meant?")


def _limit(env: Adapter) -> Finding:
    if env.facts.assumption:
        return Finding("warning", env.facts.assumption)
    return Finding("ok", f"episodes are truncated after {env.facts.max_episode_steps} environment steps")


def _episodes(env: Adapter) -> Iterator[Finding]:
    started = time.perf_counter()
    first, steps, ended = _play(env, seed=0)
    seconds = time.perf_counter() - started
    yield Finding("ok", f"{steps} steps: every reward and observation is finite")
    yield from _raw(env)
    other, *_ = _play(env, seed=1)
    again, *_ = _play(env, seed=0)
    yield from _bounds(env, [*first, *other])
    yield from _scales(env, [*first, *other])
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


def _play(env: Adapter, seed: int, most: int = MAX_STEPS, seconds: float = float("inf")) -> tuple[Steps, int, bool]:
    """Play random actions; return what came out, the environment steps, and whether the episode ended."""
    actions = np.random.default_rng(seed=12345)
    end = time.perf_counter() + seconds
    obs, _ = env.reset(seed=seed)
    out, done, steps = [(obs, 0.0)], False, 0
    while not done and steps < most and time.perf_counter() < end:
        obs, reward, terminated, truncated, _ = env.step(actions.uniform(-1, 1, env.facts.action_dim))
        steps += env.facts.repeat
        out.append((obs, reward))
        done = terminated or truncated
    return out, steps, done


def _same(first: Steps, second: Steps) -> bool:
    return len(first) == len(second) and all(
        a.tobytes() == b.tobytes() and r == s for (a, r), (b, s) in zip(first, second)
    )


def _raw(env: Adapter) -> Iterator[Finding]:
    """Types that are let in and are not quite what was declared."""
    space = env.env.observation_space
    with calling(f"environment {env.facts.id!r} failed in a second episode"):
        raw, _ = env.env.reset(seed=0)
        _, reward, *_ = env.env.step(np.asarray(env.facts.action_low))
    parts = raw.items() if isinstance(raw, dict) else [("", raw)]
    for key, part in parts:
        want = getattr(space[key] if key else space, "dtype", None)  # type: ignore[index]
        have = getattr(part, "dtype", None) or type(part).__name__
        if want is not None and want != have:
            name = f"observation[{key!r}]" if key else "the observation"
            yield Finding("warning", f"{name} is not as its own observation_space says: its dtype is {have}, declared is {want}.")
    if not isinstance(reward, int | float | np.floating | np.integer):
        yield Finding("warning", f"step returns reward as {type(reward).__name__}, not float.")


def _names(env: Adapter) -> list[str]:
    """What each number of the flat observation is called."""
    from beeline.envs.adapter import key_order

    spaces: Any = getattr(env.env.observation_space, "spaces", None)
    if spaces is None:
        return [f"observation[{i}]" for i in range(env.facts.obs_dim)]
    return [f"observation[{key!r}][{i}]" for key in key_order(spaces) for i in range(spaces[key].shape[0])]


def _flat_bounds(env: Adapter) -> tuple[np.ndarray, np.ndarray]:
    from beeline.envs.adapter import key_order

    space: Any = env.env.observation_space
    parts = [space.spaces[key] for key in key_order(space.spaces)] if hasattr(space, "spaces") else [space]
    low, high = (np.concatenate([getattr(part, side) for part in parts]).astype(np.float32) for side in ("low", "high"))
    return low, high


def _listed(texts: list[str], between: str = "; ") -> str:
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return between.join(texts[:NAMED]) + more


def _bounds(env: Adapter, steps: Steps) -> Iterator[Finding]:
    """Which numbers leave the bounds that observation_space declares, and by how much."""
    seen, names = np.stack([obs for obs, _ in steps]), _names(env)
    low, high = _flat_bounds(env)
    below, above = low - seen.min(axis=0), seen.max(axis=0) - high
    slack = 1e-5 * np.maximum(1.0, np.minimum(np.abs(low), np.abs(high)))  # float32 rounds what is compared
    told = []
    for i in np.flatnonzero((below > slack) | (above > slack)):
        value, excess = (seen[:, i].min(), below[i]) if below[i] > above[i] else (seen[:, i].max(), above[i])
        told.append(f"{names[i]} was {value:g}, {excess:g} outside [{low[i]:g}, {high[i]:g}]")
    if told:
        yield Finding("warning", f"observations leave the bounds of their observation_space: {_listed(told)}. Mend the bounds.")


def _scales(env: Adapter, steps: Steps, optional: bool = True) -> Iterator[Finding]:
    """Which numbers vary on a scale that networks learn badly from."""
    deviation = np.std(np.stack([obs for obs, _ in steps]).astype(np.float64), axis=0)
    odd = np.flatnonzero((deviation > WIDE) | ((deviation < NARROW) & (deviation > 0)))
    names, worst_first = _names(env), odd[np.argsort(-np.abs(np.log(deviation[odd])))]
    told = [f"{names[i]} has a standard deviation of {deviation[i]:.2g}" for i in worst_first]
    if told:
        advice = "Train with --normalize-obs." if optional else "Scale them in the environment."
        yield Finding("warning", f"observations are badly scaled: {_listed(told)}. {advice}")


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
