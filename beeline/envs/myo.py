"""MyoSuite: hands, arms and legs moved by muscles."""

from __future__ import annotations

import re

from beeline.envs.gym import registered, spelled
from beeline.envs.spec import Built
from beeline.envs.tables import MYOSUITE


def build(task: str, render: bool) -> Built:
    """Make `myoHandReachFixed` and the like; every registered id of MyoSuite works, listed or not."""
    import gymnasium
    import myosuite  # noqa: F401 (importing it registers the tasks)

    known = {re.sub(r"-v\d$", "", gym_id): gym_id for gym_id in gymnasium.registry if gym_id.startswith("myo")}
    name = spelled("myosuite", task, [*MYOSUITE, *known], lambda text: re.sub(r"-v\d$", "", text))
    return registered(known[name], f"myosuite/{name}", name, render, success=True)
