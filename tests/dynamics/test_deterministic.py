"""SLBO's model: predictions and losses by hand, paths out of a memory, and steps of Adam against a plain loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from beeline.dynamics.deterministic import Deterministic, Paths, Scale, fitted, padded, paths_of
from beeline.memory import Replay
from beeline.networks import Draw

SCALE = Scale((np.float32([1.0, 0.0]), np.float32([2.0, 1.0])), (np.float32([0.5, 0.0]), np.float32([0.25, 1.0])), (3.0, 2.0))
MODEL = Deterministic(2, 1, hidden=(), decay=0.0)


def linear(w: Any, b: Any = (0.0, 0.0, 0.0)) -> Any:
    """No hidden layer: [norm(s), clip(a)] w + b."""
    return ({"w": jnp.asarray(w, jnp.float32), "b": jnp.asarray(b, jnp.float32)},)


# The change is μ + σ out: out = (a, s̄₁, s̄₂) of s̄ = ((s₁ − 1) / 2, s₂).
PARAMS = linear([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def step(s: np.ndarray, a: float) -> tuple[np.ndarray, float]:
    scaled = np.array([(s[0] - 1) / 2, s[1]])
    return s + np.array([0.5 + 0.25 * np.clip(a, -1, 1), scaled[0]]), 3.0 + 2.0 * scaled[1]


def test_a_prediction_by_hand() -> None:
    """s = (2, −1), a = 3 counts as 1: Δ = (.5 + .25, .5), r̂ = 3 + 2 (−1)."""
    after, reward = MODEL.predict(PARAMS, SCALE, jnp.array([[2.0, -1.0]]), jnp.array([[3.0]]))
    np.testing.assert_allclose(after, [[2.75, -0.5]], rtol=1e-6)
    np.testing.assert_allclose(reward, [1.0], rtol=1e-6)


def test_a_prediction_stays_within_a_hundred_deviations() -> None:
    far = linear(np.zeros((3, 3)), [1e6, -1e6, 0.0])
    after, _ = MODEL.predict(far, SCALE, jnp.zeros((1, 2)), jnp.zeros((1, 1)))
    np.testing.assert_allclose(after, [[1.0 + 200.0, -100.0]], rtol=1e-6)


def paths(follows: bool) -> Paths:
    r = np.random.default_rng(0)
    obs, action, change = r.normal(size=(2, 3, 2)), r.uniform(-1, 1, (2, 3, 1)), r.normal(size=(2, 3, 2))
    flags = np.array([[False] * 3, [follows, True, False]])
    return Paths(*(np.float32(each) for each in (obs, action, change, r.normal(size=(2, 3)))), flags)


def plain_loss(p: Paths, steps: int) -> tuple[float, float]:
    norms, rewards = [], []
    for b in range(3):
        now = p.obs[0, b].astype(np.float64)
        for i in range(steps):
            after, reward = step(now, float(p.action[i, b, 0]))
            error = (after - now - p.change[i, b]) / [0.25, 1.0]
            norms.append(np.sqrt(np.mean(error**2)))
            rewards.append(((reward - p.reward[i, b]) / 2.0) ** 2)
            if i + 1 < steps:
                now = after if p.follows[i + 1, b] else p.obs[i + 1, b].astype(np.float64)
    return float(np.mean(norms)), float(np.mean(rewards))


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("learns", [True, False])
def test_the_loss_of_two_steps_by_hand(follows: bool, learns: bool) -> None:
    p = paths(follows)
    norm, reward = plain_loss(p, 2)
    model = Deterministic(2, 1, hidden=(), decay=0.1, learns_reward=learns)
    biased = linear(PARAMS[0]["w"], (0.0, 0.0, 0.0))
    loss, seen = model.loss(biased, SCALE, jax.tree.map(jnp.asarray, p))
    decay = 0.5 * 0.1 * 3.0  # three ones among the weights
    np.testing.assert_allclose([loss, seen], [norm + decay + reward * learns, norm], rtol=1e-5)


def test_decay_covers_biases() -> None:
    model = Deterministic(2, 1, hidden=(), decay=2.0)
    p = jax.tree.map(jnp.asarray, paths(True))
    with_decay, without = (m.loss(linear(PARAMS[0]["w"], (0.0, 0.0, 5.0)), SCALE, p)[0] for m in (model, MODEL))
    np.testing.assert_allclose(with_decay - without, 0.5 * 2.0 * (3.0 + 25.0), rtol=1e-5)


def test_the_known_reward_is_not_learnt() -> None:
    model = Deterministic(2, 1, hidden=(4,), decay=0.0, learns_reward=False)
    slot = model.init(Draw(0, "m"))
    gradients = jax.grad(lambda params: model.loss(params, SCALE, jax.tree.map(jnp.asarray, paths(True)))[0])(slot.live)
    assert not np.any(gradients[-1]["w"][:, -1]) and np.any(gradients[-1]["w"][:, 0])


def test_a_perfect_prediction_has_a_finite_gradient() -> None:
    obs, action = np.zeros((1, 2, 2), np.float32), np.zeros((1, 2, 1), np.float32)
    change = np.stack([step(np.zeros(2), 0.0)[0]] * 2)[None].astype(np.float32)
    exact = Paths(obs, action, change, np.full((1, 2), 3.0, np.float32), np.zeros((1, 2), bool))
    gradients = jax.grad(lambda params: MODEL.loss(params, SCALE, jax.tree.map(jnp.asarray, exact))[0])(PARAMS)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_paths_go_on_where_the_memory_does() -> None:
    """Two lanes: a terminal end, a time limit, an open episode; nothing follows across ends or lanes."""
    replay = Replay(40, 1, 1, 2)
    value = iter(np.arange(1.0, 100.0))
    ends = {0: ["t", "", "", "l", "", ""], 1: ["", "", "t", ""]}
    for lane, kinds in ends.items():
        replay.start(lane, [next(value)])
        for kind in kinds:
            replay.add(lane, [0.0], 0.0, [next(value)], kind == "t", kind == "l")
            if kind:
                replay.start(lane, [next(value)])
    found = paths_of(replay.whole())
    wanted = [False, False, True, True, False, True, False, True, True, False]
    np.testing.assert_array_equal(found.follows, wanted)
    np.testing.assert_allclose(found.change, 1.0)
    room = padded(found)
    assert room.obs.shape == (1024, 1) and not np.any(room.follows[10:])
    np.testing.assert_array_equal(room.obs[:10], found.obs)


def test_paths_do_not_follow_out_of_a_terminal_state() -> None:
    """Even where the next episode happens to begin in it."""
    replay = Replay(20, 1, 1)
    replay.start(0, [1.0])
    replay.add(0, [0.0], 0.0, [2.0], True, False)
    replay.start(0, [2.0])
    replay.add(0, [0.0], 0.0, [3.0], False, False)
    np.testing.assert_array_equal(paths_of(replay.whole()).follows, [False, False])


def test_steps_of_adam_are_those_of_a_plain_loop_and_of_pieces() -> None:
    r = np.random.default_rng(1)
    rows = Paths(
        *(np.float32(r.normal(size=(30, n))) for n in (2, 1, 2)), np.float32(r.normal(size=30)), r.random(30) < 0.7
    )  # fmt: skip
    model = Deterministic(2, 1, hidden=(5,), rate=1e-2, decay=1e-3, clip=0.05)
    slot, starts = model.init(Draw(3, "m")), r.integers(0, 29, (6, 4), np.int32)
    room = padded(rows)
    whole, norm = fitted(model, slot, SCALE, room, starts, 2)
    first, _ = fitted(model, slot, SCALE, room, starts[:2], 2)
    pieces, again = fitted(model, first, SCALE, room, starts[2:], 2)
    for left, right in zip(jax.tree.leaves((whole, norm)), jax.tree.leaves((pieces, again)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)
    params, state, optimiser = slot.live, optax.adam(1e-2).init(slot.live), optax.adam(1e-2)
    for start in starts:
        batch = Paths(*(np.stack([each[start], each[start + 1]]) for each in rows))
        gradients = jax.grad(lambda p, b=batch: model.loss(p, SCALE, jax.tree.map(jnp.asarray, b))[0])(params)
        size = float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradients))))
        gradients = jax.tree.map(lambda g, s=size: g * min(1.0, 0.05 / s), gradients)
        updates, state = optimiser.update(gradients, state)
        params = optax.apply_updates(params, updates)
    for left, right in zip(jax.tree.leaves(whole.live), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


def test_it_learns_a_linear_world() -> None:
    r = np.random.default_rng(2)
    obs, action = np.float32(r.normal(size=(500, 2))), np.float32(r.uniform(-1, 1, (500, 1)))
    change = np.stack([step(s, float(a[0]))[0] - s for s, a in zip(obs, action, strict=True)]).astype(np.float32)
    rows = padded(Paths(obs, action, change, 3.0 + 2.0 * obs[:, 1], np.zeros(500, bool)))
    model = Deterministic(2, 1, hidden=(32,), rate=3e-3)
    _, before = fitted(model, model.init(Draw(0, "m")), SCALE, rows, r.integers(0, 499, (1, 64), np.int32), 1)
    slot, after = fitted(model, model.init(Draw(0, "m")), SCALE, rows, r.integers(0, 499, (1500, 64), np.int32), 1)
    assert after < 0.1 * before
    _, reward = model.predict(slot.live, SCALE, jnp.asarray(obs), jnp.asarray(action))
    assert np.sqrt(np.mean(np.square(reward - (3 + 2 * obs[:, 1])))) < 0.2
