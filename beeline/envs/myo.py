"""MyoSuite: hands, arms and legs moved by muscles."""

from __future__ import annotations

import re
from typing import Any

from beeline.envs.gym import registered, spelled
from beeline.envs.spec import Built
from beeline.envs.tables import MYOSUITE

CAMERAS = ("hand_bottom", "side_view")


def build(task: str, render: bool) -> Built:
    """Make `myoHandReachFixed` and the like; every registered id of MyoSuite works, listed or not."""
    import gymnasium
    import myosuite  # noqa: F401 (importing it registers the tasks)

    known = {re.sub(r"-v\d$", "", gym_id): gym_id for gym_id in gymnasium.registry if gym_id.startswith("myo")}
    name = spelled("myosuite", task, [*MYOSUITE, *known], lambda text: re.sub(r"-v\d$", "", text))
    built = registered(known[name], f"myosuite/{name}", name, render, success=True)
    if render:
        _light(built.env.unwrapped)
    return built


def _light(env: Any) -> None:
    """Raise the headlight and look through a camera near the hand: as shipped, most tasks are nearly black."""
    headlight = env.model.vis.headlight
    headlight.ambient[:], headlight.diffuse[:], headlight.specular[:] = 0.3, 0.6, 0.1
    cameras = [env.model.camera(index).name for index in range(env.model.ncam)]
    env.render_camera = next((name for name in CAMERAS if name in cameras), None)
