"""Running an exported policy on a robot at a fixed rate, without JAX and without Gymnasium (docs/deploy.md).

The controller imports numpy and onnxruntime alone. `simulated` adds mujoco, `dynamixel` the motors' own library.
"""

from __future__ import annotations

from beeline.deploy.controller import Controller, Limits, Outcome
from beeline.deploy.interfaces import Clock, ManualClock, Monotonic, Pose, Robot, Sensed, Tracker
from beeline.deploy.log import TickLog
from beeline.deploy.policy import OnnxPolicy

__all__ = [
    "Clock", "Controller", "Limits", "ManualClock", "Monotonic", "OnnxPolicy", "Outcome", "Pose", "Robot", "Sensed", "TickLog",
    "Tracker",
]  # fmt: skip
