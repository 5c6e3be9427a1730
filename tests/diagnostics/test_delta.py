"""The estimates of Δ(μ, π) against exact dynamic programming and exact expectiles, and λ against the update's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline import agents, rng, tabular
from beeline.agents.base import Spaces
from beeline.diagnostics import delta
from beeline.memory import Clock, Data, Replay

# Three states, two actions; (1, 0) is random, (2, 1) ends. Δ of the policy below is 1.97, of the optimal one 0.
TRANSITION = np.zeros((3, 2, 3))
TRANSITION[0, 0, 1] = TRANSITION[0, 1, 2] = TRANSITION[1, 1, 0] = TRANSITION[2, 0, 0] = 1.0
TRANSITION[1, 0, [0, 2]] = 0.5
MDP = tabular.FiniteMDP(TRANSITION, np.array([[0.0, 1.0], [2.0, 0.0], [-1.0, 0.5]]), 0.8)
POLICY = np.array([[0.2, 0.8], [0.1, 0.9], [0.5, 0.5]])
FIT = delta.Fit(steps=700, batch=64, hidden=(24,), rate=1e-2, tau=0.05)
TOLERANCE = 0.15  # of values up to 3.6; an expectile of .99 and sampling account for it


def transitions(count: int) -> tuple[delta.Transitions, np.ndarray]:
    """A buffer that holds every action of every state, one-hot, and the states' shares of it."""
    generator = np.random.default_rng(1)
    state, action = generator.integers(0, 3, count), generator.integers(0, 2, count)
    chances = MDP.transition[state, action]
    following = (np.c_[chances, 1.0 - chances.sum(1)].cumsum(1) > generator.random(count)[:, None]).argmax(1)  # 3: the end
    hot = np.eye(4, dtype=np.float32)[:, :3]
    discount = np.where(following < 3, MDP.discount, 0.0).astype(np.float32)
    reward = MDP.reward[state, action].astype(np.float32)
    data = delta.Transitions(hot[state], np.eye(2, dtype=np.float32)[action], reward, discount, hot[following])
    return data, np.bincount(state, minlength=3) / count


def sampler(policy: np.ndarray) -> delta.Sample:
    def sample(key: Any, obs: Any) -> Any:
        return jnp.eye(2)[jax.random.categorical(key, jnp.log(obs @ policy.astype(np.float32) + 1e-9))]

    return sample


def test_the_fitted_estimate_agrees_with_exact_dynamic_programming() -> None:
    data, states = transitions(3000)
    support = np.ones((3, 2), bool)
    for policy in (POLICY, tabular.greedy(tabular.optimal(MDP))):
        exact = tabular.delta(MDP, support, policy, states)
        found = delta.fitted_delta(jax.random.key(0), data, sampler(policy), (0.99,), FIT)[0.99]
        own = float(states @ tabular.explore_value(tabular.evaluate_policy(MDP, policy), policy))
        assert abs(found.delta - exact) < TOLERANCE
        assert abs(found.policy_value - own) < TOLERANCE
        assert found.delta == found.buffer_value - found.policy_value
        assert found.normalised == pytest.approx(found.delta / abs(found.policy_value))
    assert tabular.delta(MDP, support, POLICY, states) > 1.9  # the two policies are told apart by far more than the tolerance


def expectile(q: np.ndarray, level: float) -> float:
    low, high = q.min(), q.max()
    for _ in range(60):
        middle = (low + high) / 2
        u = q - middle
        low, high = (middle, high) if np.sum(np.where(u > 0, level, 1 - level) * u) > 0 else (low, middle)
    return low


@pytest.mark.parametrize(("scale", "level"), [(1.0, 0.7), (500.0, 0.9)])
def test_the_passive_value_is_the_expectile_of_the_buffers_q_at_any_scale(scale: float, level: float) -> None:
    generator = np.random.default_rng(0)
    state = generator.integers(0, 2, 2000)
    q = scale * (np.array([-2.0, 1.0])[state] + generator.normal(size=2000) * np.array([0.2, 1.0])[state])
    obs = np.eye(2, dtype=np.float32)[state]
    fit = delta.Fit(steps=400, batch=128, hidden=(16,), rate=1e-2)
    found = delta.fit_value(jax.random.key(0), obs, q, level, fit)
    for each in (0, 1):
        assert found[state == each][0] == pytest.approx(expectile(q[state == each], level), abs=0.12 * scale)


# --- λ ----------------------------------------------------------------------------------------------------------------


def test_lambda_is_the_one_that_the_update_uses() -> None:
    algorithm = agents.get("bac")
    options = {"hidden": (8, 8), "batch_size": 16, "blend": "ada_h2o", "reward_scale": 3.0, "normalize_obs": True}
    agent = algorithm.build(algorithm.config.make(options), Spaces(2, (-2.0, 0.0), (3.0, 1.0)))
    replay = Replay(200, 2, 2)
    generator = np.random.default_rng(0)
    replay.start(0, generator.normal(size=2))
    for number in range(50):
        action, obs = generator.uniform(-1, 1, 2), generator.normal(size=2)
        replay.add(0, action, generator.normal(), obs, number == 20, False)
        if number == 20:
            replay.start(0, obs)
    state = agent.init(0)
    state = agent.notice(state, {}, (), generator.normal(size=(9, 2)).astype(np.float32), Clock(0))
    state, _ = agent.update(state, Data(replay.sample(0, 0, 1, 16), 0))
    batch = replay.sample(0, 1, 1, 16)
    key = rng.fold(jax.random.wrap_key_data(state.key), "explore", state.updates)
    lam = np.asarray(jax.jit(agent.lam)(state, jax.tree.map(lambda x: x[0], batch), key))
    assert lam.shape == (16,) and 0.0 <= lam.min() < lam.max() <= 1.0
    _, metrics = agent.update(state, Data(batch, 1))
    assert float(np.mean(lam)) == pytest.approx(float(metrics["lambda"]), abs=1e-6)
