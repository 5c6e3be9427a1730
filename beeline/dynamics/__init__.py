"""Learned models of the world: probabilistic ensembles, their training, and what is imagined with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.dynamics.world import World, load, predict, rollout

__all__ = ["World", "load", "predict", "rollout"]


def __getattr__(name: str) -> Any:
    """What is offered is imported when it is asked for: JAX comes with it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from beeline.dynamics import world

    return getattr(world, name)
