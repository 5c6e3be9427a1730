"""The protocol by which the loop, the evaluator, the checkpoint and the display know an agent; they know nothing else of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from beeline.errors import ExportError
from beeline.memory import Batch, Clock, Data

if TYPE_CHECKING:
    from beeline.graph import Graph
    from beeline.memory import MemorySpec, Replay


@dataclasses.dataclass(frozen=True)
class Spaces:
    """The sizes of a task, and the bounds of the env's own actions."""

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


@dataclasses.dataclass(frozen=True)
class Task:
    """What an agent is told of its world when it is built. What is not known is None."""

    spaces: Spaces
    limit: int | None = None  # environment steps after which an episode is cut
    repeat: int = 1  # environment steps per decision
    lanes: int = 1  # environments stepped side by side
    ends: bool = True  # whether an episode can terminate
    prior_share: float = 0.0  # share of a batch that is drawn from the memory "prior"; 0: there is no such memory
    reward: Callable[..., Any] | None = dataclasses.field(default=None, compare=False)  # r(s, a, s'), where it is known
    terminated: Callable[..., Any] | None = dataclasses.field(default=None, compare=False)  # the end of an episode at s'
    resets: Callable[..., Any] | None = dataclasses.field(default=None, compare=False)  # first observations (seed, n)

    @property
    def steps_per_decision(self) -> int:
        """Environment steps of one decision in all lanes."""
        return self.repeat * self.lanes


class Agent(Protocol):
    """A learner that holds nothing: its state is one pytree of arrays, its memories are handed to it.

    Leaves that are NumPy live on the host (statistics, counters) and stay NumPy through checkpoint and resume.
    """

    config: Any
    task: Task
    metric_names: tuple[str, ...]
    memories: Mapping[str, MemorySpec]
    on_policy: bool  # whether the action of a turn waits for the update that is due in it, so that no old policy acts
    tell: Callable[[str], None]  # the run sets it: what `prepare` says goes on, in a few words

    def init(self, seed: int) -> Any:
        """The state before the first step."""

    def begin(self, lanes: int) -> Any:
        """What acting carries from decision to decision (a noise sequence, a plan); `()` where there is nothing.

        Training has one, and every evaluation begins one of its own.
        """

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """Actions in [-1, 1] for observations `[n, obs_dim]`, extras that are stored beside them, and the next carry.

        The actions may still be under way: `np.asarray` waits for them. Until then `obs` and `first` must not change.
        `first` marks lanes whose episode begins here. `mode` is "collect" (training, its warm-up included), "sample" (the
        policy with its noise) or "greedy".
        """

    def warm(self, memories: Mapping[str, Replay], clock: Clock) -> None:
        """Before the first decision of a run: begin to compile what it will call, beside its warm-up, and return at once.

        No number may depend on it, nor on when it is done; the memories must not be touched after it has returned.
        """

    def prepare(
        self, state: Any, memories: Mapping[str, Replay], clock: Clock, stop: Callable[[], bool]
    ) -> tuple[Any, dict[str, Any]] | None:
        """Slow work that is due before this decision: train a model, roll out, a whole stage.

        Nothing of the given state is consumed, and `stop` is asked often: None says that the work was given up, and nothing
        has changed. The run then resumes before it and does it again.
        """

    def draw(self, state: Any, memories: Mapping[str, Replay], clock: Clock) -> Data | None:
        """What the next update learns from, None while it is too early. Changes nothing: drawn twice, it is the same."""

    def update(self, state: Any, data: Data) -> tuple[Any, dict[str, Any]]:
        """Learn from the data in one compiled call, dispatched and not awaited; the old state is consumed."""

    def notice(self, state: Any, memories: Mapping[str, Replay], steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> Any:
        """After every insertion: statistics, ranges, a newly chosen critic. Cheap; never waits for the device.

        `steps` are the transitions of this decision (`collect.Transition`), one of each lane that did not fail. `obs` are the
        observations that the next actions are chosen from, `[lanes, obs_dim]`. Before the first decision it is
        called with no steps.
        """

    def heed(self, state: Any, evaluation: Any, clock: Clock) -> Any:
        """After every evaluation."""

    def renew(self, state: Any, parts: Sequence[str], clock: Clock) -> Any:
        """Fresh networks, targets and optimisers for these parts, from streams keyed by the step."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What `renew` takes."""

    def policy(self, state: Any) -> Any:
        """What acting reads, alone: dicts and tuples of arrays, as a policy file holds them."""

    def blank_policy(self) -> Any:
        """A policy of the right shapes: what one that is read from a file must look like."""

    def with_policy(self, state: Any, policy: Any) -> Any:
        """The state with its policy replaced."""

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """Write the greedy action in [-1, 1] at the observations named `obs` as operations; the name of the action.

        An agent whose action is no function of its weights and one observation raises ExportError with the reason.
        """


class Defaults:
    """What most agents have nothing to do in; subclass this and write the rest."""

    parts: tuple[str, ...] = ()
    on_policy: bool = False
    tell: Callable[[str], None] = staticmethod(lambda words: None)

    def begin(self, lanes: int) -> Any:
        """Acting carries nothing."""
        return ()

    def warm(self, memories: Any, clock: Clock) -> None:
        """Everything is compiled when it is first called."""

    def prepare(self, state: Any, memories: Any, clock: Clock, stop: Callable[[], bool]) -> tuple[Any, dict[str, Any]] | None:
        """No slow work."""
        return state, {}

    def notice(self, state: Any, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> Any:
        """Nothing to take note of."""
        return state

    def heed(self, state: Any, evaluation: Any, clock: Clock) -> Any:
        """Nothing to learn from an evaluation."""
        return state

    def renew(self, state: Any, parts: Sequence[str], clock: Clock) -> Any:
        """Nothing can be renewed."""
        return state

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """Nothing that could run without the agent."""
        raise ExportError(f"{type(self).__name__} does not say how its action could be computed without it (it has no `write`).")


@runtime_checkable
class Judged(Protocol):
    """What instruments read off an agent, beside the protocol. All are pure functions that can be compiled.

    `acting` is what `sample` reads of a state, so that many calls can share it.
    """

    gamma: float  # discount per decision
    soft: bool  # whether returns have an entropy-inclusive form
    has_value: bool  # whether the agent has a V of its own
    has_blend: bool  # whether it has a λ

    def seen(self, state: Any, obs: Any) -> Any:
        """Observations as the networks see them."""

    def rewarded(self, state: Any, reward: Any) -> Any:
        """Rewards in the units of Q."""

    def acting(self, state: Any) -> Any:
        """The part of the state that sampling reads: (policy, statistics or None, the rest)."""

    def sample(self, acting: Any, key: Any, obs: Any) -> tuple[Any, Any]:
        """ã ~ π(·|s) as the policy acts while it learns, and its bonus −ω(ã|s), zero where there is none."""

    def q(self, state: Any, obs: Any, action: Any) -> Any:
        """Every critic's Q(s, a), `[E, B]`."""

    def v(self, state: Any, obs: Any) -> Any:
        """The agent's own V(s), `[B]`."""

    def lam(self, state: Any, batch: Batch, key: Any) -> Any:
        """λ of every sample of a batch, as the update that came next would choose it with this key."""
