"""What a D'Kitty policy sees, built from one reading of the robot. Imports numpy alone.

The simulated environments and a controller of the real robot call the same `observe`, so that the two cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

MAX_RATE = 50.0  # rad/s: Euler rates grow without bound where pitch is near a quarter turn
SMALLEST_COSINE = 1e-3

COMMON = {
    "root_pos": 3,
    "root_euler": 3,
    "kitty_qpos": 12,
    "root_vel": 3,
    "root_angular_vel": 3,
    "kitty_qvel": 12,
    "last_action": 12,
    "upright": 1,
}
OWN = {
    "walk": {"heading": 1, "target_error": 2},
    "stand": {"pose_error": 12},
    "orient": {"current_facing": 2, "desired_facing": 2},
}


@dataclasses.dataclass
class Reading:
    """One look at the robot: torso in the world, joints in the order of `robot.JOINTS`.

    `position` is the torso's displacement from (0, 0, 0.3); `euler` are the angles of R = Rx · Ry · Rz, `rates` their
    derivatives (not the angular velocity).
    """

    position: np.ndarray
    euler: np.ndarray
    joints: np.ndarray
    velocity: np.ndarray
    rates: np.ndarray
    joint_velocities: np.ndarray

    @property
    def upright(self) -> float:
        """R[2, 2]: the cosine of the angle between the torso's z axis and the vertical."""
        return math.cos(self.euler[0]) * math.cos(self.euler[1])

    @property
    def facing(self) -> tuple[float, float]:
        """R[0:2, 1]: the torso's forward axis seen from above; shorter than 1 when it is tilted."""
        sx, sy, sz = map(math.sin, self.euler)
        cx, cy, cz = map(math.cos, self.euler)
        return -cy * sz, cx * cz - sx * sy * sz


def layout(task: str) -> dict[str, slice]:
    """Where each part of the observation of `walk`, `stand` or `orient` lies."""
    places, at = {}, 0
    for name, size in (COMMON | OWN[task]).items():
        places[name] = slice(at, at + size)
        at += size
    return places


def observe(task: str, reading: Reading, last_action: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """The observation in the order of `layout`, unscaled, as float32.

    `goal` is the target's x and y (walk, orient) or the desired joint positions (stand); `last_action` is the clipped
    action of the step before, 0 at the start.
    """
    own: np.ndarray | list[float]
    if task == "stand":
        own = goal - reading.joints
    elif task == "walk":
        own = [heading(reading, goal), goal[0] - reading.position[0], goal[1] - reading.position[1]]
    else:
        own = [*reading.facing, *direction(reading, goal)]
    return np.concatenate(
        (
            reading.position,
            reading.euler,
            reading.joints,
            reading.velocity,
            reading.rates,
            reading.joint_velocities,
            last_action,
            [reading.upright],
            own,
        ),
        dtype=np.float32,
    )


def distance(reading: Reading, target: np.ndarray) -> float:
    """From the torso to the target, seen from above."""
    return math.hypot(target[0] - reading.position[0], target[1] - reading.position[1])


def direction(reading: Reading, target: np.ndarray) -> tuple[float, float]:
    """The unit vector from the torso to the target, seen from above; (0, 0) on the target itself."""
    x, y = target[0] - reading.position[0], target[1] - reading.position[1]
    length = math.hypot(x, y)
    return (x / length, y / length) if length else (0.0, 0.0)


def heading(reading: Reading, target: np.ndarray) -> float:
    """The cosine of the angle between where the torso faces and where the target is; 0 where either has no direction."""
    facing, wanted = reading.facing, direction(reading, target)
    length = math.hypot(*facing)
    return (facing[0] * wanted[0] + facing[1] * wanted[1]) / length if length else 0.0


def euler_of(rotation: np.ndarray) -> np.ndarray:
    """The angles (x, y, z) of a rotation matrix R = Rx · Ry · Rz."""
    return np.array(
        [
            math.atan2(-rotation[1, 2], rotation[2, 2]),
            math.asin(min(1.0, max(-1.0, rotation[0, 2]))),
            math.atan2(-rotation[0, 1], rotation[0, 0]),
        ]
    )


def euler_rates(euler: np.ndarray, angular_velocity: np.ndarray) -> np.ndarray:
    """Derivatives of the angles from the angular velocity in the body's frame, bounded at the singular pitch.

    ω = [[cy·cz, sz, 0], [-cy·sz, cz, 0], [sy, 0, 1]] · rates, solved by hand.
    """
    sy, sz = math.sin(euler[1]), math.sin(euler[2])
    cy, cz = math.cos(euler[1]), math.cos(euler[2])
    cy = math.copysign(max(abs(cy), SMALLEST_COSINE), cy)
    wx, wy, wz = angular_velocity
    x = (cz * wx - sz * wy) / cy
    return np.clip([x, sz * wx + cz * wy, wz - sy * x], -MAX_RATE, MAX_RATE)
