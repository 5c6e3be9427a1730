"""Pink noise in place of target smoothing: the update against its plain form, and the sequence that runs over updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from states import agent, assert_same, batch, elsewhere, learn, noise_of, one, read

from beeline import operators, rng
from beeline.agents.noise import PINK_LENGTH

RATES = {"actor_lr": 0.01, "critic_lr": 0.02, "tau": 0.1, "network": "mlp"}


def epsilon(state: Any) -> np.ndarray:
    """ε of the next update: the sequence of these thousand updates, at its place in it."""
    number = int(state.updates)
    key = rng.fold(jax.random.wrap_key_data(state.key), "explore/pink", number // 1000)
    return np.asarray(operators.colored_noise(key, 1.0, 1000, 2))[number % 1000]


@pytest.mark.parametrize(("algo", "more"), [("td3", {}), ("bee-td3", {"lam": 0.4, "value_lr": 0.04})])
def test_consecutive_updates_equal_the_specification_across_the_end_of_a_sequence(algo: str, more: dict[str, Any]) -> None:
    a = agent(algo, explore="pink", smoothing_noise=0.4, **RATES, **more)
    s = plain.Settings(
        algo, action_scale=(2.0, 0.4), smoothing_noise=0.4, policy_updates_per_step=0.5, target_interval=2,
        **{name: value for name, value in (RATES | more).items() if name != "lam"},
    )  # fmt: skip
    state = dataclasses.replace(elsewhere(a.init(0), 1), updates=jnp.int32(998))
    expected, seen = read(state), []
    for number in range(4):
        b, seen = batch(seed=number), [*seen, epsilon(state)]
        noise = noise_of(state, 1) | {"explore": np.broadcast_to(seen[-1], (32, 2))}
        expected, _ = plain.update(expected, one(b), noise, s)
        state, _ = learn(a, state, b)
        assert_same(read(state), expected, f"update {number + 1} of {algo}")
    assert int(state.updates) == 1002 and len({each.tobytes() for each in seen}) == 4


@pytest.mark.parametrize("algo", ["td3", "rrs", "maxq-td3", "xtd3"])
def test_all_rows_of_an_update_move_alike_and_those_of_white_noise_do_not(algo: str) -> None:
    b = one(batch())
    b = b._replace(next_obs=np.broadcast_to(b.next_obs[:1], b.next_obs.shape))
    for explore, alike in (("pink", True), ("smoothing", False)):
        a = agent(algo, explore=explore)
        state = a.init(0)
        pairs, _ = a.backup.look(state, b, noise_of(state, 1))
        action = np.asarray(pairs[0][1])
        assert np.array_equal(action, np.broadcast_to(action[:1], action.shape)) == alike


def test_over_updates_it_is_the_pink_sequence_within_its_bound() -> None:
    a = agent("td3", explore="pink", smoothing_noise=0.2, smoothing_clip=0.3)
    state, b = a.init(0), one(batch())
    base = np.asarray(a.actor.output(state.actor.target, b.next_obs))

    @jax.jit
    def moved(number: Any) -> Any:
        pairs, _ = a.backup.look(dataclasses.replace(state, updates=number), b, {})
        return pairs[0][1][0]

    there = np.stack([moved(jnp.int32(number)) for number in range(PINK_LENGTH)]) - base[0]
    key = rng.fold(jax.random.wrap_key_data(state.key), "explore/pink", 0)
    want = np.clip(0.2 * np.asarray(operators.colored_noise(key, 1.0, PINK_LENGTH, 2)), -0.3, 0.3)
    inside = np.abs(base[0] + want) < 1.0
    assert inside.mean() > 0.9 and np.abs(want).max() == pytest.approx(0.3)
    np.testing.assert_allclose(there[inside], want[inside], atol=1e-5)
