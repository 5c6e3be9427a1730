"""What the controller knows of a robot, of the tracker of its torso, and of time."""

from __future__ import annotations

import dataclasses
import time
from typing import Protocol

import numpy as np

from beeline.envs.dkitty.observation import Reading


@dataclasses.dataclass(frozen=True)
class Sensed:
    """One look at a robot, with the times at which joints and torso were measured, in seconds of the controller's clock.

    `joints` are the encoders' own positions: limits of speed are held from them. A simulated robot adds the noise of its task
    to `reading`, which the policy sees, and not to these. `trouble` is what the robot itself reports, empty where all is well.
    """

    reading: Reading
    joints: np.ndarray
    joints_at: float
    pose_at: float
    trouble: str = ""


class Robot(Protocol):
    """Twelve position-controlled joints and a torso. What goes wrong in it is a RobotError."""

    def read(self) -> Sensed:
        """Where everything is now."""

    def write(self, command: np.ndarray) -> None:
        """New positions for the motors, in rad, in the order of the joints."""

    def stop(self) -> None:
        """Emergency stop: take the power from the motors. Must work whatever has happened before, and more than once."""

    def close(self) -> None:
        """Let go of the hardware."""


@dataclasses.dataclass(frozen=True)
class Pose:
    """Where the torso is in the world: position in metres, rotation matrix, and when it was measured."""

    position: np.ndarray
    rotation: np.ndarray
    at: float


class Tracker(Protocol):
    """What sees the torso from outside, such as a motion capture system."""

    def pose(self) -> Pose:
        """The newest pose there is; it never waits for a newer one. RobotError where there is none at all."""

    def close(self) -> None:
        """Let go of the hardware."""


class Clock(Protocol):
    """Time in seconds that only goes forwards."""

    def now(self) -> float:
        """The time."""

    def wait_until(self, moment: float) -> None:
        """Return at this time, or at once if it has passed."""


class Monotonic:
    """The computer's own clock."""

    def now(self) -> float:
        """Seconds since some start that never changes."""
        return time.monotonic()

    def wait_until(self, moment: float) -> None:
        """Sleep until then."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


@dataclasses.dataclass
class ManualClock:
    """A clock that is moved by waiting: a simulated robot goes as fast as it can."""

    time: float = 0.0

    def now(self) -> float:
        """The time that it was moved to."""
        return self.time

    def wait_until(self, moment: float) -> None:
        """Be there at once."""
        self.time = max(self.time, moment)
