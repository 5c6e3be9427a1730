"""MBPO under AutoMBPO's controller (Lai et al. 2021): the model-based agent that also measures what a controller looks at.

    value loss     mean over both critics of ½ mean (Q − y)² on 10,000 rows mixed as the batches are; before there are imagined
                   ones, on 256 real rows
    policy shift   mean min(|log π_old(a|s) − log π(a|s)|, 100) over the real steps of the last five epochs, measured as an
                   epoch begins; log π_old is of the moment at which an action was taken, and is stored beside it
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from beeline.agents.base import Task
from beeline.agents.mixture import buffer_log_prob
from beeline.agents.model_based import ModelBased, ModelBasedState
from beeline.agents.off_policy import State as Inner
from beeline.dynamics.controlled import Controlled
from beeline.dynamics.controller import policy_shift
from beeline.dynamics.triggers import Look
from beeline.feeds import joined
from beeline.memory import Batch, Clock, MemorySpec
from beeline.networks import normalise

VALUE_ROWS, FIRST_ROWS = 10_000, 256
SHIFT_EPOCHS = 5


class ControlledAgent(ModelBased):
    """The agent whose trigger is `dynamics.controlled.Controlled`."""

    trigger: Controlled

    def __init__(self, config: Any, task: Task, *parts: Any) -> None:
        super().__init__(config, task, *parts)
        self.memories = {**self.memories, "replay": MemorySpec(columns={"log_prob": ()})}
        self._log_prob, self._value_loss = jax.jit(self._log_prob_impl), jax.jit(self._value_loss_impl)

    # --- acting -----------------------------------------------------------------------------------------------------

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """The action as ever; while collecting, log π of it is stored beside it."""
        action, extras, carry = super().act(policy, carry, obs, first, clock, mode)
        if mode == "collect":
            extras = extras | {"log_prob": self._log_prob(policy, obs, action)}
        return action, extras, carry

    def _log_prob_impl(self, policy: Any, obs: Array, action: Array) -> Array:
        """log π(a|s) of actions that were taken, in units of [-1, 1]."""
        return buffer_log_prob(self.inner.actor.output(policy["actor"], normalise(policy["normaliser"], obs)), action)

    def heed(self, state: ModelBasedState, evaluation: Any, clock: Clock) -> ModelBasedState:
        """The controller is told of every evaluation."""
        state = super().heed(state, evaluation, clock)
        decision = self.task.steps_per_decision
        own = self.trigger.heed(state.host["trigger"], evaluation.mean, self.since(clock), decision)
        return self._on_host(state, trigger=own)

    # --- what the controller looks at -------------------------------------------------------------------------------

    def look(self, state: ModelBasedState, memories: Any, clock: Clock) -> Look:
        """What there is to look at, measured when it is asked for."""

        def losses() -> tuple[float, float]:
            return float(np.mean(state.model.error[state.model.elites])), self.value_loss(state, memories, clock)

        return super().look(state, memories, clock)._replace(
            losses=losses, shift=lambda: self.shift(state, memories, clock)
        )

    def value_loss(self, state: ModelBasedState, memories: Any, clock: Clock) -> float:
        """½ (Q − y)² on rows mixed as the batches are."""
        count, share = FIRST_ROWS, 1.0
        if len(memories["model"]):
            count, share = VALUE_ROWS, self.settings(state, clock).ratio
        real = int(count * share)
        drawn = [
            memories[name].sample(clock.seed, clock.decisions, 1, size, gamma=self.inner.gamma, stream=f"controller/{name}")
            for name, size in (("replay", real), ("model", count - real)) if size
        ]  # fmt: skip
        batch = drawn[0] if len(drawn) == 1 else joined(*drawn)
        return float(self._value_loss(state.inner, Batch(*(each[0] for each in batch[:-1]))))

    def _value_loss_impl(self, inner: Inner, batch: Batch) -> Array:
        agent = self.inner
        batch = agent.scaled(inner.host, batch)
        noise = agent.draw_noise(jax.random.wrap_key_data(inner.key), inner.updates, batch, None)
        pairs, sight = agent.backup.look(inner, batch, noise)
        terms = agent.backup.terms(inner, batch, sight, agent.ask(inner.critic.target, pairs))
        out = agent.critic.out(inner.critic.live, batch.obs, batch.action)
        y, _, _ = agent.backup.target(inner.backup, terms, agent.critic.worst(agent.critic.head.value(out)))
        return 0.5 * agent.critic.loss(out, y) / agent.critic.shape[-1]

    def shift(self, state: ModelBasedState, memories: Any, clock: Clock) -> float:
        """How far the policy has moved at what it has met, in log π."""
        replay, lanes = memories["replay"], self.task.lanes
        most = SHIFT_EPOCHS * self.config.epoch_steps // self.task.steps_per_decision
        held = min(most, replay.fewest)
        if not held:
            return 0.0
        found = replay.recent(held)
        rows = [np.asarray(each).reshape(held * lanes, -1) for each in (found.obs, found.action)]
        now = self._log_prob(self.policy(state), *rows)
        return policy_shift(np.asarray(found.extras["log_prob"]).reshape(-1), np.asarray(now))
