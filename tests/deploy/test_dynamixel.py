"""The real robot's side: the mapping of its motors on a fake bus, the motors' library on a fake port, and the tracker."""

from __future__ import annotations

import json
import math
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fakes import FakePolicy, drive

from beeline.deploy import ManualClock, Pose
from beeline.deploy.dynamixel import IDS, DynamixelRobot, SdkBus
from beeline.deploy.tracking import Motion, UdpTracker, rotation_of
from beeline.envs.dkitty import robot
from beeline.errors import RobotError

PI = math.pi
# Motor angles of straight legs (all joints 0), by hand from joint = scale · motor + offset
ROLLS = {10: 3 * PI / 2, 20: PI / 2, 30: 3 * PI / 2, 40: PI / 2}
STRAIGHT = ROLLS | {leg + part: PI for leg in ROLLS for part in (1, 2)}
RIGHT, LEFT = (3 * PI / 4, 3 * PI / 2), (5 * PI / 4, PI / 2)
CROUCHED = {leg + part: (RIGHT if leg in (10, 40) else LEFT)[part - 1] for leg in ROLLS for part in (1, 2)}


class FakeBus:
    """Motors that go where they are told, if they have power."""

    def __init__(self) -> None:
        self.counts = {motor: round(angle / (2 * PI) * 4096) for motor, angle in STRAIGHT.items()}
        self.goals, self.speeds = dict(self.counts), dict.fromkeys(IDS, 0)
        self.power, self.mode, self.errors = dict.fromkeys(IDS, 1), dict.fromkeys(IDS, 4), dict.fromkeys(IDS, 0)
        self.history: list[tuple[int, dict[int, int]]] = []
        self.lost: set[int] = set()
        self.closed = False

    def read(self, register: tuple[int, int], ids: Sequence[int]) -> list[int]:
        if self.lost:
            raise RobotError("there is no status packet")
        if register == (70, 1):
            return [self.errors[motor] for motor in ids]
        assert register == (128, 8)
        return [(self.speeds[m] & 0xFFFFFFFF) | (self.counts[m] & 0xFFFFFFFF) << 32 for m in ids]

    def write(self, register: tuple[int, int], values: Mapping[int, int]) -> None:
        if self.lost & set(values):
            raise RobotError("there is no status packet")
        self.history.append((register[0], dict(values)))
        for motor, value in values.items():
            if register == (116, 4):
                self.goals[motor] = value
            elif register == (64, 1):
                self.power[motor] = value
            else:
                assert register == (11, 1) and not self.power[motor], "the mode can be changed only without power"
                self.mode[motor] = value
            if self.power[motor]:
                self.counts[motor] = self.goals[motor]

    def close(self) -> None:
        self.closed = True


class FakeTracker:
    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.at, self.position, self.rotation = clock, None, np.array([0.0, 0.0, 0.3]), np.eye(3)

    def pose(self) -> Pose:
        at = self.clock.now() if self.at is None else self.at
        return Pose(self.position + np.array([0.0, 0.05 * at, 0.0]), self.rotation, at)

    def close(self) -> None: ...


@pytest.fixture
def parts() -> tuple[DynamixelRobot, FakeBus, FakeTracker, ManualClock]:
    clock = ManualClock()
    bus, tracker = FakeBus(), FakeTracker(clock)
    return DynamixelRobot(bus, tracker, clock), bus, tracker, clock


def test_motors_map_to_joints(parts: Any) -> None:
    made, bus, _, _ = parts
    np.testing.assert_allclose(made.read().joints, 0.0, atol=1e-12)
    made.write(robot.CROUCH)
    for motor, angle in (STRAIGHT | CROUCHED).items():
        assert bus.goals[motor] == round(angle / (2 * PI) * 4096), motor
    np.testing.assert_allclose(made.read().joints, robot.CROUCH, atol=2 * PI / 4096)
    # Outward roll is negative on the right, positive on the left
    made.write(np.tile([0.2, 0.0, 0.0], 4) * np.repeat([-1, 1, 1, -1], 3))
    turned = {m: (bus.goals[m] - STRAIGHT[m] / (2 * PI) * 4096) * 2 * PI / 4096 for m in (10, 20, 30, 40)}
    assert turned == pytest.approx({10: -0.2, 20: 0.2, 30: -0.2, 40: 0.2}, abs=1e-3)
    bus.speeds |= {11: 10, 21: -10}
    speeds = made.read().reading.joint_velocities
    unit = 0.229 * 2 * PI / 60
    assert speeds[[1, 4]] == pytest.approx([-10 * unit, -10 * unit]) and not np.delete(speeds, [1, 4]).any()


