"""A hand-made trot for the D'Kitty: diagonal pairs of legs, feet on a line while they push and on an arc while they swing."""

from __future__ import annotations

import math

import numpy as np

from beeline.envs.dkitty import robot

PERIOD, DUTY = 0.6, 0.48
STRIDE, LIFT, HIP_HEIGHT = 0.126, 0.040, 0.185
OUTWARD = 0.056  # roll of every leg
BACK = -0.017  # of the feet, against hips that sink backwards
LEAD = 0.2  # steps by which the command runs ahead of the clock
STANDING = 3  # steps before the first stride


def leg_angles(y: float, height: float) -> tuple[float, float]:
    """Pitch and knee that put the sole at y in front of the hip and `height` below it."""
    thigh, shank = robot.THIGH, robot.SHANK
    cosine = (y**2 + height**2 - thigh**2 - shank**2) / (2 * thigh * shank)
    knee = -math.acos(min(1.0, max(-1.0, cosine)))
    return math.atan2(-y, height) - math.atan2(shank * math.sin(knee), thigh + shank * math.cos(knee)), knee


def trot(step: int, yaw: float) -> np.ndarray:
    """The action of a control step; legs on the side towards which the robot has turned take longer strides."""
    walking = step >= STANDING
    joints = []
    for leg in range(4):
        right = leg in (0, 3)
        phase = ((step + LEAD) * robot.CONTROL_STEP / PERIOD + 0.5 * (leg % 2)) % 1.0
        stride = STRIDE * walking * (1 - (1 if right else -1) * min(0.6, max(-0.6, yaw)))
        if phase < DUTY:
            y, height = stride * (0.5 - phase / DUTY), HIP_HEIGHT
        else:
            swing = (phase - DUTY) / (1 - DUTY)
            y, height = stride * (swing - 0.5), HIP_HEIGHT - LIFT * walking * math.sin(math.pi * swing)
        joints += [-OUTWARD if right else OUTWARD, *leg_angles(y + BACK, height)]
    return robot.action_for(np.array(joints))
