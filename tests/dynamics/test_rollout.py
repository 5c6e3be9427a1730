"""Branches against their closed form, the imagined memory, and the feeds that read it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beeline.dynamics.ensemble import GaussianEnsemble, bounded_log_var
from beeline.dynamics.rollout import BLOCK, Rollout
from beeline.envs.known import never
from beeline.feeds import Beside, Mixed, Uniform
from beeline.imagined import Imagined
from beeline.memory import Clock, Replay
from beeline.networks import Draw

MODEL = GaussianEnsemble(2, 1, members=4, elites=2, hidden=(), decay=(0.0,))
FLOOR = float(np.exp(0.5 * bounded_log_var(jnp.float32(-30.0), jnp.float32(-10.0), jnp.float32(0.5))))  # e^−5


def linear(matrices: np.ndarray):
    """Members that say [Δs, r] = [s, a] W exactly, but for noise at the log-variance's floor; elites are members 3 and 1."""
    state = MODEL.init(Draw(0, "x"))
    w = np.zeros((4, 3, 6), np.float32)
    w[..., :3] = matrices
    b = np.zeros((4, 1, 6), np.float32)
    b[..., 3:] = -30.0
    params = state.slot.live | {"layers": ({"w": jnp.asarray(w), "b": jnp.asarray(b)},)}
    return state._replace(slot=state.slot._replace(live=params), elites=np.array([3, 1], np.int32))


def push(acting, key, obs):
    """The policy a = .5 s_0."""
    return 0.5 * obs[:, :1], None


SAME = np.array([[0.1, 0.0, 1.0], [0.0, -0.2, 0.0], [0.3, 0.0, 0.0]], np.float32)


@pytest.mark.parametrize("count", [1, 7, 2 * BLOCK, 2 * BLOCK + 3])
def test_branches_equal_the_closed_form(count: int) -> None:
    starts = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    rolled = Rollout(MODEL, push, never)(linear(SAME), (), starts, 3, seed=0, counter=0)
    assert rolled is not None and len(rolled.reward) == 3 * count
    np.testing.assert_allclose(rolled.action, 0.5 * rolled.obs[:, :1], rtol=1e-6)
    full = np.concatenate([rolled.obs, rolled.action], axis=1) @ SAME
    np.testing.assert_allclose(rolled.next_obs, rolled.obs + full[:, :2], atol=6 * FLOOR)
    np.testing.assert_allclose(rolled.reward, full[:, 2], atol=6 * FLOOR)
    assert np.std(rolled.reward - full[:, 2]) == pytest.approx(FLOOR, rel=0.5) or count == 1
    assert not rolled.terminated.any()
    step = np.array([[1 + 0.1 + 0.15, 0.0], [0.0, 0.8]])  # s' = s (I + W_s + .5 e_0 W_a)
    ends = {tuple(np.round(each, 1)) for each in rolled.next_obs}
    for start in starts[:5]:
        np.testing.assert_array_less(np.abs(rolled.next_obs - start @ step @ step @ step).sum(1).min(), 10 * FLOOR)
    assert ends


def test_every_elite_gets_its_share_of_the_rows_and_no_other_member_any() -> None:
    matrices = np.zeros((4, 3, 3), np.float32)
    matrices[:, 0, 2] = [1.0, 2.0, 3.0, 4.0]  # the reward tells the member
    starts = np.stack([np.ones(200), np.arange(200)], axis=1).astype(np.float32)  # the second number tells the row
    rolled = Rollout(MODEL, push, never)(linear(matrices), (), starts, 2, seed=0, counter=0)
    who, row = np.round(rolled.reward), np.round(rolled.obs[:, 1])
    assert set(who) == {2.0, 4.0}
    assert [(who[part] == 4.0).sum() for part in (slice(0, 200), slice(200, 400))] == [100, 100]
    assert (who[:100] == 4.0).all() and (row[:200] == np.arange(200)).all()
    assert sorted(row[200:]) == list(range(200)) and 20 < (row[200:300] < 100).sum() < 80  # shuffled before the second step


