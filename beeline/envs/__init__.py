"""Every environment behind one interface: flat float32 observations, actions in [-1, 1], seeded episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beeline.envs import registry, trust
from beeline.envs.check import Finding, check, quick
from beeline.envs.registry import with_arguments
from beeline.envs.sheet import contact_sheet
from beeline.envs.spec import EnvSpec

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.envs.registry import EnvLike


def make(env: EnvLike, *, repeat: int = 1, limit: int | None = None, render: bool = False) -> Adapter:
    """Make an environment with flat float32 observations and actions in [-1, 1] (docs/environments.md).

    `env` is an id such as `dmc/walker-run?noise=0.2`, a factory, or an instance; `limit` is a time limit in environment
    steps in place of its own; `render` asks for RGB frames. This is for who writes the id: it names the id's module (see
    `trust`). An id that may come out of a file is for `registry.make`.
    """
    trust.allow(env)
    return registry.make(env, repeat=repeat, limit=limit, render=render)


def spec_of(env: EnvLike, *, repeat: int = 1) -> EnvSpec:
    """Return the facts of an environment; one made here from an id or a factory is closed again."""
    trust.allow(env)
    return registry.spec_of(env, repeat=repeat)


__all__ = ["EnvSpec", "Finding", "check", "contact_sheet", "make", "quick", "spec_of", "with_arguments"]
