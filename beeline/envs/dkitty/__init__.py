"""The D'Kitty, a quadruped of twelve motors: our model of ROBEL's robot, its tasks, and the paper's terrains.

`robot`, `observation` and `tasks` import numpy alone: a controller of the real robot needs nothing else of this package.
`world` adds mujoco, `env` gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.envs.spec import Built


def build(task: str, render: bool, **options: Any) -> Built:
    """Make `walk-medium`, `stand-random`, …; `options` are those of `SimToReal`."""
    from beeline.envs.dkitty.env import DKitty
    from beeline.envs.dkitty.options import SimToReal
    from beeline.envs.dkitty.tasks import VARIANTS, ends
    from beeline.envs.gym import spelled
    from beeline.envs.known import after
    from beeline.envs.spec import Built

    name = spelled("dkitty", task, VARIANTS)
    variant = VARIANTS[name]
    disturbed = SimToReal.make(options)
    env = DKitty(variant, disturbed, "rgb_array" if render else None)
    seen = not disturbed.sense  # else the observation is not the attitude that decides
    return Built(env, name, variant.steps, success=True, terminated=after(ends(variant)) if seen else None)