def test_every_joint_position_can_be_commanded_and_read_back(parts: Any) -> None:
    made, _, _, _ = parts
    draw = np.random.default_rng(0)
    for _ in range(50):
        wanted = draw.uniform(*robot.JOINT_RANGE.T)
        made.write(wanted)
        np.testing.assert_allclose(made.read().joints, wanted, atol=PI / 4096 + 1e-12)
    with pytest.raises(RobotError, match="outside of what the motors can turn to"):
        made.write(np.full(12, 5.0))


def test_motors_get_power_where_they_are(parts: Any) -> None:
    _, bus, _, _ = parts
    assert [register for register, _ in bus.history] == [64, 11, 116, 64]
    assert set(bus.mode.values()) == {3} and set(bus.power.values()) == {1}
    assert bus.goals == {motor: round(angle / (2 * PI) * 4096) for motor, angle in STRAIGHT.items()}


def test_the_emergency_stop_reaches_every_motor_that_answers(parts: Any) -> None:
    made, bus, _, _ = parts
    bus.lost = {21, 30}
    with pytest.raises(RobotError, match="motors 21, 30 do not answer: take the power"):
        made.stop()
    assert bus.power == {motor: int(motor in (21, 30)) for motor in IDS}
    bus.lost = set()
    made.stop()
    assert not any(bus.power.values())
    made.close()
    assert bus.closed


def test_a_motor_that_complains_ends_the_walk_in_the_safe_pose(parts: Any, tmp_path: Path) -> None:
    made, bus, _, clock = parts

    def act(call: int) -> np.ndarray:
        bus.errors[21] = 0b100000 * (call >= 7)
        return np.full(12, 0.05 * (call % 2))

    outcome, _ = drive(tmp_path, made, FakePolicy(act), clock=clock)
    assert (outcome.kind, outcome.reason, outcome.safe) == ("robot", "motor 21: it is overloaded", True)
    np.testing.assert_allclose(made._joints()[0], robot.CROUCH, atol=2 * PI / 4096)


@pytest.mark.parametrize("fault", ["stale pose", "lost bus"])
def test_faults_of_the_hardware_end_in_the_safe_pose(parts: Any, tmp_path: Path, fault: str) -> None:
    made, bus, tracker, clock = parts

    def act(call: int) -> np.ndarray:
        if fault == "lost bus":
            bus.lost = {20} if call == 7 else set()
        elif call == 7:
            tracker.at = clock.now()
        return np.full(12, 0.05 * (call % 2))

    class Recovering(ManualClock):
        def wait_until(self, moment: float) -> None:
            super().wait_until(moment)
            if moment > 1.2:
                bus.lost = set()

    made.clock = tracker.clock = clock = Recovering()
    outcome, log = drive(tmp_path, made, FakePolicy(act), clock=clock)
    kind, words = {"stale pose": ("stale", "torso's pose was measured"), "lost bus": ("bus", "no status packet")}[fault]
    assert outcome.kind == kind and words in outcome.reason and outcome.safe and words in log[-1]["reason"]
    np.testing.assert_allclose(made._joints()[0], robot.CROUCH, atol=2 * PI / 4096)


# --- the motors' own library, on a port that answers as the motors do ---------------------------------------------------


