"""The D'Kitty's world on MuJoCo: robot, ground, what is drawn at random, and one control step. Needs numpy and mujoco alone.

The Gymnasium environment and the simulated robot of `beeline.deploy` are both made of it.
"""

from __future__ import annotations

import dataclasses
import math

import mujoco
import numpy as np

from beeline.envs.dkitty import robot, terrain
from beeline.envs.dkitty.model import Root, xml
from beeline.envs.dkitty.observation import Reading, euler_of, euler_rates
from beeline.envs.dkitty.options import POSITION_NOISE, PUSH_EVERY, SimToReal
from beeline.envs.dkitty.tasks import Variant, draw_start

JOINT_NOISE = 0.05  # of a joint's command range, and of 2π rad/s: width of the uniform noise of randomised dynamics
FOOT_REACH = 0.02  # around a foot: no vertex of the ground here may be inside it at the start
CLEARANCE = 0.002
MOST_LIFTS = 50
SETTLING = 140  # substeps for which Stand holds its first pose before the episode starts
# Ranges of the randomised dynamics
DAMPING, FRICTIONLOSS = (0.1, 0.2), (0.001, 0.005)
GAIN, STAND_GAIN = (2.8, 3.2), (2.0, 4.0)
FRICTION = ((0.8, 1.2), (0.003, 0.007), (5e-5, 1.5e-4))  # sliding, spinning, rolling
TOTAL_MASS = (1.6, 2.0)
DIVERGED = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)



