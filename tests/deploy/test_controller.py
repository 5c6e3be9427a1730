"""The controller on a robot that is told what goes wrong, with a clock that only waiting moves."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fakes import FakePolicy, FakeRobot, drive

from beeline.deploy import ManualClock, Sensed, TickLog
from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import layout
from beeline.errors import RobotError, RunFolderError

SAFE = np.clip(robot.CROUCH, *robot.JOINT_RANGE.T)
BAD = 7  # the tick at which things go wrong


def in_the_safe_pose(outcome: Any, log: list[dict[str, Any]], made: FakeRobot, kind: str, words: str) -> None:
    """What every fault must end in."""
    assert outcome.kind == kind and words in outcome.reason, outcome
    assert outcome.safe and not outcome.success and made.stops == 0
    np.testing.assert_array_equal(made.written[-1], SAFE)
    steps = np.abs(np.diff(made.written[outcome.ticks - 1 :], axis=0))
    assert steps.max() <= 0.1 + 1e-12  # slowly: 1 rad/s
    assert log[-1]["end"] == kind and words in log[-1]["reason"] and log[-1]["safe"] is True
    assert sum("tick" in line for line in log) == outcome.ticks
    assert all(line["retreat"] == kind for line in log[1 + outcome.ticks : -1])


def test_a_walk_without_trouble(tmp_path: Path) -> None:
    made, policy = FakeRobot(ManualClock(5.0)), FakePolicy(lambda call: np.full(12, 0.1 * (call % 3)))
    outcome, log = drive(tmp_path, made, policy, ticks=60)
    assert (outcome.kind, outcome.reason, outcome.ticks, outcome.late) == ("time", "6 s are over", 60, 0)
    assert outcome.safe and outcome.success  # 0.6 m of 1: nearer than 0.5
    assert outcome.walked == pytest.approx(0.6) and outcome.distance == pytest.approx(0.4)
    assert made.clock.now() >= 5.0 + 60 * 0.1
    places = layout("walk")
    for call, obs in enumerate(policy.seen):
        np.testing.assert_allclose(obs[places["last_action"]], 0.1 * ((call - 1) % 3) if call else 0.0, atol=1e-7)
        np.testing.assert_allclose(obs[places["target_error"]], [0.0, 1 - 0.01 * call], atol=1e-6)
    assert log[0]["start"] and log[0]["goal"] == [0.0, 1.0] and log[0]["period"] == 0.1
    assert [line["tick"] for line in log[1:61]] == list(range(60))
    np.testing.assert_allclose(log[5]["observation"], policy.seen[4])
    np.testing.assert_allclose(log[5]["command"], made.written[4])
    np.testing.assert_array_equal(made.written[-1], SAFE)


def test_commands_keep_the_limits_of_speed_and_range(tmp_path: Path) -> None:
    made = FakeRobot(ManualClock())
    drive(tmp_path, made, FakePolicy(lambda call: np.full(12, -1.0 if call < 10 else 1.0)), ticks=20)
    walk = np.array(made.written[:20])
    assert np.abs(np.diff(walk, axis=0)).max() == pytest.approx(0.1 * math.pi)
    # The knee's command goes down to -2, its joint to -1.57
    assert walk[9, 2] == -1.57 and walk[:, 2].min() == -1.57
    assert (walk >= robot.JOINT_RANGE[:, 0]).all() and (walk <= robot.JOINT_RANGE[:, 1]).all()


def test_a_decision_lasts_for_its_control_steps(tmp_path: Path) -> None:
    made, policy = FakeRobot(ManualClock()), FakePolicy(lambda call: np.full(12, 0.1 * call))
    policy.repeat = 2
    _, log = drive(tmp_path, made, policy, ticks=6)
    assert [line["action"][0] for line in log[1:7]] == pytest.approx([0.0, 0.0, 0.1, 0.1, 0.2, 0.2])


# --- faults -----------------------------------------------------------------------------------------------------------


def freeze(part: str) -> Any:
    kept: list[Sensed] = []

    def meddle(written: int, sensed: Sensed) -> Sensed:
        kept.append(sensed)
        first = kept[min(BAD, len(kept) - 1)]
        if part == "joints":
            reading = dataclasses.replace(sensed.reading, joint_velocities=first.reading.joint_velocities)
            return dataclasses.replace(sensed, joints=first.joints, reading=reading)
        reading = dataclasses.replace(sensed.reading, position=first.reading.position, euler=first.reading.euler)
        return dataclasses.replace(sensed, reading=reading, joints=sensed.joints + 0.1)

    return meddle


@pytest.mark.parametrize("part", ["joints", "pose"])
def test_a_sensor_that_freezes(tmp_path: Path, part: str) -> None:
    made = FakeRobot(ManualClock(), meddle=freeze(part))
    outcome, log = drive(tmp_path, made, FakePolicy(lambda call: np.full(12, 0.9 * (-1) ** call)))
    in_the_safe_pose(outcome, log, made, "frozen", f"the {part} did not change in 5 ticks")
    assert outcome.ticks == BAD + 5


def test_a_robot_that_rests_is_not_frozen(tmp_path: Path) -> None:
    def still(written: int, sensed: Sensed) -> Sensed:
        reading = dataclasses.replace(sensed.reading, position=np.zeros(3), joint_velocities=np.zeros(12))
        return dataclasses.replace(sensed, reading=reading)

    stand = robot.action_for(np.zeros(12))
    outcome, _ = drive(tmp_path, FakeRobot(ManualClock(), meddle=still), FakePolicy(lambda call: stand))
    assert outcome.kind == "time"


@pytest.mark.parametrize(
    "name", ["joints", "position", "euler", "velocity", "rates", "joint_velocities", "joint encoders"]
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan(tmp_path: Path, name: str, value: float) -> None:
    def meddle(written: int, sensed: Sensed) -> Sensed:
        if written == BAD:
            (sensed.joints if name == "joint encoders" else getattr(sensed.reading, name))[1] = value
        return sensed

    made = FakeRobot(ManualClock(), meddle=meddle)
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "nan", f"{name.replace('_', ' ')} is not finite")
    assert outcome.ticks == BAD and all(np.isfinite(command).all() for command in made.written)


@dataclasses.dataclass
class LateClock(ManualClock):
    """Comes late by so many seconds at these waits."""

    delays: dict[int, float] = dataclasses.field(default_factory=dict)
    waits: int = -1

    def wait_until(self, moment: float) -> None:
        super().wait_until(moment)
        self.waits += 1
        self.time += self.delays.get(self.waits, 0.0)


def test_a_tick_that_comes_far_too_late(tmp_path: Path) -> None:
    made = FakeRobot(LateClock(delays={BAD: 0.13}))
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "late", "tick 7 came 0.130 s late; allowed are 0.1")
    assert outcome.late == 1


def test_late_ticks_are_counted_and_many_in_a_row_end_the_walk(tmp_path: Path) -> None:
    made = FakeRobot(LateClock(delays={3: 0.02, 4: 0.02, 8: 0.03, 12: 0.09}))
    outcome, log = drive(tmp_path, made)
    assert outcome.kind == "time" and outcome.late == 4
    assert [line["late"] for line in log[1:15]] == pytest.approx([0.02 * (i in (3, 4)) + 0.03 * (i == 8) + 0.09 * (i == 12)
                                                                 for i in range(14)])  # fmt: skip
    (tmp_path / "again").mkdir()
    made = FakeRobot(LateClock(delays=dict.fromkeys(range(BAD, 20), 0.02)))
    outcome, log = drive(tmp_path / "again", made)
    in_the_safe_pose(outcome, log, made, "late", "5 ticks in a row came more than 0.01 s late")


@pytest.mark.parametrize("part", ["joints", "torso's pose"])
def test_a_stale_observation(tmp_path: Path, part: str) -> None:
    def meddle(written: int, sensed: Sensed) -> Sensed:
        name = "joints_at" if part == "joints" else "pose_at"
        return dataclasses.replace(sensed, **{name: sensed.joints_at - 0.11}) if written >= BAD else sensed

    made = FakeRobot(ManualClock(), meddle=meddle)
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "stale", f"the {part} was measured 0.110 s ago; allowed are 0.1")


def test_a_policy_that_takes_too_long_makes_the_observation_stale(tmp_path: Path) -> None:
    clock = ManualClock()

    def think(call: int) -> np.ndarray:
        clock.time += 0.15 * (call == BAD)
        return np.zeros(12)

    made = FakeRobot(clock)
    outcome, log = drive(tmp_path, made, FakePolicy(think))
    in_the_safe_pose(outcome, log, made, "stale", "measured 0.150 s ago")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (np.where(np.arange(12) == 4, 1.2, 0.0), "out of bounds: 1.2 for FLJ21"),
        (np.full(12, np.nan), "not twelve finite numbers"),
        (np.zeros(11), "not twelve finite numbers"),
    ],
)
def test_an_action_out_of_bounds(tmp_path: Path, action: np.ndarray, words: str) -> None:
    made = FakeRobot(ManualClock())
    outcome, log = drive(tmp_path, made, FakePolicy(lambda call: action if call == BAD else np.zeros(12)))
    in_the_safe_pose(outcome, log, made, "action", words)
    assert outcome.ticks == BAD


def lose(first: int, last: float) -> Any:
    def fails(attempt: int) -> None:
        if first <= attempt <= last:
            raise RobotError("no status packet from motor 21")

    return fails


def test_a_bus_that_is_lost_and_comes_back(tmp_path: Path) -> None:
    made = FakeRobot(ManualClock(), fails=lose(BAD + 1, BAD + 6))
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "bus", "the robot does not answer: no status packet from motor 21")
    assert [line["error"] for line in log if "retreat" in line][:6] == ["no status packet from motor 21"] * 5 + [""]


def test_a_bus_that_is_lost_for_good(tmp_path: Path) -> None:
    made = FakeRobot(ManualClock(), fails=lose(BAD + 1, math.inf))
    outcome, log = drive(tmp_path, made)
    assert outcome.kind == "bus" and not outcome.safe and made.stops == 1
    assert made.tries == BAD + 1 + 20 and log[-2] == {"emergency_stop": True} and log[-1]["end"] == "bus"


def test_a_robot_that_cannot_be_read(tmp_path: Path) -> None:
    def reads(written: int, sensed: Sensed) -> Sensed:
        if written == BAD:
            raise RobotError("no status packet")
        return sensed

    made = FakeRobot(ManualClock(), meddle=reads)
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "bus", "no status packet")


def test_nothing_is_written_to_a_robot_that_was_never_read(tmp_path: Path) -> None:
    def meddle(written: int, sensed: Sensed) -> Sensed:
        raise RobotError("no status packet")

    made = FakeRobot(ManualClock(), meddle=meddle)
    outcome, _ = drive(tmp_path, made)
    assert (outcome.kind, outcome.safe, made.written, made.stops) == ("bus", False, [], 1)
    assert math.isnan(outcome.distance) and math.isnan(outcome.walked)


def interrupt(times: int = 1) -> Any:
    left = [times]

    def act(*_: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return np.zeros(12)

    return act


@pytest.mark.parametrize("where", ["policy", "read", "write", "wait"])
def test_ctrl_c(tmp_path: Path, where: str) -> None:
    press = interrupt()

    class Clock(ManualClock):
        def wait_until(self, moment: float) -> None:
            super().wait_until(moment)
            if where == "wait" and moment > 0.1 * (BAD - 0.5):
                press()

    policy = FakePolicy(lambda call: press() if where == "policy" and call == BAD else np.zeros(12))
    made = FakeRobot(
        Clock(),
        meddle=lambda written, sensed: (press(), sensed)[1] if where == "read" and written == BAD else sensed,
        fails=lambda attempt: press() if where == "write" and attempt == BAD + 1 else None,
    )
    outcome, log = drive(tmp_path, made, policy)
    in_the_safe_pose(outcome, log, made, "interrupted", "Ctrl-C")
    assert outcome.ticks == BAD


def test_a_second_ctrl_c_cuts_the_power(tmp_path: Path) -> None:
    made = FakeRobot(ManualClock())
    press = interrupt(2)
    made.fails = lambda attempt: press() if attempt > BAD else None
    outcome, log = drive(tmp_path, made)
    assert outcome.kind == "interrupted" and not outcome.safe and made.stops == 1
    assert log[-2] == {"emergency_stop": True}


def test_a_fall_is_no_success_and_ends_in_the_safe_pose(tmp_path: Path) -> None:
    def tilt(written: int, sensed: Sensed) -> Sensed:
        if written == BAD:
            sensed.reading.euler[0] = math.acos(0.89)
        return sensed

    made = FakeRobot(ManualClock(), meddle=tilt)
    outcome, log = drive(tmp_path, made)
    in_the_safe_pose(outcome, log, made, "fallen", "upright = 0.890, below 0.9")


def test_what_the_robot_itself_reports(tmp_path: Path) -> None:
    def hot(written: int, sensed: Sensed) -> Sensed:
        return dataclasses.replace(sensed, trouble="motor 21 is too hot") if written == BAD else sensed

    made = FakeRobot(ManualClock(), meddle=hot)
    in_the_safe_pose(*drive(tmp_path, made), made, "robot", "motor 21 is too hot")


def test_a_policy_that_fails_does_not_leave_the_robot_alone(tmp_path: Path) -> None:
    made = FakeRobot(ManualClock())
    outcome, log = drive(tmp_path, made, FakePolicy(lambda call: np.zeros(12) if call < BAD else [][0]))
    in_the_safe_pose(outcome, log, made, "error", "IndexError")


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    from beeline.deploy import Controller

    def log(**entry: Any) -> None:
        if ("tick" in entry and entry["tick"] >= BAD) or "retreat" in entry or "end" in entry:
            raise OSError(28, "No space left on device")

    made = FakeRobot(ManualClock())
    outcome = Controller(FakePolicy(), made, made.clock, np.array([0.0, 1.0]), log=log).run(50)
    assert outcome.kind == "log" and outcome.safe and "No space left" in outcome.reason
    np.testing.assert_array_equal(made.written[-1], SAFE)


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("kept")
    with pytest.raises(RunFolderError, match="exists already"):
        TickLog(tmp_path / "log.jsonl")
    with pytest.raises(RunFolderError, match="cannot be written"):
        TickLog(tmp_path / "nowhere" / "log.jsonl")


def test_where_no_walk_began_there_is_no_log(tmp_path: Path) -> None:
    TickLog(tmp_path / "log.jsonl").close()
    assert not (tmp_path / "log.jsonl").exists()
    log = TickLog(tmp_path / "log.jsonl")  # so that the next try may have the same name
    log(start=True)
    log.close()
    assert (tmp_path / "log.jsonl").read_text() == '{"start":true}\n'


# --- the way to the safe pose -----------------------------------------------------------------------------------------


def test_a_bus_that_fails_now_and_then_is_no_lost_bus(tmp_path: Path) -> None:
    def fails(attempt: int) -> None:
        if attempt > BAD and attempt % 3:  # two of three
            raise RobotError("corrupt packet")

    made = FakeRobot(ManualClock(), fails=fails)
    outcome, log = drive(tmp_path, made, patience=3)
    in_the_safe_pose(outcome, log, made, "bus", "corrupt packet")


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_on_the_way_to_the_safe_pose(tmp_path: Path, presses: int) -> None:
    made, press = FakeRobot(ManualClock()), interrupt(presses)
    made.fails = lambda attempt: press() if attempt > 23 else None
    outcome, log = drive(tmp_path, made, ticks=20)
    assert outcome.kind == "time" and outcome.safe == (presses == 1) and made.stops == presses - 1
    if presses == 1:
        np.testing.assert_array_equal(made.written[-1], SAFE)
        assert np.abs(np.diff(made.written[19:], axis=0)).max() <= 0.1 + 1e-12
    else:
        assert log[-2] == {"emergency_stop": True}


def test_the_clock_sleeps_until_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from beeline.deploy import interfaces

    clock, slept = ManualClock(7.0), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time += 0.75 * seconds if len(slept) == 1 else seconds  # wakes too early

    monkeypatch.setattr(interfaces.time, "monotonic", clock.now)
    monkeypatch.setattr(interfaces.time, "sleep", sleep)
    own = interfaces.Monotonic()
    own.wait_until(7.5)
    own.wait_until(7.2)
    assert own.now() == 7.5 and slept == [0.5, 0.125]