class FakeSerial:
    """The far end of a serial port: motors that know sync read and sync write of protocol 2.0."""

    silent: ClassVar[set[int]] = set()
    made: ClassVar[list[FakeSerial]] = []

    def __init__(self, **options: Any) -> None:
        self.bus, self.answer, self.interrupt = FakeBus(), b"", False
        FakeSerial.made.append(self)

    def reset_input_buffer(self) -> None:
        self.answer = b""

    def read(self, length: int) -> bytes:
        out, self.answer = self.answer[:length], self.answer[length:]
        return out

    def write(self, packet: Any) -> int:
        if self.interrupt:
            self.interrupt = False
            raise KeyboardInterrupt
        data = bytes(packet)
        body = data[8:-2]
        address, size = int.from_bytes(body[:2], "little"), int.from_bytes(body[2:4], "little")
        if data[7] == 0x82:
            answering = [motor for motor in body[4:] if motor not in self.silent]
            for motor, value in zip(answering, self.bus.read((address, size), answering)):
                self.answer += self.status(motor, value.to_bytes(size, "little"))
        else:
            assert data[7] == 0x83
            rows = [body[at : at + 1 + size] for at in range(4, len(body), 1 + size)]
            self.bus.write((address, size), {row[0]: int.from_bytes(row[1:], "little") for row in rows})
        return len(data)

    def status(self, motor: int, parameters: bytes) -> bytes:
        from dynamixel_sdk import PacketHandler

        packet = [0xFF, 0xFF, 0xFD, 0, motor, (len(parameters) + 4) & 0xFF, 0, 0x55, 0, *parameters]
        crc = PacketHandler(2.0).updateCRC(0, packet, len(packet))
        return bytes([*packet, crc & 0xFF, crc >> 8])

    def close(self) -> None: ...


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("dynamixel_sdk")
    from dynamixel_sdk import port_handler

    monkeypatch.setattr(port_handler.serial, "Serial", FakeSerial)
    monkeypatch.setattr(FakeSerial, "silent", set())
    monkeypatch.setattr(FakeSerial, "made", [])
    return FakeSerial


def test_the_library_of_the_motors(serial: Any) -> None:
    clock = ManualClock()
    made = DynamixelRobot(SdkBus("/dev/fake"), FakeTracker(clock), clock)
    motors = serial.made[-1].bus
    assert set(motors.power.values()) == {1} and set(motors.mode.values()) == {3}
    motors.speeds[42] = -3
    sensed = made.read()
    np.testing.assert_allclose(sensed.joints, 0.0, atol=1e-12)
    assert sensed.reading.joint_velocities[11] == pytest.approx(3 * 0.229 * 2 * PI / 60)
    made.write(robot.CROUCH)
    np.testing.assert_allclose(made.read().joints, robot.CROUCH, atol=2 * PI / 4096)
    serial.silent = {21}
    with pytest.raises(RobotError, match="/dev/fake: There is no status packet"):
        made.read()
    serial.silent = set()
    made.read()
    made.close()
    assert not any(motors.power.values())


def test_ctrl_c_in_the_middle_of_a_packet_does_not_block_the_bus(serial: Any) -> None:
    clock = ManualClock()
    made = DynamixelRobot(SdkBus("/dev/fake"), FakeTracker(clock), clock)
    for use in (made.read, lambda: made.write(np.zeros(12))):
        serial.made[-1].interrupt = True
        with pytest.raises(KeyboardInterrupt):
            use()
        made.write(robot.CROUCH)
        made.read()


def test_a_port_that_is_not_there() -> None:
    pytest.importorskip("dynamixel_sdk")
    with pytest.raises(RobotError, match="port /dev/no-such-port cannot be opened"):
        SdkBus("/dev/no-such-port")


# --- tracker ----------------------------------------------------------------------------------------------------------


class Poses:
    def __init__(self, *poses: Pose) -> None:
        self.left = list(poses)

    def pose(self) -> Pose:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def close(self) -> None: ...


def about_z(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1.0]])


def test_velocities_are_differences_in_the_frame_of_the_start() -> None:
    # The walk begins at (3, 4) facing -x of the room (a yaw of 90°): 0.2 m along -x are 0.2 m forwards.
    start = Pose(np.array([3.0, 4.0, 0.31]), about_z(PI / 2), 1.0)
    later = Pose(np.array([2.8, 4.0, 0.30]), about_z(PI / 2 + 0.1), 1.1)
    motion = Motion(Poses(start, later, later))
    (position, euler, velocity, rates), at = motion.read()
    assert at == 1.0 and not velocity.any() and not rates.any()
    np.testing.assert_allclose([*position, *euler], 0.0, atol=1e-12)
    for _ in range(2):  # a pose that is read twice changes nothing
        (position, euler, velocity, rates), at = motion.read()
        assert at == 1.1
        np.testing.assert_allclose(position, [0.0, 0.2, -0.01], atol=1e-12)
        np.testing.assert_allclose(euler, [0.0, 0.0, 0.1], atol=1e-12)
        np.testing.assert_allclose(velocity, [0.0, 2.0, -0.1], atol=1e-9)
        np.testing.assert_allclose(rates, [0.0, 0.0, 1.0], atol=1e-9)


