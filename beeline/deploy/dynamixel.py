"""The real D'Kitty: twelve Dynamixel motors of the X series on one bus, and a tracker for the torso."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from beeline.deploy.interfaces import Clock, Sensed, Tracker
from beeline.deploy.tracking import Motion
from beeline.envs.dkitty.observation import Reading
from beeline.errors import MissingExtraError, RobotError

PI = math.pi
# joint = scale · motor + offset, by the motor's id; in the order of the joints
MOTORS: dict[int, tuple[float, float]] = {
    10: (1, -3 * PI / 2), 11: (-1, PI), 12: (-1, PI),
    20: (1, -PI / 2), 21: (1, -PI), 22: (1, -PI),
    30: (-1, 3 * PI / 2), 31: (1, -PI), 32: (1, -PI),
    40: (-1, PI / 2), 41: (-1, PI), 42: (-1, PI),
}  # fmt: skip
IDS = tuple(MOTORS)
SCALE = np.array([scale for scale, _ in MOTORS.values()])
OFFSET = np.array([offset for _, offset in MOTORS.values()])

# Registers (address, bytes) and units of the X series, protocol 2.0
OPERATING_MODE, TORQUE, HARDWARE_ERROR = (11, 1), (64, 1), (70, 1)
GOAL_POSITION, PRESENT_VELOCITY_POSITION = (116, 4), (128, 8)
POSITION_MODE = 3
TURN = 4096  # counts of a revolution
VELOCITY_UNIT = 0.229 * 2 * PI / 60  # rad/s
ERRORS = {0: "its voltage is wrong", 2: "it is too hot", 3: "its encoder fails", 4: "its electronics fail", 5: "it is overloaded"}


class Bus(Protocol):
    """Registers of motors on a bus; RobotError where one does not answer."""

    def read(self, register: tuple[int, int], ids: Sequence[int]) -> list[int]:
        """The register of every motor, as an unsigned number."""

    def write(self, register: tuple[int, int], values: Mapping[int, int]) -> None:
        """Set the register of these motors, at the same time."""

    def close(self) -> None:
        """Close the port."""


class DynamixelRobot:
    """The robot of the controller on a bus. The motors get power when it is made, and keep it until `stop` or `close`."""

    def __init__(self, bus: Bus, tracker: Tracker, clock: Clock) -> None:
        self.bus, self.tracker, self.clock = bus, tracker, clock
        self.motion = Motion(tracker)
        self._write_all(TORQUE, 0)  # the mode can be changed only without it
        self._write_all(OPERATING_MODE, POSITION_MODE)
        # A motor that gets power goes to its goal at once: let this be where it is.
        self.write(self._joints()[0])
        self._write_all(TORQUE, 1)

    def read(self) -> Sensed:
        """Joints from the bus, the torso from the tracker, and what the motors complain of."""
        joints, speeds = self._joints()
        joints_at = self.clock.now()
        (position, euler, velocity, rates), pose_at = self.motion.read()
        reading = Reading(position, euler, joints, velocity, rates, speeds)
        return Sensed(reading, joints.copy(), joints_at, pose_at, self._trouble())

    def _joints(self) -> tuple[np.ndarray, np.ndarray]:
        both = np.array(self.bus.read(PRESENT_VELOCITY_POSITION, IDS), np.uint64)
        velocity, position = ((both >> shift).astype(np.uint32).view(np.int32) for shift in (np.uint64(0), np.uint64(32)))
        return SCALE * (position * (2 * PI / TURN)) + OFFSET, SCALE * velocity * VELOCITY_UNIT

    def _trouble(self) -> str:
        found = zip(IDS, self.bus.read(HARDWARE_ERROR, IDS))
        bits = [(motor, ERRORS.get(bit, f"error bit {bit}")) for motor, value in found for bit in range(8) if value >> bit & 1]
        return "; ".join(f"motor {motor}: {text}" for motor, text in bits)

    def write(self, command: np.ndarray) -> None:
        """Goal positions of all motors in one packet; a goal outside of the motor's one turn is refused."""
        counts = np.round((command - OFFSET) / SCALE * (TURN / (2 * PI))).astype(int)
        if (counts < 0).any() or (counts >= TURN).any():
            raise RobotError(f"the command {np.round(command, 3).tolist()} is outside of what the motors can turn to.")
        self.bus.write(GOAL_POSITION, dict(zip(IDS, counts.tolist())))

    def stop(self) -> None:
        """Take the power from every motor, one by one where the bus fails; RobotError names those that may still have it."""
        lost = []
        for motor in IDS:
            try:
                self.bus.write(TORQUE, {motor: 0})
            except RobotError:
                lost.append(str(motor))
        if lost:
            raise RobotError(f"motors {', '.join(lost)} do not answer: take the power from the robot.")

    def close(self) -> None:
        """Take the power from the motors and close bus and tracker."""
        with contextlib.suppress(RobotError):
            self.stop()
        self.bus.close()
        self.tracker.close()

    def _write_all(self, register: tuple[int, int], value: int) -> None:
        self.bus.write(register, dict.fromkeys(IDS, value))


