"""The torso's pose from outside: velocities by difference, the frame of the walk, and poses that come over the network."""

from __future__ import annotations

import json
import math
import socket

import numpy as np

from beeline.deploy.interfaces import Clock, Pose, Tracker
from beeline.envs.dkitty.observation import MAX_RATE, euler_of
from beeline.errors import RobotError

Torso = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # position, euler, velocity, rates


class Motion:
    """The torso as a policy sees it, from a tracker's poses.

    The first pose is where the walk begins: x, y and yaw are counted from it, and its height is that of straight legs.
    Velocities are differences of the last two poses that were measured at different times; 0 before there are two.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._turn, self._origin = np.eye(3), np.zeros(3)
        self._last: tuple[Pose, np.ndarray, np.ndarray] | None = None
        self._velocity, self._rates = np.zeros(3), np.zeros(3)

    def read(self) -> tuple[Torso, float]:
        """Position (from (0, 0, 0.3)), angles, their derivatives, and when the pose was measured."""
        pose = self.tracker.pose()
        if self._last is None:
            self._begin(pose)
        position = self._turn @ (np.asarray(pose.position, float) - self._origin)
        euler = euler_of(self._turn @ pose.rotation)
        if self._last is not None and pose.at > self._last[0].at:
            passed = pose.at - self._last[0].at
            turned = np.remainder(euler - self._last[2] + math.pi, 2 * math.pi) - math.pi
            self._velocity, self._rates = (position - self._last[1]) / passed, np.clip(turned / passed, -MAX_RATE, MAX_RATE)
        if self._last is None or pose.at > self._last[0].at:
            self._last = pose, position, euler
        return (position, euler, self._velocity.copy(), self._rates.copy()), pose.at

    def _begin(self, pose: Pose) -> None:
        yaw = euler_of(np.asarray(pose.rotation, float))[2]
        c, s = math.cos(yaw), math.sin(yaw)
        self._turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        self._origin = np.array(pose.position, float)


def rotation_of(quaternion: np.ndarray) -> np.ndarray:
    """The rotation matrix of a quaternion (w, x, y, z), whatever its length."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class UdpTracker:
    """Poses that a motion capture system sends as datagrams: JSON, `[x, y, z, qw, qx, qy, qz]`, y forward and z up.

    A pose counts from when it was fetched: the newest of those that wait is taken, and it is never waited for.
    """

    def __init__(self, port: int, clock: Clock, host: str = "127.0.0.1") -> None:
        self._clock, self._newest = clock, None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            raise RobotError(f"the tracker's port {host}:{port} cannot be opened: {error.strerror or error}.") from None
        self.port = self._socket.getsockname()[1]

    _newest: Pose | None

    def pose(self) -> Pose:
        """The newest pose that has come."""
        text = b""
        try:
            while True:
                text = self._socket.recv(4096)
        except BlockingIOError:
            pass
        except OSError as error:
            raise RobotError(f"the tracker's port cannot be read: {error.strerror or error}.") from None
        if text:
            self._newest = self._parse(text)
        if self._newest is None:
            raise RobotError("the tracker has sent no pose yet.")
        return self._newest

    def _parse(self, text: bytes) -> Pose:
        try:
            numbers = np.array(json.loads(text), float)
        except (ValueError, TypeError, RecursionError):
            numbers = np.empty(0)
        if numbers.shape != (7,) or not np.isfinite(numbers).all() or not numbers[3:].any():
            raise RobotError(f"the tracker sent {text[:80]!r}, which is not [x, y, z, qw, qx, qy, qz].")
        return Pose(numbers[:3], rotation_of(numbers[3:]), self._clock.now())

    def close(self) -> None:
        """Close the port."""
        self._socket.close()
