"""Adroit and the Shadow Dexterous Hand, from gymnasium-robotics."""

from __future__ import annotations

import contextlib
import io
import re
import warnings

import gymnasium

from beeline.envs.gym import registered, spelled
from beeline.envs.spec import Built
from beeline.envs.tables import ADROIT, SHADOWHAND


def build_adroit(task: str, render: bool) -> Built:
    """Make `door`, `hammer`, `pen` or `relocate`; `…Sparse` pays the suite's own sparse reward (-0.1 or 10)."""
    _register()
    name = spelled("adroit", task, ADROIT, lambda text: re.sub(r"^AdroitHand|-v1$", "", text))
    gym_id = f"AdroitHand{name[0].upper()}{name[1:]}-v1"
    return registered(gym_id, f"adroit/{name}", name, render, success=True)


def build_shadowhand(task: str, render: bool) -> Built:
    """Make `Reach`, `BlockRotateZ`, …; these pay 0 on success and -1 otherwise, `…Dense` the negative distance."""
    _register()
    name = spelled("shadowhand", task, SHADOWHAND, lambda text: re.sub(r"^Hand(Manipulate)?|-v\d$", "", text))
    gym_id = f"Hand{name}-v3" if name.startswith("Reach") else f"HandManipulate{name}-v1"
    return registered(gym_id, f"shadowhand/{name}", name, render, success=True)


def _register() -> None:
    # On import it explains on the standard error that Adroit's rewards changed; docs/environments.md says so, too.
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        import gymnasium_robotics
    gymnasium.register_envs(gymnasium_robotics)
