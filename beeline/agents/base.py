"""The protocol by which the loop, the evaluator and the checkpoint know an agent; they know nothing else of it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import numpy as np

from beeline.replay import Batch


@dataclasses.dataclass(frozen=True)
class Spaces:
    """What an agent has to know of its task: the sizes, and the bounds of the env's own actions."""

    obs_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]

    @property
    def action_dim(self) -> int:
        """How many numbers an action has."""
        return len(self.action_low)

    @property
    def action_scale(self) -> tuple[float, ...]:
        """Half the width of each action's range: d env action / d action in [-1, 1]."""
        return tuple((high - low) / 2 for low, high in zip(self.action_low, self.action_high, strict=True))


class Batches(NamedTuple):
    """What one `update` call learns from; leading axes `[updates, batch]`.

    `exploit`, where given, is what the exploit estimator is fitted on instead of `train` (real data in MB-BAC).
    `first` is the number of the call's first update; agents derive the phase of their delays and intervals from it.
    """

    train: Batch
    first: int
    exploit: Batch | None = None


class Agent(Protocol):
    """A learner whose whole state is one pytree of arrays."""

    config: Any
    spaces: Spaces
    metric_names: tuple[str, ...]

    def init(self, seed: int) -> Any:
        """The state before the first step."""

    def init_actor_state(self, lanes: int) -> Any:
        """What acting carries from step to step (noise sequences, plans); an empty tuple where there is nothing."""

    def act(
        self, state: Any, actor_state: Any, obs: np.ndarray, first: np.ndarray, counter: int, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """Actions in [-1, 1] for observations `[n, obs_dim]`, extras, and the next actor state.

        The actions may still be under way: `np.asarray` waits for them. Until then `obs` and `first` must not change.

        `first` marks lanes whose episode begins here; `counter` numbers the decisions and keys the noise; `mode` is
        "explore" or "greedy".
        """

    def observe(self, state: Any, obs: np.ndarray) -> Any:
        """Take new observations into the running statistics; the same state where the agent keeps none."""

    def update(self, state: Any, batches: Batches) -> tuple[Any, dict[str, Any]]:
        """Learn from the batches in one compiled call; the old state is consumed."""

    def policy(self, state: Any) -> dict[str, np.ndarray]:
        """The deterministic policy's arrays, normaliser included: what a policy file holds."""

    def with_policy(self, state: Any, arrays: dict[str, np.ndarray]) -> Any:
        """The state with its policy replaced by one from a policy file."""
