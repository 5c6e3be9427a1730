"""The robot of the controller, simulated: the world of the D'Kitty's environments, in real time or as fast as possible."""

from __future__ import annotations

import dataclasses

import numpy as np

from beeline.deploy.interfaces import Clock, ManualClock, Sensed
from beeline.envs import ids
from beeline.envs.dkitty.options import SimToReal
from beeline.envs.dkitty.tasks import VARIANTS, Variant
from beeline.envs.dkitty.world import World
from beeline.errors import ConfigError, RobotError, UnknownNameError


def variant_of(name: str, target: float | None = None) -> Variant:
    """A task by its name, with a target straight ahead at another distance where one is given."""
    if name not in VARIANTS:
        raise UnknownNameError("terrain", name, VARIANTS, f"Known: {', '.join(VARIANTS)}.")
    variant = VARIANTS[name]
    if target is None:
        return variant
    if variant.terrain is None:
        raise ConfigError(f"{name} draws its own goal: a target can be given for terrains only, such as walk-grassland.")
    if not 0 < target <= 3.5:
        raise ConfigError(f"target = {target:g} is out of range; allowed: > 0 and <= 3.5 (metres, the length of a terrain).")
    return dataclasses.replace(variant, terrain=dataclasses.replace(variant.terrain, target=target))


def task_of(name: str, target: float | None = None) -> tuple[Variant, SimToReal]:
    """A task and its disturbances as an id writes them, with or without its suite: `walk-grassland?latency=0.02`."""
    _, task, options = ids.split(name if name.startswith("dkitty/") else f"dkitty/{name}")
    own = dict(options.own)
    if options != ids.Options(own=options.own) or "wide" in own:
        allowed = ", ".join(each for each in SimToReal.names() if each != "wide")
        raise ConfigError(f"{name!r}: a simulated robot has the options {allowed}; others belong to a policy's training.")
    return variant_of(task, target), SimToReal(**own)


class SimulatedRobot:
    """One episode of a task: every write is one control step. With a `ManualClock` it goes as fast as possible."""

    def __init__(self, variant: Variant, seed: int, clock: Clock | None = None, options: SimToReal | None = None) -> None:
        self.clock: Clock = clock or ManualClock()
        self.world = World(variant, options)
        self.world.restart(np.random.default_rng(seed))
        self._arrived = np.zeros(12)
        self._stopped = False

    @property
    def goal(self) -> np.ndarray:
        """Where this episode leads."""
        return self.world.goal

    def read(self) -> Sensed:
        """The world as it is now."""
        now = self.clock.now()
        return Sensed(self.world.sensed(), self.world.joints.copy(), now, now, self.world.lost)

    def write(self, command: np.ndarray) -> None:
        """One control step; a command that is lost leaves the motors with the one before."""
        if self._stopped:
            raise RobotError("the motors have no power.")
        drop = self.world.options.drop
        if not (drop and self.world.draw.random() < drop):
            self._arrived = np.array(command, float)
        self.world.advance(self._arrived)

    def stop(self) -> None:
        """Motors without power: gains of zero."""
        self._stopped = True
        self.world.model.actuator_gainprm[:12, 0] = self.world.model.actuator_biasprm[:12, 1] = 0.0

    def close(self) -> None:
        """Nothing is held."""
