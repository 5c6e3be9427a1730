"""The D'Kitty as a Gymnasium environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import COMMON, OWN, distance, observe
from beeline.envs.dkitty.options import SimToReal
from beeline.envs.dkitty.tasks import Variant, judge
from beeline.envs.dkitty.world import World

if TYPE_CHECKING:
    from beeline.envs.dkitty.picture import Picture


class DKitty(World, gymnasium.Env[np.ndarray, np.ndarray]):
    """One variant of a task; actions in [-1, 1]^12 at 10 Hz. All random numbers come from `np_random`."""

    fresh_float32 = True
    beeline_success = True
    dt = robot.CONTROL_STEP

    def __init__(self, variant: Variant, options: SimToReal | None = None, render_mode: str | None = None) -> None:
        super().__init__(variant, options, drawn=render_mode is not None)
        self.render_mode = render_mode
        self.command_range = robot.WIDE_RANGE if self.options.wide else robot.COMMAND_RANGE
        self._picture: Picture | None = None
        self.observation_parts = COMMON | OWN[variant.kind]  # names and sizes, in their order
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (12,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (sum(self.observation_parts.values()),), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / robot.CONTROL_STEP)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode."""
        gymnasium.Env.reset(self, seed=seed)
        self.restart(self.np_random)
        self._action = self._carried_out = np.zeros(12)
        if self.variant.kind == "walk":
            self._first_distance = distance(self.reading, self.goal)
        if self._picture:
            self._picture.new_ground()
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance by one control step of 0.1 s; a simulation that diverged is a fall at the last place that was known."""
        self._action = np.clip(action, -1.0, 1.0).astype(np.float64)
        if not (self.options.drop and self.draw.random() < self.options.drop):
            self._carried_out = self._action
        self.advance(robot.limited(robot.joint_targets(self._carried_out, self.command_range), self.joints))
        return self._outcome()

    def _outcome(self) -> tuple[np.ndarray, float, bool, bool, dict]:
        variant = self.variant
        verdict = judge(variant.kind, self.reading, self.goal, lost=bool(self.lost))
        reward = float(verdict.success) if variant.sparse else sum(verdict.terms.values())
        info: dict[str, Any] = {
            "success": verdict.success,
            "score_success": verdict.score_success,
            "score": verdict.score,
            "reward_terms": verdict.terms,
            **verdict.more,
        }
        if variant.kind == "walk":
            info["distance_walked"] = self._first_distance - verdict.more["target_distance"]
        return self._observe(), reward, verdict.fallen, False, info

    def _observe(self) -> np.ndarray:
        return observe(self.variant.kind, self.sensed(), self._action, self.goal)

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The frame of a camera that follows the robot."""
        if self._picture is None:
            from beeline.envs.dkitty.picture import Picture

            self._picture = Picture(self)
        return self._picture.frame()

    def close(self) -> None:
        """Free the renderer."""
        if self._picture:
            self._picture.close()
            self._picture = None
