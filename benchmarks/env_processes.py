"""What processes of their own give to environments that are slow: steps per second of the collector, without updates.

    python benchmarks/env_processes.py [--seconds S]

Four environments that wait 10 ms a step shall make at least 3 times the steps per second of one; two that compute for 10 ms at
least 1.7 times, on two idle cores. Both are compared with one environment in the learner's process.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # where the workers find this file as a module
STEP = 0.01  # seconds


class Slow(gymnasium.Env[np.ndarray, np.ndarray]):
    """Waits or computes in every step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(8, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.work()
        return np.zeros(8, np.float32), 0.0, False, False, {}

    def work(self) -> None:
        time.sleep(STEP)


class Busy(Slow):
    """Computes: the same work at every step, about 10 ms of one processor."""

    def work(self) -> None:
        end = time.thread_time() + STEP
        while time.thread_time() < end:
            pass


def steps_per_second(env: type[Slow], lanes: int, processes: bool, seconds: float) -> float:
    """Play for some seconds and count."""
    from beeline.collect import Collector
    from beeline.envs import registry, remote
    from beeline.memory import Replay

    made: list[Any] = remote.make(env, lanes) if processes else [registry.make(env) for _ in range(lanes)]
    collector = Collector(made, Replay(100_000, 8, 2, lanes), seed=0)
    collector.begin()
    actions, count = np.zeros((lanes, 2), np.float32), 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        collector.step(actions)
        count += lanes
    speed = count / (time.perf_counter() - start)
    for each in made:
        each.close()
    return speed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    import env_processes as own  # by the name under which a worker finds it

    good = True
    for env, lanes, needed in ((own.Slow, 4, 3.0), (own.Busy, 2, 1.7)):
        one = steps_per_second(env, 1, False, seconds)
        several = steps_per_second(env, lanes, True, seconds)
        good &= several >= needed * one
        speeds = f"one: {one:6.1f} steps/s, {lanes} processes: {several:6.1f} steps/s"
        print(f"{env.__name__:5} {speeds}, {several / one:.2f} times (at least {needed})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