def test_rates_do_not_jump_where_angles_wrap() -> None:
    poses = [Pose(np.zeros(3), about_z(angle), 0.1 * i) for i, angle in enumerate([0.0, 3.1, 3.2])]
    motion = Motion(Poses(*poses))
    for _ in range(3):
        (_, _, _, rates), _ = motion.read()
    assert rates == pytest.approx([0, 0, 1.0])


def test_quaternions() -> None:
    half = math.sqrt(0.5)
    np.testing.assert_allclose(rotation_of(np.array([2 * half, 0, 0, 2 * half])), about_z(PI / 2), atol=1e-12)
    np.testing.assert_allclose(rotation_of(np.array([0.0, 1.0, 0.0, 0.0])), np.diag([1.0, -1.0, -1.0]), atol=1e-12)


def test_poses_over_the_network() -> None:
    clock = ManualClock(3.0)
    tracker = UdpTracker(0, clock)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(text: str) -> None:
        sender.sendto(text.encode(), ("127.0.0.1", tracker.port))

    with pytest.raises(RobotError, match="no pose yet"):
        tracker.pose()
    send(json.dumps([0, 0, 0, 1, 0, 0, 0]))
    send(json.dumps([1, 2, 0.3, 1, 0, 0, 0]))
    pose = tracker.pose()  # the newest
    assert pose.at == 3.0
    np.testing.assert_allclose(pose.position, [1, 2, 0.3])
    clock.time = 4.0
    assert tracker.pose().at == 3.0  # nothing has come: it grows old
    for wrong in ("[1, 2]", "nonsense", "[NaN, 0, 0, 1, 0, 0, 0]", "[1, 2, 3, 0, 0, 0, 0]", '{"x": 1}'):
        send(wrong)
        with pytest.raises(RobotError, match=r"the tracker sent .* which is not \[x, y, z, qw"):
            tracker.pose()
    with pytest.raises(RobotError, match="cannot be opened"):
        UdpTracker(tracker.port, clock)
    sender.close()
    tracker.close()


def test_the_command_on_a_real_robot(serial: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    pytest.importorskip("onnxruntime")
    from policies import small_policy

    from beeline import deploy
    from beeline.cli.commands import main
    from beeline.deploy import tracking

    small_policy(tmp_path / "p.onnx")
    clock = ManualClock()
    monkeypatch.setattr(deploy, "Monotonic", lambda: clock)
    still = Pose(np.array([0.0, 0.0, 0.3]), np.eye(3), 0.0)
    monkeypatch.setattr(tracking.UdpTracker, "pose", lambda self: still)  # comes once, and grows old
    power: list[int] = []
    monkeypatch.setattr("builtins.input", lambda text: power.append(sum(serial.made[-1].bus.power.values())))
    words = ["--robot", "dynamixel", "--port", "/dev/fake", "--tracker", "0", "--log", str(tmp_path / "log.jsonl")]
    assert main(["deploy", str(tmp_path / "p.onnx"), *words]) == 2 and "needs --port" in capsys.readouterr().err
    words[5] = str(free_port())
    assert main(["deploy", str(tmp_path / "p.onnx"), *words]) == 1
    out = capsys.readouterr().out
    assert "stale: the torso's pose was measured 0.200 s ago" in out and "in the safe pose" in out
    motors = serial.made[-1].bus
    assert power == [12] and not any(motors.power.values())  # it holds its pose until somebody has it
    assert motors.goals[12] == round((PI + 1.57) / (2 * PI) * 4096)
    assert main(["deploy", str(tmp_path / "p.onnx"), *words]) == 2 and "exists already" in capsys.readouterr().err
    assert len(serial.made) == 2  # the port was opened twice by the first walk, once to set its speed, and not again


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
