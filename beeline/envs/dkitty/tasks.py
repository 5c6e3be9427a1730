"""The tasks of the D'Kitty: where an episode starts, what it pays, when it ends, and what success is.

Everything here is a function of a `Reading`; no simulator is needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import Reading, direction, distance, heading, layout
from beeline.envs.dkitty.terrain import PATH, TERRAINS, Terrain

Kind = Literal["walk", "stand", "orient"]
PAPER_UPRIGHT = math.cos(math.radians(25))
NEAR = 0.5


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the tasks of a kind share: the upright term and its threshold, the price of a fall, the horizon in steps."""

    threshold: float
    upright: float
    fall: float
    steps: int


RULES: dict[Kind, Rules] = {
    "walk": Rules(0.9, 1.0, -500.0, 160),
    "orient": Rules(0.9, 2.0, -500.0, 80),
    "stand": Rules(0.0, 2.0, -100.0, 80),
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A task as it is listed: its kind, random starts, randomised dynamics with terrain of a height, a real terrain, sparse."""

    kind: Kind
    random: bool = False
    dynamics: bool = False
    height: float = 0.0
    terrain: Terrain | None = None
    sparse: bool = False

    @property
    def steps(self) -> int:
        """The horizon in control steps."""
        return self.terrain.steps if self.terrain else RULES[self.kind].steps


def _variants() -> dict[str, Variant]:
    kinds: tuple[Kind, ...] = ("stand", "orient", "walk")
    listed = {}
    for kind in kinds:
        listed[f"{kind}-fixed"] = Variant(kind)
        listed[f"{kind}-random"] = Variant(kind, random=True)
        listed[f"{kind}-randomdynamics"] = Variant(kind, random=True, dynamics=True, height=0.05)
    listed["walk-medium"] = Variant("walk", random=True, dynamics=True, height=0.07)
    listed["walk-hard"] = Variant("walk", random=True, dynamics=True, height=0.09)
    listed["stand-random-sparse"] = Variant("stand", random=True, sparse=True)
    listed["orient-random-sparse"] = Variant("orient", random=True, sparse=True)
    for name, terrain in TERRAINS.items():
        listed[f"walk-{name}"] = Variant("walk", dynamics=True, terrain=terrain)
    return listed


VARIANTS = _variants()


@dataclasses.dataclass(frozen=True)
class Start:
    """How an episode begins: yaw, joint positions, and the goal (a point, or the pose to stand in)."""

    yaw: float
    joints: np.ndarray
    goal: np.ndarray


def draw_start(variant: Variant, draw: np.random.Generator) -> Start:
    """The start of an episode; fixed variants draw nothing."""
    zero = np.zeros(12)
    if variant.kind == "stand":
        pose = draw.uniform(*robot.COMMAND_RANGE.T) if variant.random else robot.CROUCH
        return Start(0.0, pose, zero)
    if variant.kind == "orient":
        yaw = draw.uniform(-math.pi / 3, math.pi / 3) if variant.random else 0.0
        wanted = draw.uniform(2 * math.pi / 3, 4 * math.pi / 3) if variant.random else math.pi
        return Start(yaw, zero, _point(1.0, wanted + math.pi / 2))
    if variant.terrain:
        return Start(0.0, zero, np.array([0.0, variant.terrain.target]))
    if not variant.random:
        return Start(0.0, zero, np.array([0.0, 2.0]))
    length = draw.uniform(1.0, 2.0)
    return Start(0.0, zero, _point(length, math.pi / 2 + draw.uniform(-math.pi / 3, math.pi / 3)))


def _point(length: float, angle: float) -> np.ndarray:
    return np.array([length * math.cos(angle), length * math.sin(angle)])


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a reading is worth: the reward's terms, the paper's success, ROBEL's and its score, a fall, more for `info`."""

    terms: dict[str, float]
    success: bool
    score_success: bool
    score: float
    fallen: bool
    more: dict[str, float]


def judge(kind: Kind, reading: Reading, goal: np.ndarray, *, lost: bool = False) -> Verdict:
    """The terms of the reward at a reading; `lost` says that the robot has left the ground or the simulation."""
    rules, upright = RULES[kind], reading.upright
    fallen = lost or upright < rules.threshold
    terms = {
        "upright": rules.upright * (upright - rules.threshold) / (1 - rules.threshold),
        "falling": rules.fall * fallen,
    }
    if kind == "walk":
        own, reached, score, more = _walk(reading, goal)
        success = more["target_distance"] < NEAR and upright > PAPER_UPRIGHT
    elif kind == "stand":
        own, reached, score, more = _stand(reading, goal, upright)
        success = reached
    else:
        own, reached, score, more = _orient(reading, goal, upright)
        success = reached
    return Verdict(terms | own, success and not fallen, reached and not lost, score, fallen, more)


def ends(variant: Variant) -> Callable[[Any], Any]:
    """Where an episode ends, for observations of any batch shape: fallen, or off the terrain."""
    places, threshold = layout(variant.kind), RULES[variant.kind].threshold
    upright, position = places["upright"].start, places["root_pos"].start

    def ended(obs: Any) -> Any:
        fallen = obs[..., upright] < threshold
        if variant.terrain is None:
            return fallen
        away = (abs(obs[..., position]) > PATH.half_x) | (abs(obs[..., position + 1] - PATH.centre_y) > PATH.half_y)
        return fallen | away

    return ended


Own = tuple[dict[str, float], bool, float, dict[str, float]]  # terms, the big bonus, score, more for info


def _walk(reading: Reading, target: np.ndarray) -> Own:
    away, facing = distance(reading, target), heading(reading, target)
    near, faces = away < NEAR, facing > 0.9
    terms = {
        "target_distance": -4 * away,
        "heading": 2 * (facing - 0.9) / 0.1,
        "small_bonus": 5.0 * (near or faces),
        "big_bonus": 10.0 * (near and faces),
    }
    return terms, near and faces, -away, {"target_distance": away, "heading": facing}


def _stand(reading: Reading, pose: np.ndarray, upright: float) -> Own:
    error = float(np.abs(pose - reading.joints).mean())
    reached = error < math.pi / 12 and upright > 0.9
    terms = {
        "pose_error": -4 * error,
        "center_distance": -2 * float(np.linalg.norm(reading.position)),
        "small_bonus": 5.0 * (error < math.pi / 6) * upright,
        "big_bonus": 10.0 * reached,
    }
    return terms, reached, (1 - min(error / (math.pi / 3), 1.0)) * upright, {"pose_error": error}


def _orient(reading: Reading, target: np.ndarray, upright: float) -> Own:
    facing, wanted = reading.facing, direction(reading, target)
    length = math.hypot(*facing)
    cosine = (facing[0] * wanted[0] + facing[1] * wanted[1]) / length if length else 0.0
    error = math.acos(min(1.0, max(-1.0, cosine)))
    level = upright > 0.96
    terms = {
        "orientation_error": -4 * error,
        "center_distance": -4 * float(np.linalg.norm(reading.position)),
        "small_bonus": 5.0 * (error < 0.26 or level),
        "big_bonus": 10.0 * (error < 0.087 and level),
    }
    return terms, error < 0.087 and level, 1 - error / math.pi, {"orientation_error": error}
