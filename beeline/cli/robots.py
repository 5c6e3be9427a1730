"""Commands that take a policy out of the laboratory: `export` and `deploy`."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.deploy import OnnxPolicy, Outcome


def fill_export(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline export`."""
    parser.add_argument("run", type=Path, help="run folder or policy file")
    parser.add_argument("--onnx", type=Path, metavar="FILE", required=True, help="the file to write, such as policy.onnx")
    parser.add_argument("--best", action="store_true", help="the best evaluated policy instead of the latest")
    parser.add_argument("--env", help="the run's task again, if you have not named its Python module before")


def export(given: argparse.Namespace) -> int:
    """Write the policy of a run as ONNX and hold it against ours."""
    if given.onnx.suffix.lower() != ".onnx":
        raise ConfigError(f"the exported policy {given.onnx} must end in .onnx.")
    from beeline import api, runtime

    runtime.configure(None, None)
    path, policy, worst = api.export(given.run, given.onnx, best=given.best, env=given.env)
    print(f"{policy.meta['algo']} on {policy.meta['env']}, policy of step {policy.meta.get('step')}")
    print(f"{path}: its actions differ from ours by at most {worst:.1e} of half their range")
    return 0


def fill_deploy(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline deploy`."""
    parser.add_argument("policy", type=Path, help="policy of a D'Kitty task, as beeline export writes it")
    parser.add_argument("--robot", choices=("sim", "dynamixel"), default="sim", help="simulated, or the real one [sim]")
    parser.add_argument("--target", type=float, metavar="M", help="metres straight ahead [the terrain's; dynamixel: 1]")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long to walk [the task's time; dynamixel: 16]")
    parser.add_argument("--log", type=Path, metavar="FILE", help="new file for a line of JSON per tick [none for sim]")
    group = parser.add_argument_group("simulated robot")
    group.add_argument("--terrain", metavar="TASK", help="D'Kitty task, such as walk-grassland?latency=0.02 [walk-smooth-road]")
    group.add_argument("--seed", type=int, help="seed of the episode [0]")
    group.add_argument("--real-time", action="store_true", help="by the clock, not as fast as possible")
    group = parser.add_argument_group("real robot")
    group.add_argument("--port", metavar="DEVICE", help="serial port of the motors, such as /dev/ttyUSB0")
    group.add_argument("--baud", type=int, metavar="N", help="its speed [1000000]")
    group.add_argument("--tracker", type=int, metavar="PORT", help="UDP port at which the torso's poses arrive")


SIMULATED, REAL = ("terrain", "seed", "real_time"), ("port", "baud", "tracker")
REAL_STEPS = 160  # of a walk on a real robot: 16 s


def deploy(given: argparse.Namespace) -> int:
    """Run an exported policy on a robot; exit code 0 where its time was up, 1 where anything else ended the walk."""
    for name in REAL if given.robot == "sim" else SIMULATED:
        if getattr(given, name) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')} is no option of --robot {given.robot}.")
    if given.seconds is not None and not 0.1 <= given.seconds <= 3600:
        raise ConfigError(f"seconds = {given.seconds:g} is out of range; allowed: >= 0.1 and <= 3600.")
    from beeline.deploy import OnnxPolicy

    policy = OnnxPolicy(given.policy)
    return _simulate(policy, given) if given.robot == "sim" else _walk_for_real(policy, given)


def _say(policy: OnnxPolicy, outcome: Outcome) -> int:
    pose = "in the safe pose" if outcome.safe else "NOT in the safe pose, its power was cut"
    print(f"{outcome.kind}: {outcome.reason}\n{outcome.ticks} ticks, {outcome.late} late; {pose}", flush=True)
    if policy.kind == "walk":
        success = "success" if outcome.success else "no success"
        print(f"walked {outcome.walked:.2f} m, {outcome.distance:.2f} m from the target: {success}", flush=True)
    return 0 if outcome.kind == "time" else 1


def _simulate(policy: OnnxPolicy, given: argparse.Namespace) -> int:
    from beeline.deploy import ManualClock, Monotonic
    from beeline.deploy.simulated import SimulatedRobot, task_of

    variant, options = task_of(given.terrain or "walk-smooth-road", given.target)
    if variant.kind != policy.kind:
        raise ConfigError(f"the policy was trained to {policy.kind}: --terrain must be such a task, not {given.terrain}.")
    robot = SimulatedRobot(variant, given.seed or 0, Monotonic() if given.real_time else ManualClock(), options)
    with _log_of(given) as log:
        return _say(policy, _control(policy, robot, robot.clock, robot.goal, log, _ticks(given, variant.steps)))


def _walk_for_real(policy: OnnxPolicy, given: argparse.Namespace) -> int:
    import numpy as np

    from beeline.deploy import Monotonic
    from beeline.deploy.dynamixel import DynamixelRobot, SdkBus
    from beeline.deploy.tracking import UdpTracker

    if policy.kind != "walk":
        raise ConfigError(f"the policy was trained to {policy.kind}; on a real robot only policies of walk can be run.")
    if not given.port or not given.tracker or not given.log:
        raise ConfigError("a real robot needs --port (of its motors), --tracker (port of the torso's poses) and --log.")
    if given.target is not None and not 0 < given.target <= 10:
        raise ConfigError(f"target = {given.target:g} is out of range; allowed: > 0 and <= 10.")
    clock, goal = Monotonic(), np.array([0.0, given.target or 1.0])
    with (
        _log_of(given) as log,
        contextlib.closing(UdpTracker(given.tracker, clock)) as tracker,
        contextlib.closing(SdkBus(given.port, given.baud or 1_000_000)) as bus,
    ):
        robot = DynamixelRobot(bus, tracker, clock)
        try:
            code = _say(policy, _control(policy, robot, clock, goal, log, _ticks(given, REAL_STEPS)))
            with contextlib.suppress(EOFError, KeyboardInterrupt):  # nobody there to press a key, or in a hurry
                input("The robot holds its pose. Support it, then press Enter to take the power from its motors. ")
        finally:
            robot.stop()
    return code


def _ticks(given: argparse.Namespace, steps: int) -> int:
    from beeline.envs.dkitty.robot import CONTROL_STEP

    return steps if given.seconds is None else round(given.seconds / CONTROL_STEP)


@contextlib.contextmanager
def _log_of(given: argparse.Namespace) -> Iterator[Callable[..., None]]:
    """The log, opened before a robot gets power."""
    from beeline.deploy import TickLog
    from beeline.deploy.log import no_log

    if not given.log:
        yield no_log
        return
    with contextlib.closing(TickLog(given.log)) as log:
        yield log


def _control(policy: OnnxPolicy, robot: Any, clock: Any, goal: Any, log: Callable[..., None], ticks: int) -> Outcome:
    from beeline.deploy import Controller

    with _terminated_as_interrupted():
        return Controller(policy, robot, clock, goal, log=log).run(ticks)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM and a terminal that closes do what Ctrl-C does: the robot goes to its safe pose."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
