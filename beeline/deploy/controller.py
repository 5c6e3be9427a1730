"""The controller: reads the robot, asks the policy, keeps the limits, watches the time, and retreats when anything is wrong.

One tick, at its time on a fixed grid:
  1. read the robot; what is old, frozen, not finite or fallen ends the walk
  2. the observation, by the function that the simulated environment uses, and the policy's action
  3. the command: the action's joint targets, no further from the joints than their speed allows, inside their range
  4. write it, and log everything
However the walk ends, the joints then go slowly to the safe pose.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from beeline.deploy.interfaces import Clock, Robot, Sensed
from beeline.deploy.log import no_log
from beeline.envs.dkitty import robot as dkitty
from beeline.envs.dkitty.observation import distance, observe
from beeline.envs.dkitty.tasks import RULES, Kind, judge
from beeline.errors import RobotError

ROUNDING = 1e-4  # by which an action may miss its bounds and is only clipped
MOVING = 0.05  # rad between joints and command from which joints must have moved a tick later


class Deciding(Protocol):
    """A policy as the controller sees it; `OnnxPolicy` is one."""

    kind: Any  # walk, stand or orient
    repeat: int  # control steps of one decision
    command_range: np.ndarray

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action in [-1, 1]^12 at one observation."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the controller allows; times in seconds, angles in rad."""

    joint_range: np.ndarray = dataclasses.field(default_factory=lambda: dkitty.JOINT_RANGE)
    safe_pose: np.ndarray = dataclasses.field(default_factory=lambda: dkitty.CROUCH)
    safe_speed: float = 1.0  # of the joints on their way to the safe pose
    max_age: float = 0.1  # of a measurement when the command made from it goes out
    late: float = 0.01  # after its time from which a tick counts as late
    latest: float = 0.1  # after its time from which a tick ends the walk
    most_late: int = 5  # late ticks in a row that end the walk
    frozen: int = 5  # ticks without any change in a sensor, while the joints are told to move, that end the walk
    patience: int = 20  # writes that may fail in a row on the way to the safe pose before the power is cut


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a walk ended: `kind` is time, fallen, interrupted, or the fault; `safe` says whether the safe pose was commanded."""

    kind: str
    reason: str
    ticks: int
    late: int
    safe: bool
    success: bool
    distance: float  # to the target at the end; NaN where there is none
    walked: float  # by which the target came nearer


class Stop(Exception):
    """The walk is over, for this kind of reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Controller:
    """Runs a policy on a robot towards a goal: a point for walk and orient, a pose for stand."""

    def __init__(
        self,
        policy: Deciding,
        robot: Robot,
        clock: Clock,
        goal: np.ndarray,
        limits: Limits | None = None,
        log: Callable[..., None] = no_log,
    ) -> None:
        self.policy, self.robot, self.clock, self.log = policy, robot, clock, log
        self.goal, self.limits, self.kind = np.asarray(goal, float), limits or Limits(), policy.kind
        self.period = dkitty.CONTROL_STEP
        self._action = np.zeros(12)
        self._command: np.ndarray | None = None
        self._seen: Sensed | None = None  # the last look with which nothing was wrong
        self._first_distance = float("nan")
        self._ticks = self._late = self._late_in_a_row = 0
        self._unchanged = {"joints": 0, "pose": 0}
        self._before: dict[str, bytes] = {}

    # --- the walk -----------------------------------------------------------------------------------------------------

    def run(self, ticks: int) -> Outcome:
        """Walk for this many control steps, then go to the safe pose, whatever happened. Errors are an outcome."""
        try:
            stop = self._walk(ticks)
        except Stop as error:
            stop = error
        except KeyboardInterrupt:
            stop = Stop("interrupted", "Ctrl-C")
        except RobotError as error:
            stop = Stop("bus", f"the robot does not answer: {error}")
        except OSError as error:
            stop = Stop("log", f"the log cannot be written: {error}")
        except Exception as error:  # whatever it is, a robot in mid-stride must not be left alone with it
            stop = Stop("error", f"{type(error).__name__}: {error}")
        outcome = self._outcome(stop, self._retreat(stop))
        with contextlib.suppress(OSError, ValueError):
            self.log(end=outcome.kind, **{k: v for k, v in dataclasses.asdict(outcome).items() if k != "kind"})
        return outcome

    def _walk(self, ticks: int) -> Stop:
        self.log(start=True, task=self.kind, goal=self.goal, ticks=ticks, period=self.period,
                 limits=dataclasses.asdict(self.limits), policy=getattr(self.policy, "meta", {}))  # fmt: skip
        began = self.clock.now()
        for tick in range(ticks + 1):
            planned = began + tick * self.period
            self.clock.wait_until(planned)
            late = self._lateness(tick, planned)
            sensed = self.robot.read()
            self._check(sensed)
            if not tick and self.kind == "walk":
                self._first_distance = distance(sensed.reading, self.goal)
            if tick == ticks:
                break
            self._act(tick, planned - began, late, sensed)
        return Stop("time", f"{ticks * self.period:g} s are over")

    def _act(self, tick: int, time: float, late: float, sensed: Sensed) -> None:
        """Choose, bound, write and log one command."""
        obs = observe(self.kind, sensed.reading, self._action, self.goal)
        if tick % self.policy.repeat == 0:
            self._action = self._decide(obs)
        targets = dkitty.joint_targets(self._action, self.policy.command_range)
        command = self._inside(dkitty.limited(targets, sensed.joints))
        age = self.clock.now() - min(sensed.joints_at, sensed.pose_at)
        if age > self.limits.max_age:
            part = "joints" if sensed.joints_at < sensed.pose_at else "torso's pose"
            raise Stop("stale", f"the {part} was measured {age:.3f} s ago; allowed are {self.limits.max_age:g}.")
        self.robot.write(command)
        self._command, self._ticks = command, tick + 1
        self.log(tick=tick, time=time, late=late, age=age, observation=obs, action=self._action, command=command,
                 joints=sensed.joints)  # fmt: skip

    def _decide(self, obs: np.ndarray) -> np.ndarray:
        action = np.asarray(self.policy(obs), np.float64)
        if action.shape != (12,) or not np.isfinite(action).all():
            raise Stop("action", "the policy's action is not twelve finite numbers.")
        if (worst := np.abs(action).max()) > 1 + ROUNDING:
            joint = dkitty.JOINTS[int(np.abs(action).argmax())]
            raise Stop("action", f"the policy's action is out of bounds: {worst:.3g} for {joint}; allowed is [-1, 1].")
        return np.clip(action, -1.0, 1.0)

    def _inside(self, command: np.ndarray) -> np.ndarray:
        return np.clip(command, self.limits.joint_range[:, 0], self.limits.joint_range[:, 1])

    # --- what may be wrong --------------------------------------------------------------------------------------------

    def _lateness(self, tick: int, planned: float) -> float:
        """Seconds by which a tick begins late; many in a row, or one that is far too late, end the walk."""
        late, limits = self.clock.now() - planned, self.limits
        if late <= limits.late:
            self._late_in_a_row = 0
            return late
        self._late += 1
        self._late_in_a_row += 1
        if late > limits.latest:
            raise Stop("late", f"tick {tick} came {late:.3f} s late; allowed are {limits.latest:g}.")
        if self._late_in_a_row >= limits.most_late:
            raise Stop("late", f"{self._late_in_a_row} ticks in a row came more than {limits.late:g} s late.")
        return late

    def _check(self, sensed: Sensed) -> None:
        reading = sensed.reading
        for name, values in {"joint encoders": sensed.joints, **vars(reading)}.items():
            if not np.isfinite(values).all():
                raise Stop("nan", f"the robot's {name.replace('_', ' ')} is not finite.")
        self._check_frozen(sensed)
        self._seen = sensed
        if sensed.trouble:
            raise Stop("robot", sensed.trouble)
        if reading.upright < (threshold := RULES[self.kind].threshold):
            raise Stop("fallen", f"the torso tilts: upright = {reading.upright:.3f}, below {threshold:g}.")

    def _check_frozen(self, sensed: Sensed) -> None:
        """A sensor that repeats itself to the bit although the joints were told to move has stopped measuring."""
        reading = sensed.reading
        now = {
            "joints": sensed.joints.tobytes() + reading.joint_velocities.tobytes(),
            "pose": reading.position.tobytes() + reading.euler.tobytes(),
        }
        moving = self._command is not None and np.abs(self._command - sensed.joints).max() > MOVING
        for part, bits in now.items():
            self._unchanged[part] = self._unchanged[part] + 1 if moving and bits == self._before.get(part) else 0
            if self._unchanged[part] >= self.limits.frozen:
                raise Stop("frozen", f"the {part} did not change in {self.limits.frozen} ticks although the joints should move.")
        self._before = now

    # --- the end ------------------------------------------------------------------------------------------------------

    def _retreat(self, stop: Stop) -> bool:
        """Move slowly from the last command to the safe pose, without looking; True once the pose itself was commanded.

        The first Ctrl-C asks for nothing else than this; a second one cuts the power at once.
        """
        if self._command is None and self._seen is not None:
            self._command = self._seen.joints
        pressed = stop.kind == "interrupted"
        while self._command is not None:
            try:
                if self._move_to_safety(stop):
                    return True
                break
            except KeyboardInterrupt:
                if pressed:
                    break
                pressed = True
            except Exception as error:
                with contextlib.suppress(OSError, ValueError):
                    self.log(retreat=stop.kind, error=f"{type(error).__name__}: {error}")
                break
        with contextlib.suppress(RobotError):
            self.robot.stop()
        with contextlib.suppress(OSError, ValueError):
            self.log(emergency_stop=True)
        return False

    def _move_to_safety(self, stop: Stop) -> bool:
        assert self._command is not None
        goal, reach = self._inside(self.limits.safe_pose), self.limits.safe_speed * self.period
        began, failures, step = self.clock.now(), 0, 0
        while failures < self.limits.patience:
            following, error = self._command + np.clip(goal - self._command, -reach, reach), ""
            try:
                self.robot.write(following)
                self._command, failures = following, 0
            except RobotError as failure:
                error, failures = str(failure), failures + 1
            with contextlib.suppress(OSError, ValueError):
                self.log(retreat=stop.kind, reason=str(stop), command=following, error=error)
            if not error and (following == goal).all():
                return True
            step += 1
            self.clock.wait_until(began + step * self.period)
        return False

    def _outcome(self, stop: Stop, safe: bool) -> Outcome:
        success, away = False, float("nan")
        if self._seen is not None:
            if self.kind == "walk":
                away = distance(self._seen.reading, self.goal)
            kind: Kind = self.kind
            success = stop.kind == "time" and judge(kind, self._seen.reading, self.goal).success
        return Outcome(stop.kind, str(stop), self._ticks, self._late, safe, success, away, self._first_distance - away)
