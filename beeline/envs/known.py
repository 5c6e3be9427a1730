"""What is known of tasks beside their simulators: where an episode ends, and the reward.

A function takes observations, actions in [-1, 1] and the observations after them, as one row or any batch of rows, NumPy or
JAX, and says for each what the environment says: so a learned model's episodes end exactly where the real ones do
(ALGORITHMS.md, section 16.3). Of Gymnasium's tasks it holds for their default arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Array = TypeVar("Array", bound=Any)
Known = Callable[[Any, Any, Any], Any]  # (obs, action, next_obs) -> terminated or reward, for every row


def hopper_terminated(obs: Array) -> Array:
    """Fallen below 0.7, tilted by 0.2 or more, or out of range; z is obs[0], the torso's angle obs[1]."""
    sane = _finite(obs) & (abs(obs[..., 1:]) < 100).all(-1)
    return ~(sane & (obs[..., 0] > 0.7) & (abs(obs[..., 1]) < 0.2))


def walker2d_terminated(obs: Array) -> Array:
    """Outside 0.8 < z < 2, or tilted by 1 or more."""
    z = obs[..., 0]
    return ~((z > 0.8) & (z < 2.0) & (abs(obs[..., 1]) < 1.0))


def ant_terminated(obs: Array) -> Array:
    """Outside 0.2 ≤ z ≤ 1, or not finite."""
    z = obs[..., 0]
    return ~(_finite(obs) & (z >= 0.2) & (z <= 1.0))


def humanoid_terminated(obs: Array) -> Array:
    """Outside 1 ≤ z ≤ 2."""
    z = obs[..., 0]
    return ~((z >= 1.0) & (z <= 2.0))


def pole_terminated(obs: Array) -> Array:
    """InvertedPendulum: tilted by more than 0.2, or not finite."""
    return ~(_finite(obs) & (abs(obs[..., 1]) <= 0.2))


def double_pole_terminated(obs: Array) -> Array:
    """InvertedDoublePendulum: the tip at y ≤ 1, y = 0.6 (cos θ₁ + cos(θ₁ + θ₂)); obs[1:5] are sines, then cosines."""
    sin1, sin2, cos1, cos2 = (obs[..., place] for place in (1, 2, 3, 4))
    return ~(0.6 * (cos1 + cos1 * cos2 - sin1 * sin2) > 1.0)


def mountain_terminated(obs: Array) -> Array:
    """MountainCarContinuous: at 0.45 or beyond, and not rolling back."""
    return (obs[..., 0] >= 0.45) & (obs[..., 1] >= 0.0)


def never(obs: Array, action: Array, next_obs: Array) -> Array:
    """No observation ends an episode."""
    return abs(next_obs[..., 0]) < 0


def after(ended: Callable[[Any], Any]) -> Known:
    """The termination by the observation after the action alone."""

    def terminated(obs: Any, action: Any, next_obs: Any) -> Any:
        return ended(next_obs)

    return terminated


def below(place: int, threshold: float) -> Callable[[Any], Any]:
    """Where one number of the observation is below a threshold."""
    return lambda obs: obs[..., place] < threshold


def _finite(obs: Array) -> Array:
    # Comparisons instead of isfinite: they need no array library, and NaN fails them as it should.
    return (abs(obs) < float("inf")).all(-1)


def pendulum_reward(obs: Array, action: Array, next_obs: Array) -> Array:
    """Pendulum-v1: −(θ² + 0.1 θ'² + 0.001 u²) before the action, with θ in (−π, π] and the torque u = 2a."""
    xp = _library(obs, action)
    angle = xp.arctan2(obs[..., 1], obs[..., 0])
    return -(angle**2 + 0.1 * obs[..., 2] ** 2 + 0.001 * (2.0 * xp.clip(action[..., 0], -1.0, 1.0)) ** 2)


def pole_reward(obs: Array, action: Array, next_obs: Array) -> Any:
    """InvertedPendulum-v5: 1 for every step after which the pole stands."""
    return 1.0 - pole_terminated(next_obs)


def _library(*arrays: Any) -> Any:
    """NumPy, or JAX where one of the arrays is not NumPy's; it is loaded then."""
    import numpy as np

    if all(isinstance(each, np.ndarray | np.generic) for each in arrays):
        return np
    import jax.numpy as jnp

    return jnp


MBPO: dict[str, Callable[[Any], Any]] = {
    "hopper": hopper_terminated,
    "walker2d": walker2d_terminated,
    "ant": ant_terminated,
    "humanoid": humanoid_terminated,
}
_ENDS = {
    "Hopper": hopper_terminated,
    "Walker2d": walker2d_terminated,
    "Ant": ant_terminated,
    "Humanoid": humanoid_terminated,
    "InvertedPendulum": pole_terminated,
    "InvertedDoublePendulum": double_pole_terminated,
}
_ENDLESS = ("HalfCheetah", "HumanoidStandup", "Reacher", "Swimmer")
GYM: dict[str, Known] = {
    **{f"{name}-v{version}": after(ended) for name, ended in _ENDS.items() for version in (4, 5)},
    **{f"{name}-v{version}": never for name in _ENDLESS for version in (4, 5)},
    "Pusher-v5": never,  # -v4 needs an old MuJoCo
    "Pendulum-v1": never,
    "MountainCarContinuous-v0": after(mountain_terminated),
}
REWARDS: dict[str, Known] = {"Pendulum-v1": pendulum_reward, "InvertedPendulum-v5": pole_reward}
TOLD = ("mbpo/…", "dmc/…", "metaworld/…", "dkitty/…", *(f"gym/{name}" for name in GYM if not name.endswith("-v4")))