class World:
    """One variant of a task, simulated. All random numbers come from the generator that `restart` is given."""

    def __init__(self, variant: Variant, options: SimToReal | None = None, *, drawn: bool = False) -> None:
        self.variant, self.options = variant, options or SimToReal()
        # Stand may turn through the attitude at which the hinges are singular; the others end long before it.
        self.root: Root = "free" if variant.kind == "stand" else "hinges"
        field = variant.height > 0 and variant.terrain is None
        self.model = mujoco.MjModel.from_xml_string(xml(self.root, field=field, terrain=variant.terrain, drawn=drawn))
        self.data = mujoco.MjData(self.model)
        self.grid = (terrain.RANDOM_FIELD if field else terrain.PATH) if self.model.nhfield else None
        self.heights: np.ndarray | None = None
        self._joints = slice(self.model.nq - 12, self.model.nq)
        self._joint_speeds = slice(self.model.nv - 12, self.model.nv)
        self._nominal = Parameters.of(self.model)
        self._delay = round(self.options.latency / robot.TIMESTEP)
        noise = JOINT_NOISE * variant.dynamics
        self._noise = noise * (robot.COMMAND_RANGE[:, 1] - robot.COMMAND_RANGE[:, 0]), noise * 2 * math.pi
        self._offset = np.zeros(12)
        if self.options.torque:
            self.model.actuator_forcelimited[:12] = 1
            self.model.actuator_forcerange[:12] = -self.options.torque, self.options.torque

    def restart(self, draw: np.random.Generator) -> None:
        """Start an episode: draw the dynamics and the ground, then the task's own start, then the disturbances."""
        model, data = self.model, self.data
        self.draw = draw
        self._nominal.restore(model)
        if self.variant.dynamics:
            self._draw_dynamics(draw)
            self._draw_ground(draw)
        start = draw_start(self.variant, draw)
        self._draw_disturbances(draw)
        self.goal = start.goal
        self._mark_target()
        mujoco.mj_resetData(model, data)
        data.qpos[self._joints] = start.joints
        if self.variant.kind == "stand":
            self._settle(start.joints)
        else:
            data.qpos[2], data.qpos[5] = self._lift(start.yaw), start.yaw
            mujoco.mj_forward(model, data)
        self._steps, self._diverged = 0, False
        self.reading = self._read()

    @property
    def joints(self) -> np.ndarray:
        """Where the joints are, without noise."""
        return self.data.qpos[self._joints]

    @property
    def lost(self) -> str:
        """Why there is no robot to control any more: it left the ground, or the simulation; empty while there is one."""
        if self._diverged:
            return "the simulation diverged"
        x, y = self.reading.position[:2]
        return "it walked off the terrain" if self.grid is terrain.PATH and not terrain.PATH.holds(x, y) else ""

    def advance(self, command: np.ndarray) -> None:
        """One control step of 0.1 s with these positions for the motors; one that diverges keeps the last reading."""
        model, data, options = self.model, self.data, self.options
        if options.push and self._steps and self._steps % PUSH_EVERY == 0:
            angle = self.draw.uniform(0.0, 2 * math.pi)
            data.qvel[:2] += options.push * math.cos(angle), options.push * math.sin(angle)
        self._steps += 1
        if self._delay:
            mujoco.mj_step(model, data, self._delay)
        data.ctrl[:12] = command
        if self._delay < robot.SUBSTEPS:
            mujoco.mj_step(model, data, robot.SUBSTEPS - self._delay)
        self._diverged = any(data.warning[warning].number for warning in DIVERGED)
        if not self._diverged:
            self.reading = self._read()

    # --- what is drawn at a reset -------------------------------------------------------------------------------------

    def _draw_dynamics(self, draw: np.random.Generator) -> None:
        """ROBEL's randomisation, in its order, one value for all legs or geoms."""
        model = self.model
        model.dof_damping[self._joint_speeds] = draw.uniform(*DAMPING)
        model.dof_frictionloss[self._joint_speeds] = draw.uniform(*FRICTIONLOSS)
        gain = draw.uniform(*(STAND_GAIN if self.variant.kind == "stand" else GAIN))
        model.actuator_gainprm[:12, 0], model.actuator_biasprm[:12, 1] = gain, -gain
        model.geom_friction[:] = [draw.uniform(*limits) for limits in FRICTION]
        scale = draw.uniform(*TOTAL_MASS) / model.body_mass.sum()
        for masses in (model.body_mass, model.body_inertia, model.body_subtreemass):
            masses *= scale

    def _draw_ground(self, draw: np.random.Generator) -> None:
        """The heights of the field; on a terrain, also the ground's friction."""
        model, kind = self.model, self.variant.terrain
        if kind:
            friction = model.geom_friction[model.geom("ground").id]
            friction[0] = draw.uniform(*kind.slide)
            if kind.spin_roll:
                friction[1:] = kind.spin_roll
            if kind.surface:
                self.heights, model.geom_pos[model.geom("ground").id, 2] = terrain.level(kind.surface(draw))
        elif self.grid:
            self.heights = terrain.white(draw, self.variant.height)
        if self.heights is not None:
            model.hfield_data[:] = self.heights.ravel()

    def _draw_disturbances(self, draw: np.random.Generator) -> None:
        options, model = self.options, self.model
        if options.motor:
            factors = draw.uniform(1 - options.motor, 1 + options.motor, 12)
            model.actuator_gainprm[:12, 0] *= factors
            model.actuator_biasprm[:12, 1] *= factors
        if options.offset:
            self._offset = draw.uniform(-options.offset, options.offset, 12)
        if options.payload:
            torso = model.body("torso").id
            model.body_mass[torso] += options.payload
            model.body_subtreemass[: torso + 1] += options.payload

    # --- how it starts ------------------------------------------------------------------------------------------------

    def _lift(self, yaw: float) -> float:
        """How far straight legs must be lifted at the start, so that no foot is inside the ground.

        MuJoCo 3 pushes a foot that starts inside a height field sideways, where it stays caught.
        """
        if self.grid is None or self.heights is None:
            return 0.0
        z, (s, c) = float(self.model.geom("ground").pos[2]), (math.sin(yaw), math.cos(yaw))
        feet = [(c * x - s * y, s * x + c * y) for x, y in robot.HIPS]
        return max(0.0, max(self.grid.highest(self.heights, x, y, FOOT_REACH) for x, y in feet) + z + CLEARANCE)

    def _mark_target(self) -> None:
        """Put the disc and the post that a picture shows where the target is."""
        if self.variant.kind == "stand":
            return
        model, (x, y), z = self.model, self.goal, 0.0
        if self.grid and self.heights is not None:
            z = self.grid.highest(self.heights, x, y, FOOT_REACH) + float(model.geom("ground").pos[2])
        for name in ("target", "heading"):
            site = model.site(name)
            site.pos[:] = x, y, z + site.size[1]

    def _settle(self, pose: np.ndarray) -> None:
        """Let the robot fall from 0.3 m while it holds a pose, from above the ground if the pose would be inside it."""
        model, data = self.model, self.data
        for _ in range(MOST_LIFTS):
            mujoco.mj_fwdPosition(model, data)
            ground = model.geom_bodyid[data.contact.geom].min(axis=1) == 0
            depth = -data.contact.dist[ground].min(initial=0.0)
            if depth <= CLEARANCE:
                break
            data.qpos[2] += depth
        data.ctrl[:12] = pose
        mujoco.mj_step(model, data, SETTLING)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def _read(self) -> Reading:
        """The robot as it is, with the joints' noise where the dynamics are randomised."""
        qpos, qvel, draw = self.data.qpos, self.data.qvel, self.draw
        joints, speeds = qpos[self._joints].copy(), qvel[self._joint_speeds].copy()
        if self.variant.dynamics:
            joints += self._noise[0] * draw.uniform(-0.5, 0.5, 12)
            speeds += self._noise[1] * draw.uniform(-0.5, 0.5, 12)
        if self.root == "hinges":
            return Reading(qpos[:3].copy(), qpos[3:6].copy(), joints, qvel[:3].copy(), qvel[3:6].copy(), speeds)
        rotation = np.empty(9)
        mujoco.mju_quat2Mat(rotation, qpos[3:7])
        euler = euler_of(rotation.reshape(3, 3))
        return Reading(qpos[:3] - (0.0, 0.0, robot.HEIGHT), euler, joints, qvel[:3].copy(), euler_rates(euler, qvel[3:6]), speeds)

    def sensed(self) -> Reading:
        """The last reading as the sensors give it, with their disturbances."""
        reading, options = self.reading, self.options
        if options.sense:
            euler = reading.euler + self.draw.normal(0.0, options.sense, 3)
            position = reading.position + self.draw.normal(0.0, options.sense * POSITION_NOISE, 3)
            reading = dataclasses.replace(reading, euler=euler, position=position)
        if options.offset:
            reading = dataclasses.replace(reading, joints=reading.joints + self._offset)
        return reading


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The numbers of a model that a reset may change, as they were."""

    dof_damping: np.ndarray
    dof_frictionloss: np.ndarray
    actuator_gainprm: np.ndarray
    actuator_biasprm: np.ndarray
    geom_friction: np.ndarray
    body_mass: np.ndarray
    body_inertia: np.ndarray
    body_subtreemass: np.ndarray

    @classmethod
    def of(cls, model: mujoco.MjModel) -> Parameters:
        """Copies of the model's numbers."""
        return cls(*(getattr(model, field.name).copy() for field in dataclasses.fields(cls)))

    def restore(self, model: mujoco.MjModel) -> None:
        """Put them back."""
        for field in dataclasses.fields(self):
            getattr(model, field.name)[:] = getattr(self, field.name)
