"""The instruments as one call: what a training runs every `diagnose` steps, and what reads a finished run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from beeline import rng
from beeline.agents.base import Agent
from beeline.diagnostics import bias, delta
from beeline.diagnostics.probe import Probe
from beeline.evaluate import never
from beeline.memory import Replay

if TYPE_CHECKING:
    import gymnasium

QUANTILES = (10, 25, 50, 75, 90)
COST = "time/diagnose"


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much a diagnosis looks at."""

    pairs: int = 1_000  # least number of pairs with a Monte Carlo return
    states: int = 8_192  # rows drawn from the buffer
    batches: int = 8  # batches over which λ's quantiles are taken
    passive: delta.Fit = delta.PASSIVE


def columns(agent: Agent) -> tuple[str, ...]:
    """The names of what a diagnosis of this agent reports, in the order of the record."""
    probe = Probe(agent)
    of_returns = bias.Pairs(np.zeros((1, 1)), np.zeros(1), np.zeros(1)).row(probe.soft)
    own = ("diag/delta_own", "diag/v_minus_q") if probe.has_value else ()
    lam = tuple(f"diag/lambda_p{each}" for each in QUANTILES) if probe.has_blend else ()
    return (*of_returns, "diag/delta", "diag/delta_norm", *own, "diag/better", *lam, COST)


class Diagnoser:
    """Measures an agent on an environment of its own. Every number is a function of (seed, step, state, replay)."""

    def __init__(self, agent: Agent, env: gymnasium.Env, seed: int, effort: Effort | None = None) -> None:
        self.probe, self.env, self.seed, self.effort = Probe(agent), env, seed, effort or Effort()
        self.columns = columns(agent)
        self.stop: Callable[[], bool] = never  # asked at every decision: a diagnosis can be given up
        self._root = rng.root(seed)

    def __call__(self, state: Any, replay: Replay, step: int) -> dict[str, float]:
        """One diagnosis; `state` and `replay` are read and left as they were."""
        began = time.perf_counter()
        row = self.bias(state, step).row(self.probe.soft) | self.buffer(state, replay, step)
        return row | {COST: time.perf_counter() - began}

    def bias(self, state: Any, step: int) -> bias.Pairs:
        """Q against Monte Carlo returns."""
        effort = self.effort
        return bias.measure(
            self.probe, state, self.env, root=self._root, seed=self.seed, step=step, pairs=effort.pairs, stop=self.stop
        )

    def buffer(self, state: Any, replay: Replay, step: int) -> dict[str, float]:
        """The buffer's actions against the policy's own: Δ's proxy, the share that is better, V − Q, and λ."""
        probe, effort = self.probe, self.effort
        config = probe.agent.config
        drawn = replay.sample(self.seed, step, 1, effort.states, gamma=self.probe.agent.gamma, stream="diagnose/buffer")
        obs, action = drawn.obs[0], drawn.action[0]
        own, _ = probe.draw(state, self._root, step, obs)
        q_buffer, q_own = (np.min(probe.q(state, obs, each), axis=0).astype(np.float64) for each in (action, own))
        key = rng.fold(jax.random.wrap_key_data(jax.numpy.asarray(self._root)), "diagnose/value", step)
        fit = dataclasses.replace(effort.passive, hidden=tuple(getattr(config, "hidden", effort.passive.hidden)))
        passive = delta.fit_value(key, probe.agent.seen(state, obs), q_buffer, fit=fit)
        difference = float(np.mean(passive) - np.mean(q_own))
        row = {"diag/delta": difference, "diag/delta_norm": difference / max(abs(float(np.mean(q_own))), 1e-6)}
        if probe.has_value:
            value = probe.v(state, obs).astype(np.float64)
            row |= {"diag/delta_own": float(np.mean(value) - np.mean(q_own)), "diag/v_minus_q": float(np.mean(value - q_buffer))}
        row["diag/better"] = float(np.mean(q_buffer > q_own))
        if probe.has_blend:
            batches = replay.sample(
                self.seed, step * effort.batches, effort.batches, config.batch_size,
                gamma=self.probe.agent.gamma, n_step=config.n_step, stream="diagnose/lambda", with_next_action=True,
            )  # fmt: skip
            lam = probe.lam(state, batches, self._root, step)
            row |= {f"diag/lambda_p{each}": float(np.percentile(lam, each)) for each in QUANTILES}
        return row

    def fitted(
        self, state: Any, replay: Replay, step: int, fit: delta.Fit, expectiles: tuple[float, ...] = (0.7, 0.9, 0.95),
        rows: int = 200_000,
    ) -> dict[float, delta.FittedDelta]:  # fmt: skip
        """The fitted estimate of Δ from `rows` transitions of the buffer at most; takes minutes with a full budget."""
        count = min(len(replay), rows)
        drawn = replay.sample(self.seed, step, 1, count, gamma=self.probe.agent.gamma, stream="diagnose/fit")
        obs, following = (np.asarray(self.probe.agent.seen(state, each[0])) for each in (drawn.obs, drawn.next_obs))
        reward = np.asarray(self.probe.agent.rewarded(state, drawn.reward[0]))
        data = delta.Transitions(obs, drawn.action[0], reward, drawn.discount[0], following)
        actor, _, objective = self.probe.acting(state)

        def policy(key: Any, obs: Any) -> Any:
            return self.probe.agent.sample((actor, None, objective), key, obs)[0]  # the observations are normalised already

        key = rng.fold(jax.random.wrap_key_data(jax.numpy.asarray(self._root)), "diagnose/fit", step)
        return delta.fitted_delta(key, data, policy, expectiles, fit, states=obs[:10_000])
