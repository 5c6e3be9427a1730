"""Value heads: projections by hand, their means, the loss's gradient; and agents that learn with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeline import agents
from beeline.agents.base import Spaces, Task
from beeline.memory import Batch, Data
from beeline.networks import HEADS, HLGauss, Scalar, TwoHot

TWO, GAUSS = TwoHot(101, -5.0, 5.0), HLGauss(101, -5.0, 5.0)


def at(weights: np.ndarray, atom: float) -> float:
    return float(weights[int(np.argmin(np.abs(np.linspace(-5, 5, 101) - atom)))])


def test_two_hot_by_hand() -> None:
    weights = np.asarray(TWO.project(jnp.float32(0.234)))
    assert at(weights, 0.2) == pytest.approx(0.66, abs=1e-4) and at(weights, 0.3) == pytest.approx(0.34, abs=1e-4)
    assert weights.sum() == pytest.approx(1.0, abs=1e-5) and np.count_nonzero(weights > 1e-4) == 2
    for head in (TWO, GAUSS):
        outside = np.asarray(head.project(jnp.float32(7.0)))
        np.testing.assert_array_equal(outside, head.project(jnp.float32(5.0)))
    assert at(np.asarray(TWO.project(jnp.float32(7.0))), 5.0) == 1.0


def test_hl_gauss_by_hand() -> None:
    weights = np.asarray(GAUSS.project(jnp.float32(0.0)))
    for atom, weight in ((0.0, 0.49501), (0.1, 0.22974), (-0.1, 0.22974), (0.2, 0.02232), (-0.2, 0.02232)):
        assert at(weights, atom) == pytest.approx(weight, abs=2e-5)
    weights = np.asarray(GAUSS.project(jnp.float32(0.03)))
    for atom, weight in ((0.0, 0.46208), (0.1, 0.34006), (-0.1, 0.13486)):
        assert at(weights, atom) == pytest.approx(weight, abs=2e-5)


@given(y=st.floats(-5.0, 5.0, width=32))
def test_the_mean_of_a_projection_is_the_target(y: float) -> None:
    z = np.linspace(-5, 5, 101)
    assert np.asarray(TWO.project(jnp.float32(y)), np.float64) @ z == pytest.approx(y, abs=1e-5)
    if abs(y) < 4.5:
        assert np.asarray(GAUSS.project(jnp.float32(y)), np.float64) @ z == pytest.approx(y, abs=1e-5)


@pytest.mark.parametrize("head", [TWO, GAUSS])
def test_the_loss_is_least_where_the_distribution_is_the_target(head: TwoHot) -> None:
    y = jnp.array([0.234, -1.7])
    matching = jnp.log(head.project(y) + 1e-12)
    gradient = jax.grad(lambda out: jnp.sum(head.loss(out, y)))
    np.testing.assert_allclose(gradient(matching), 0.0, atol=1e-6)
    assert np.abs(gradient(matching.at[0, 52].add(2.0))).max() > 1e-3
    np.testing.assert_allclose(head.value(matching), y, atol=1e-4)
    off = jnp.array([[0.3, -0.2] * 50 + [0.0]])
    p = np.exp(off[0]) / np.exp(off[0]).sum()
    assert float(head.loss(off, y[:1])[0]) == pytest.approx(-float(np.asarray(head.project(y))[0] @ np.log(p)), rel=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_twin_critics_share_targets_and_learn_them(name: str) -> None:
    """Critics of two are pulled to the same numbers, and a constant reward without a next state is found."""
    options = {"hidden": (32, 32), "value_head": name, "atoms": 21, "support": (-2, 2), "critic_lr": 0.01}
    config = agents.make_config("bac", "", "light", options)
    agent = agents.get("bac").build(config, Task(Spaces(3, (-1.0,), (1.0,))))
    assert type(agent.critic.head) is HEADS[name] and agent.critic.head.width == 21
    assert agent.backup.value.outputs == (1,)  # V stays a number
    draw = np.random.default_rng(0)
    shape = (100, 32)
    batch = Batch(
        draw.standard_normal((*shape, 3), np.float32), draw.uniform(-1, 1, (*shape, 1)).astype(np.float32),
        np.full(shape, 1.3, np.float32), np.zeros(shape, np.float32), draw.standard_normal((*shape, 3), np.float32),
    )  # fmt: skip
    state, metrics = agent.update(agent.init(0), Data(batch, 0))
    q = agent.q(state, batch.obs[0], batch.action[0])
    assert q.shape == (2, 32)
    np.testing.assert_allclose(q, 1.3, atol=0.1)
    assert float(metrics["q/target"]) == pytest.approx(1.3, abs=1e-5)


def test_a_scalar_head_is_the_default() -> None:
    agent = agents.get("sac").build(agents.make_config("sac", "", "light", {"hidden": (8, 8)}), Task(Spaces(3, (-1.0,), (1.0,))))
    assert agent.critic.head == Scalar()
