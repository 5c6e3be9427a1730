"""A robot that does what it is told, a clock that only waiting moves, and a policy that asks for one action."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beeline.deploy import Controller, Limits, ManualClock, Outcome, Sensed, TickLog
from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import Reading


@dataclasses.dataclass
class FakeRobot:
    """Joints that are where the last command put them, in a torso that slides forwards by a centimetre a tick.

    `meddle` may change what is read, or raise; it is told how many ticks have been written.
    """

    clock: ManualClock
    meddle: Callable[[int, Sensed], Sensed] = lambda written, sensed: sensed
    fails: Callable[[int], Any] = lambda written: None  # called before every write
    written: list[np.ndarray] = dataclasses.field(default_factory=list)
    stops: int = 0
    tries: int = 0

    def read(self) -> Sensed:
        count, now = len(self.written), self.clock.now()
        joints = self.written[-1].copy() if self.written else np.zeros(12)
        position = np.array([0.0, 0.01 * count, 0.0])
        zero = np.zeros(3)
        reading = Reading(position, zero.copy(), joints.copy(), zero.copy(), zero.copy(), np.full(12, 0.001 * count))
        return self.meddle(count, Sensed(reading, joints, now, now))

    def write(self, command: np.ndarray) -> None:
        self.tries += 1
        self.fails(self.tries)
        self.written.append(np.array(command))

    def stop(self) -> None:
        self.stops += 1

    def close(self) -> None: ...


class FakePolicy:
    kind = "walk"
    repeat = 1
    command_range = robot.COMMAND_RANGE

    def __init__(self, act: Callable[[int], Any] = lambda call: np.zeros(12)) -> None:
        self.act, self.seen = act, []

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.seen.append(obs)
        return self.act(len(self.seen) - 1)


def drive(
    path: Path, robot: Any, policy: Any = None, ticks: int = 50, clock: Any = None, **limits: Any
) -> tuple[Outcome, list[dict[str, Any]]]:
    """Run a controller; the outcome and the lines of its log."""
    log = TickLog(path / "log.jsonl")
    goal = np.array([0.0, 1.0])
    outcome = Controller(policy or FakePolicy(), robot, clock or robot.clock, goal, Limits(**limits), log).run(ticks)
    log.close()
    return outcome, [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
