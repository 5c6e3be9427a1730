"""The D'Kitty in numbers: joints, what may be commanded, and the control law. Imports numpy alone.

Axes: x right, y forward, z up. Legs in the order front right, front left, back left, back right; each has a roll, a pitch
and a knee joint. Whatever moves the robot, simulated or real, goes through `joint_targets` and `limited`.
"""

from __future__ import annotations

import math

import numpy as np

LEGS = ("FR", "FL", "BL", "BR")
JOINTS = tuple(f"{leg}J{number}{part}" for number, leg in enumerate(LEGS, 1) for part in range(3))
HIPS = ((0.09, 0.122), (-0.09, 0.122), (-0.09, -0.122), (0.09, -0.122))  # x and y of each leg's first axis
HEIGHT = 0.3  # of the torso with straight legs; positions are displacements from (0, 0, HEIGHT)
THIGH, SHANK = 0.0945, 0.111  # hip-pitch axis to knee, knee to sole

TIMESTEP = 0.0025
SUBSTEPS = 40
CONTROL_STEP = TIMESTEP * SUBSTEPS  # 10 Hz
MAX_SPEED = math.pi  # rad/s that a command may ask of a joint


def _legs(right: list[tuple[float, float]], left: list[tuple[float, float]]) -> np.ndarray:
    """(low, high) of the twelve joints from those of a right and of a left leg."""
    return np.array([*right, *left, *left, *right])


def _mirrored(roll: tuple[float, float], pitch: tuple[float, float], knee: tuple[float, float]) -> np.ndarray:
    """Ranges of all joints from those of a right leg: the left legs roll the other way."""
    return _legs([roll, pitch, knee], [(-roll[1], -roll[0]), pitch, knee])


JOINT_RANGE = _mirrored((-3.419, 0.279), (-2.14, 2.14), (-1.57, 1.57))
COMMAND_RANGE = _mirrored((-0.5, 0.279), (0.0, math.pi / 2), (-2.0, 0.0))
WIDE_RANGE = _mirrored((-1.57, 0.279), (-2.14, 2.14), (-1.57, 1.57))  # of the robot's first release
CROUCH = np.tile([0.0, math.pi / 4, -math.pi / 2], 4)


def joint_targets(action: np.ndarray, command_range: np.ndarray = COMMAND_RANGE) -> np.ndarray:
    """The joint positions that an action in [-1, 1] asks for: the middle of the command range is 0."""
    low, high = command_range[:, 0], command_range[:, 1]
    return np.clip((low + high) / 2 + action * (high - low) / 2, low, high)


def action_for(targets: np.ndarray, command_range: np.ndarray = COMMAND_RANGE) -> np.ndarray:
    """The action that asks for these joint positions: `joint_targets` backwards, clipped to [-1, 1]."""
    low, high = command_range[:, 0], command_range[:, 1]
    return np.clip((2 * targets - low - high) / (high - low), -1.0, 1.0)


def limited(targets: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Targets that keep the speed limit: at most MAX_SPEED · CONTROL_STEP from where the joints are now."""
    reach = MAX_SPEED * CONTROL_STEP
    return joints + np.clip(targets - joints, -reach, reach)
