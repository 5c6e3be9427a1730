"""What looking at everything that an environment returns costs, as a share of a step.

    python benchmarks/world_check.py [ID ...] [--rounds N]

The adapter's step with the check and without it take turns; the difference of the fastest rounds in processor time is the
check. It is set against the environment's own step and against a step of a training of SAC, with its update. Asked
is less than 1 % of the step of a training.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from beeline import envs
from beeline.envs.adapter import Adapter

TASKS = ("gym/Pendulum-v1", "gym/Walker2d-v5", "gym/Humanoid-v5")
TURN = 400  # steps of one before it is the other's turn
ALLOWED = 1.0  # per cent of a step of a training
DECISIONS = 1_000


def unchecked(env: Adapter) -> None:
    """Let everything through as it comes, flattened."""
    world: Any = env._world
    flatten, step = world._flatten or (lambda obs: obs), world._step

    def passed(action: np.ndarray) -> Any:
        world.taken += 1
        return step(action)

    world.step, world.observation, world.success = passed, flatten, lambda info: None


def fastest(sides: list[Adapter], rounds: int) -> list[float]:
    """Microseconds of a step of each, the mean of the fastest tenth of the rounds."""
    draw = np.random.default_rng(0)
    actions = [draw.uniform(-1, 1, sides[0].facts.action_dim).astype(np.float32) for _ in range(TURN)]
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        order = range(len(sides))
        for place in order if turn % 2 else reversed(order):
            sides[place].reset(seed=turn)
            step: Callable[[np.ndarray], Any] = sides[place].step
            started = time.process_time()
            for action in actions:
                step(action)
            times[place].append((time.process_time() - started) / TURN * 1e6)
    return [float(np.sort(each)[: max(1, rounds // 10)].mean()) for each in times]


def training(env_id: str) -> float:
    """Microseconds of a step of a training of SAC with its update, the median."""
    import beeline

    stamps: list[float] = []

    class Clock(beeline.Callback):
        def on_step(self, *_: Any) -> None:
            stamps.append(time.perf_counter())

    beeline.SAC(env_id, preset="light", random_steps=100, verbose=0, callbacks=[Clock()]).learn(DECISIONS)
    return float(np.median(np.diff(stamps[DECISIONS // 2 :]))) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    print(f"{'task':18} {'check µs':>9} {'env step µs':>12} {'share':>7} {'training µs':>12} {'share':>7}")
    worst = 0.0
    for env_id in given.tasks:
        sides = [envs.make(env_id), envs.make(env_id)]
        unchecked(sides[1])
        with_it, without = fastest(sides, given.rounds)
        learning = training(env_id)
        check = with_it - without
        worst = max(worst, check / learning * 100)
        shares = f"{without:12.1f} {check / without:7.1%} {learning:12.0f} {check / learning:7.2%}"
        print(f"{env_id:18} {check:9.2f} {shares}", flush=True)
    print(f"worst {worst:.2f} % of a step of a training, allowed {ALLOWED:.0f} %")
    raise SystemExit(worst > ALLOWED)


if __name__ == "__main__":
    main()