class SdkBus:
    """A serial port, through the motors' own library."""

    def __init__(self, port: str, baud: int = 1_000_000) -> None:
        try:
            import dynamixel_sdk as sdk
        except ImportError as error:
            raise MissingExtraError("a robot of Dynamixel motors", "robot", str(error)) from error
        self._sdk, self._name = sdk, port
        self._port, self._packets = sdk.PortHandler(port), sdk.PacketHandler(2.0)
        self._readers: dict[tuple[tuple[int, int], tuple[int, ...]], Any] = {}
        try:
            opened = self._port.openPort() and self._port.setBaudRate(baud)
        except OSError as error:  # pyserial's errors are of this kind
            raise RobotError(f"the port {port} cannot be opened: {error}.") from None
        if not opened:
            raise RobotError(f"the port {port} cannot be opened at {baud:,} baud.")

    def read(self, register: tuple[int, int], ids: Sequence[int]) -> list[int]:
        """One packet out, one back from every motor."""
        key = register, tuple(ids)
        if key not in self._readers:
            self._readers[key] = self._sdk.GroupSyncRead(self._port, self._packets, *register)
            for motor in ids:
                self._readers[key].addParam(motor)
        reader, (address, size) = self._readers[key], register
        self._check(self._call(reader.txRxPacket))
        values = []
        for motor in ids:
            if not reader.isAvailable(motor, address, size):
                raise RobotError(f"motor {motor} on {self._name} does not answer.")
            halves = range(0, size, 4) if size > 4 else (0,)
            values.append(sum(reader.getData(motor, address + at, min(size, 4)) << 8 * at for at in halves))
        return values

    def write(self, register: tuple[int, int], values: Mapping[int, int]) -> None:
        """One packet to all of these motors; none answers it."""
        address, size = register
        packet = self._sdk.GroupSyncWrite(self._port, self._packets, address, size)
        for motor, value in values.items():
            packet.addParam(motor, list(value.to_bytes(size, "little")))
        self._check(self._call(packet.txPacket))

    def _call(self, function: Any) -> int:
        # The library marks the port as used and forgets to take that back where it is interrupted, by Ctrl-C for example;
        # nobody else uses this one.
        self._port.is_using = False
        try:
            return function()
        except OSError as error:  # a plug that was pulled
            raise RobotError(f"the port {self._name} is lost: {error}.") from None

    def _check(self, result: int) -> None:
        if result != self._sdk.COMM_SUCCESS:
            raise RobotError(f"{self._name}: {self._packets.getTxRxResult(result).removeprefix('[TxRxResult] ')}")

    def close(self) -> None:
        """Close the port."""
        self._port.closePort()
