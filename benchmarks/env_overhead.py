"""What the adapter costs: its step against the suite's own step, interleaved in the same run.

    python benchmarks/env_overhead.py [ID ...] [--seconds S]

For each task, the suite's environment (made as its documentation says) and Beeline's take turns of a few steps each
with the same actions. Compared are the means of the fastest quarters in processor time, which a busy machine disturbs
least; negative numbers mean that Beeline is faster, because it replaces the suite's own wrappers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from beeline import envs
from beeline.envs import ids
from beeline.envs.registry import installed
from beeline.envs.tables import SUITES

TASKS = (
    "gym/Swimmer-v5",
    "gym/Humanoid-v5",
    "dmc/reacher-hard",
    "dmc/finger-spin",
    "dmc/quadruped-walk",
    "metaworld/hammer",
    "adroit/door",
    "shadowhand/EggRotateDense",
    "maniskill/PickCube",
    "myosuite/myoHandReachRandom",
    "panda/ReachJoints",
    "mbpo/hopper",
)
TURN = 50  # steps of one before it is the other's turn
ALLOWED = 12.0  # per cent, with the check of everything that comes out: 0.6 µs, which the fastest suite's 21 µs feel
Step = Callable[[np.ndarray], Any]


def plain(env_id: str) -> tuple[Callable[[int], Any], Step]:
    """Return reset(seed) and step(action in [-1, 1]) of the suite itself, with the adapter's rescaling left out."""
    import gymnasium

    suite, task, _ = ids.split(env_id)
    if suite == "dmc":
        from dm_control import suite as control

        env = control.load(*task.split("-"))

        def reset(seed: int) -> None:
            env.task._random = np.random.RandomState(np.random.SeedSequence(seed).generate_state(4))
            env.reset()

        return reset, env.step
    if suite == "maniskill":
        from beeline.envs.maniskill import ensure_materials

        ensure_materials()
        import mani_skill.envs  # noqa: F401

        made = gymnasium.make(f"{task}-v1", obs_mode="state", sim_backend="physx_cpu", render_backend="none")
    elif suite == "metaworld":
        import metaworld  # noqa: F401

        made = gymnasium.make("Meta-World/MT1", env_name=f"{task}-v3", seed=0)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = gymnasium.make(_gym_id(suite, task))
    return lambda seed: made.reset(seed=seed), made.step


def _gym_id(suite: str, task: str) -> str:
    inner = envs.make(f"{suite}/{task}").env
    if suite == "mbpo":
        return {"hopper": "Hopper-v4", "walker2d": "Walker2d-v4", "ant": "Ant-v4", "humanoid": "Humanoid-v4"}[task]
    assert inner.spec is not None
    return inner.spec.id


def measure(env_id: str, seconds: float) -> tuple[float, float]:
    """Return the microseconds of a step, plain and adapted."""
    env = envs.make(env_id)
    draw = np.random.default_rng(0)
    # The suite gets the very numbers that reach it through the adapter.
    rescale = env._rescale or (lambda action: action.astype(env.facts.action_low.dtype))
    actions = [draw.uniform(-1, 1, env.facts.action_dim).astype(np.float32) for _ in range(TURN)]
    native = [rescale(action) for action in actions]
    reset, step = plain(env_id)
    sides: list[tuple[Callable[[int], Any], Step, list[np.ndarray], list[float]]] = [
        (reset, step, native, []),
        (lambda seed: env.reset(seed=seed), env.step, actions, []),
    ]
    for begin, _, _, _ in sides:
        begin(0)
    end = time.perf_counter() + seconds
    turn = 0
    while time.perf_counter() < end:
        turn += 1
        for begin, advance, moves, times in sides if turn % 2 else sides[::-1]:
            begin(turn)  # both start the turn from a fresh state, outside the clock
            started = time.process_time()
            for move in moves:
                advance(move)
            times.append((time.process_time() - started) / TURN * 1e6)
    own, ours = (float(np.sort(times)[: max(1, len(times) // 4)].mean()) for _, _, _, times in sides)
    return own, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    print(f"{'task':32} {'suite µs':>10} {'adapted µs':>11} {'overhead':>9}")
    worst = -np.inf
    for env_id in given.tasks:
        if not installed(SUITES[ids.split(env_id)[0]]):
            print(f"{env_id:32} {'not installed':>32}")
            continue
        own, ours = measure(env_id, given.seconds)
        overhead = (ours / own - 1) * 100
        worst = max(worst, overhead)
        print(f"{env_id:32} {own:10.1f} {ours:11.1f} {overhead:8.1f}%", flush=True)
    print(f"worst {worst:.1f} %, allowed {ALLOWED:.0f} %")
    raise SystemExit(worst > ALLOWED)


if __name__ == "__main__":
    main()
