"""Options of a D'Kitty id: what a real robot adds to the simulated one, each of them off by default."""

from __future__ import annotations

import dataclasses

from beeline.config import Config, option

PUSH_EVERY = 40  # control steps between two pushes: 4 s
POSITION_NOISE = 0.2  # metres of position noise for each radian of attitude noise: 0.05 rad come with 1 cm


@dataclasses.dataclass(frozen=True)
class SimToReal(Config):
    """Disturbances of the simulated robot, such as `dkitty/walk-hard?latency=0.02&payload=0.3`."""

    latency: float = option(0.0, "seconds by which each command reaches the motors late", low=0.0, high=0.1)
    payload: float = option(0.0, "kilograms on the torso", low=0.0, high=1.0)
    push: float = option(0.0, "m/s added to the torso in a random direction every 4 s", low=0.0, high=2.0)
    motor: float = option(0.0, "each motor's gain is multiplied by U(1 - x, 1 + x), drawn at every reset", low=0.0, high=0.9)
    torque: float = option(0.0, "N·m that a motor can give at most; 0 sets no limit", low=0.0, high=10.0)
    sense: float = option(
        0.0, "deviation of the noise on the torso's angles in rad, and a fifth of it in metres on its position", low=0.0, high=0.5
    )
    offset: float = option(0.0, "each joint reads U(-x, x) rad too much, drawn at every reset", low=0.0, high=0.3)
    drop: float = option(0.0, "probability that a command is lost and the one before is carried out again", low=0.0, high=1.0)
    wide: bool = option(False, "actions span the command range of the robot's first release (in which Stand is easier)")