@pytest.mark.parametrize("count", [1, 3, 100, 2 * BLOCK + 99, 4 * BLOCK + 1])
def test_a_block_that_is_not_full_is_shared_among_the_elites_too(count: int) -> None:
    matrices = np.zeros((4, 3, 3), np.float32)
    matrices[:, 0, 2] = [1.0, 2.0, 3.0, 4.0]
    starts = np.stack([np.ones(count), np.arange(count)], axis=1).astype(np.float32)
    rolled = Rollout(MODEL, push, never)(linear(matrices), (), starts, 1, seed=0, counter=0)
    who = np.round(rolled.reward)
    assert ((who == 4.0).sum(), (who == 2.0).sum()) == (-(-count // 2), count // 2)
    np.testing.assert_array_equal(rolled.obs, starts)


def test_nothing_follows_the_end_of_a_branch() -> None:
    """x doubles at every step; a branch ends at x > 1, at the step that leads there."""
    matrices = np.zeros((3, 3), np.float32)
    matrices[0, 0] = 1.0
    ended = lambda obs, action, next_obs: next_obs[..., 0] > 1.0  # noqa: E731
    starts = np.array([[0.6, 0.0], [0.3, 0.0], [0.01, 0.0]], np.float32)
    rolled = Rollout(MODEL, lambda acting, key, obs: (0.0 * obs[:, :1], None), ended)(
        linear(matrices), (), starts, 4, seed=0, counter=0
    )
    assert len(rolled.reward) == 1 + 2 + 4
    assert sorted(np.round(rolled.obs[:, 0], 1).tolist())[-3:] == pytest.approx([0.3, 0.6, 0.6])
    np.testing.assert_array_equal(rolled.terminated, rolled.next_obs[:, 0] > 1.0)
    assert rolled.terminated.sum() == 2


def test_what_is_not_finite_is_left_out_and_a_rollout_can_be_given_up() -> None:
    matrices = np.zeros((3, 3), np.float32)
    matrices[0, 0] = 1e38
    starts = np.array([[0.0, 0.0], [9.0, 0.0]], np.float32)
    still = Rollout(MODEL, lambda acting, key, obs: (0.0 * obs[:, :1], None), never)
    assert len(still(linear(matrices), (), starts, 1, seed=0, counter=0).reward) == 1
    assert still(linear(matrices), (), starts, 1, seed=0, counter=0, stop=lambda: True) is None


def test_a_rollout_is_a_function_of_seed_and_counter() -> None:
    starts = np.ones((10, 2), np.float32)
    roll = Rollout(MODEL, push, never)
    same, again, other, seed = (
        roll(linear(SAME), (), starts, 2, seed=s, counter=c) for s, c in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert all(np.array_equal(a, b) for a, b in zip(same, again))
    np.testing.assert_array_equal(same.obs[:10], starts)  # the first step is not shuffled: what differs there is its noise
    for another in (other, seed):
        assert (same.next_obs[:10] != another.next_obs[:10]).all()


# --- the memory ---------------------------------------------------------------------------------------------------------


def filled(capacity: int, pushes: list[tuple[int, int]]) -> Imagined:
    """Rows that are numbered by their first observation; (how many, window) of each insertion."""
    ring, number = Imagined(capacity, 2, 1), 0
    for count, window in pushes:
        x = np.arange(number, number + count, dtype=np.float32)
        ring.push(np.stack([x, -x], 1), x[:, None] / 2, x + 0.25, np.stack([x + 0.5, x], 1), x % 3 == 0, window)
        number += count
    return ring


def held(ring: Imagined) -> list[int]:
    return [int(x) for x in ring.export(0, ring.oldest(0), ring.rows(0))["obs"][:, 0]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=8), st.integers(2, 40))
def test_the_newest_rows_count_and_none_comes_back(pushes: list[tuple[int, int]], capacity: int) -> None:
    ring = filled(capacity, pushes)
    alive: list[int] = []
    number = 0
    for count, window in pushes:
        alive = [*alive, *range(number, number + count)][-min(window, capacity) :]
        number += count
    assert held(ring) == alive and len(ring) == len(alive)
    batch = ring.sample(0, 0, 2, 200)
    assert set(batch.obs[..., 0].ravel()) <= set(map(float, alive))
    np.testing.assert_array_equal(batch.next_obs[..., 0], batch.obs[..., 0] + 0.5)
    np.testing.assert_array_equal(batch.reward, batch.obs[..., 0] + 0.25)
    np.testing.assert_array_equal(batch.discount == 0, batch.obs[..., 0] % 3 == 0)
    other = Imagined(capacity, 2, 1)
    other.restore_rows(0, ring.oldest(0), ring.export(0, ring.oldest(0), ring.rows(0)))
    other.restore_lane(0, ring.rows(0), ring.episode_start(0), None)
    again = other.sample(0, 0, 2, 200)
    assert all(np.array_equal(a, b) for a, b in zip(batch[:5], again[:5]))


def test_a_window_that_grows_keeps_all_rows() -> None:
    assert held(filled(100, [(10, 10), (5, 20)])) == list(range(15))
    assert held(filled(100, [(10, 5), (5, 20)])) == list(range(5, 15))  # what was given up stays so


def test_draws_are_uniform_and_differ_by_update() -> None:
    ring = filled(64, [(100, 50)])
    counts = np.bincount(ring.sample(3, 7, 20, 500).obs[..., 0].ravel().astype(int), minlength=100)
    assert not counts[:50].any() and stats.chisquare(counts[50:]).pvalue > 1e-3
    two = ring.sample(3, 7, 2, 30)
    np.testing.assert_array_equal(two.obs[1], ring.sample(3, 8, 1, 30).obs[0])
    with pytest.raises(ValueError, match="stand alone"):
        ring.sample(0, 0, 1, 4, n_step=2)
    with pytest.raises(ValueError, match="nothing was imagined"):
        Imagined(10, 2, 1).sample(0, 0, 1, 4)


# --- feeds --------------------------------------------------------------------------------------------------------------


def test_batches_are_mixed_and_v_is_fitted_on_real_rows_alone() -> None:
    """Real observations are below zero."""
    replay, ring = Replay(100, 2, 1), filled(100, [(60, 60)])
    replay.start(0, [-1.0, 0.0])
    for number in range(40):
        replay.add(0, [0.0], 0.0, [-2.0 - number, 0.0], False, False)
    memories, clock = {"replay": replay, "model": ring}, Clock(0, 100, 100, 7)
    uniform = Uniform(32, 0.9)
    for real in (0, 5, 32):
        data = Mixed(uniform, real)(memories, clock, 3)
        assert data.train.obs.shape == (3, 32, 2) and data.first == 7 and data.fit is None
        assert ((data.train.obs[..., 0] < 0).sum(axis=1) == real).all()
    data = Beside(Mixed(uniform, 5), uniform)(memories, clock, 3)
    assert (data.fit.obs[..., 0] < 0).all() and data.fit.obs.shape == (3, 32, 2)
    assert not np.array_equal(data.fit.obs[:, :5], data.train.obs[:, :5])
