"""The search, the scoring of sequences under a model, and the particles, against plain forms and known answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline.cem import TruncatedCem
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState
from beeline.dynamics.planning import WORST, Planner, dealt
from beeline.envs import known
from beeline.networks import Draw

KEY = jax.random.key(3)
BEST = np.array([[0.3, -0.6, 0.0], [-0.2, 0.5, 0.7]], np.float32)


def concave(best: np.ndarray) -> Any:
    return lambda candidates, key: -jnp.sum(jnp.square(candidates - best), axis=-1)


# --- the search -------------------------------------------------------------------------------------------------------


def test_the_summit_inside_the_box_and_its_bound_outside() -> None:
    search = TruncatedCem(400, 40, 5)
    np.testing.assert_allclose(search.search(concave(BEST), jnp.zeros((2, 3)), KEY), BEST, atol=0.05)
    outside = np.array([[1.7, -1.4, 0.2]], np.float32)
    found = np.asarray(search.search(concave(outside), jnp.zeros((1, 3)), KEY))
    np.testing.assert_allclose(found, [[1.0, -1.0, 0.2]], atol=0.1)
    assert (np.abs(found) < 1).all()


def test_candidates_stay_within_two_deviations_and_half_the_way_to_the_bound() -> None:
    search = TruncatedCem(4000)
    mean, variance = jnp.array([[0.0, 0.9, -0.4]]), jnp.array([[0.01, 0.25, 0.25]])
    drawn = np.asarray(search.candidates(KEY, mean, variance))[:, 0]
    reach = np.array([0.1, 0.05, 0.3]) * 2
    assert (np.abs(drawn - np.asarray(mean)) <= reach + 1e-6).all()
    assert (np.abs(drawn - np.asarray(mean)).max(0) > 0.95 * reach).all()
    np.testing.assert_allclose(drawn.std(0), np.array([0.1, 0.05, 0.3]) * 0.8796, rtol=0.03)  # of a normal cut at 2 σ


def test_refit_by_hand() -> None:
    """The two best of three are 1 and 3: mean 2, population variance 1; with α = .1 from mean 10 and variance 4."""
    search = TruncatedCem(3, 2, momentum=0.1)
    candidates = jnp.array([1.0, 2.0, 3.0]).reshape(3, 1, 1)
    mean, variance = search.refit(jnp.full((1, 1), 10.0), jnp.full((1, 1), 4.0), candidates, jnp.array([[5.0], [-1.0], [4.0]]))
    np.testing.assert_allclose([mean[0, 0], variance[0, 0]], [0.1 * 10 + 0.9 * 2, 0.1 * 4 + 0.9 * 1], rtol=1e-6)


def plain_search(search: TruncatedCem, score: Any, mean: np.ndarray, key: Any) -> np.ndarray:
    variance = np.full_like(mean, 0.25)
    for number in range(search.iterations):
        if variance.max() <= search.least:
            break
        draw, judge = jax.random.split(jax.random.fold_in(key, number))
        deviation = np.sqrt(np.minimum(np.minimum((mean + 1) / 2, (1 - mean) / 2) ** 2, variance))
        drawn = mean + deviation * np.asarray(jax.random.truncated_normal(draw, -2, 2, (search.population, 1, mean.size)))[:, 0]
        best = drawn[np.argsort(-np.asarray(score(jnp.asarray(drawn[:, None]), judge))[:, 0], kind="stable")[: search.elites]]
        mean = 0.1 * mean + 0.9 * best.mean(0)
        variance = 0.1 * variance + 0.9 * best.var(0)
    return mean


def test_the_search_is_that_of_the_plain_form_and_ends_early() -> None:
    search = TruncatedCem(60, 5, 12, least=1e-2)
    start = np.array([0.2, 0.0, -0.5], np.float32)
    wanted = plain_search(search, concave(BEST[:1]), start, KEY)
    np.testing.assert_allclose(search.search(concave(BEST[:1]), jnp.asarray(start)[None], KEY)[0], wanted, atol=1e-5)
    endless = dataclasses.replace(search, least=0.0)
    assert np.abs(np.asarray(endless.search(concave(BEST[:1]), jnp.asarray(start)[None], KEY)[0]) - wanted).max() > 1e-4


def test_a_row_that_has_ended_waits_for_the_others() -> None:
    """One row's score is flat beside a sharp one: each ends with what it ends with when the other goes on."""
    search = TruncatedCem(60, 5, 12, least=1e-2)
    start = jnp.zeros((2, 3))
    first = search.search(lambda c, k: concave(BEST)(c, k) * jnp.array([1.0, 1.0]), start, KEY)
    other = search.search(lambda c, k: concave(BEST)(c, k) * jnp.array([1.0, 0.0]), start, KEY)
    np.testing.assert_array_equal(first[0], other[0])
    assert np.any(np.asarray(first[1] != other[1]))


# --- the worth of a sequence ------------------------------------------------------------------------------------------

MODEL = GaussianEnsemble(2, 1, members=2, elites=2, hidden=(3,), activation="relu")


def linear(noise: float = 0.0) -> ModelState:
    """Member e adds (a + e, 0.5 s₁) to (s₁, s₂) for positive s₁, a, and predicts the reward s₁; its deviation is `noise`."""
    state = MODEL.init(Draw(0, "m"))
    first = np.zeros((2, 3, 3), np.float32)
    first[:, 0, 0] = first[:, 1, 1] = first[:, 2, 2] = 1.0  # hidden: s₁, s₂, a
    last = np.zeros((2, 3, 6), np.float32)
    last[:, 2, 0], last[:, 0, 1], last[:, 0, 2] = 1.0, 0.5, 1.0
    bias = np.zeros((2, 1, 6), np.float32)
    bias[1, 0, 0] = 1.0
    level = np.float32(2 * np.log(noise) if noise else -60.0)
    params = {
        "layers": ({"w": first, "b": np.zeros((2, 1, 3), np.float32)}, {"w": last, "b": bias}),
        "max": np.full(3, level, np.float32), "min": np.full(3, level - 40.0, np.float32),
    }  # fmt: skip
    bias[..., 3:] = 100.0  # the log-variance is at its upper bound
    return state._replace(slot=state.slot._replace(live=jax.tree.map(jnp.asarray, params)))


def planner(**options: Any) -> Planner:
    given = {"horizon": 3, "particles": 2, "propagation": "tsinf", "terminated": known.never} | options
    return Planner(MODEL, TruncatedCem(8, 2, 2), **given)


def expected(obs: np.ndarray, actions: np.ndarray, end: float = np.inf, reward: Any = None) -> float:
    """The mean over both members of the sum of rewards, step by step."""
    totals = []
    for member in range(2):
        s, total = obs.astype(np.float64), 0.0
        for a in actions:
            after = s + np.array([a + member, 0.5 * s[0]])
            total += s[0] if reward is None else reward(s, a, after)
            s = after
            if s[0] > end:
                break
        totals.append(total)
    return float(np.mean(totals))


OBS = np.array([[0.5, 1.0], [2.0, 0.0]], np.float32)
ACTIONS = np.random.default_rng(0).uniform(0.1, 1.0, (4, 2, 3, 1)).astype(np.float32)


@pytest.mark.parametrize("end", [np.inf, 2.5])
@pytest.mark.parametrize("learnt", [True, False])
def test_worth_of_a_certain_model_by_hand(end: float, learnt: bool) -> None:
    def reward(s: Any, a: Any, after: Any) -> Any:
        return after[..., 1] - 2 * s[..., 0] * a[..., 0]

    found = planner(
        terminated=lambda s, a, after: after[..., 0] > end, reward=None if learnt else reward
    ).worth(linear(), jnp.asarray(OBS), jnp.asarray(ACTIONS), KEY)  # fmt: skip
    own = None if learnt else lambda s, a, after: after[1] - 2 * s[0] * a
    wanted = [[expected(OBS[b], ACTIONS[p, b, :, 0], end, own) for b in range(2)] for p in range(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_particles_have_noise_of_their_own() -> None:
    """Of one step with deviation .5: the mean over many particles of s₁' is the mean member's, its spread is theirs."""
    noisy, count = linear(0.5), 4000
    seen: list[Any] = []

    def reward(s: Any, a: Any, after: Any) -> Any:
        seen.append(after)
        return after[..., 0]

    found = planner(horizon=1, particles=count, reward=reward)
    with jax.disable_jit():
        worth = found.worth(noisy, jnp.asarray(OBS[:1]), jnp.asarray(ACTIONS[:1, :1, :1]), KEY)
    after = np.asarray(seen[0])[..., 0]  # [members, particles]
    assert after.shape == (2, count)
    middle = OBS[0, 0] + ACTIONS[0, 0, 0, 0]
    np.testing.assert_allclose(after.mean(1), [middle, middle + 1], atol=0.03)
    np.testing.assert_allclose(after.std(1), 0.5, rtol=0.05)
    np.testing.assert_allclose(worth[0, 0], after.mean(), rtol=1e-5)


def test_worth_is_finite_whatever_the_model_says() -> None:
    bad = planner(reward=lambda s, a, after: jnp.where(a[..., 0] > 0.5, jnp.nan, 1.0))
    actions = jnp.asarray(np.array([0.9, 0.1], np.float32).reshape(2, 1, 1, 1) * np.ones((2, 2, 3, 1), np.float32))
    np.testing.assert_allclose(bad.worth(linear(), jnp.asarray(OBS), actions, KEY), [[WORST] * 2, [3.0] * 2])


def test_dealing_moves_particles_among_the_members_of_their_own_sequence() -> None:
    shape = (2, 3, 5, 2)
    rows = jnp.arange(60.0).reshape(2, 30)
    dealt_out = np.asarray(dealt(KEY, rows, shape)).reshape(6, 5, 2)
    before = np.asarray(rows).reshape(6, 5, 2)
    np.testing.assert_array_equal(np.sort(dealt_out, axis=0), before)
    assert np.any(dealt_out != before) and len({tuple(np.argsort(dealt_out[:, p, b])) for p in range(5) for b in range(2)}) > 1
    pairs = jnp.stack([rows, -rows], axis=-1)
    np.testing.assert_array_equal(np.asarray(dealt(KEY, pairs, shape))[..., 0].reshape(6, 5, 2), dealt_out)


def test_a_particle_keeps_its_member_or_changes_it() -> None:
    """Member 1 adds one more than member 0: after 3 steps s₁ says how often a particle was moved by it."""
    seen: dict[str, Any] = {}
    for kind in ("tsinf", "ts1"):
        steps: list[Any] = []

        def reward(s: Any, a: Any, after: Any, steps: Any = steps) -> Any:
            steps.append(np.asarray(after)[..., 0] - 0.5)
            return after[..., 0]

        with jax.disable_jit():
            found = planner(particles=200, propagation=kind, reward=reward)
            found.worth(linear(), jnp.asarray(OBS[:1]), jnp.zeros((1, 1, 3, 1)), KEY)
        seen[kind] = np.bincount(np.round(steps[-1]).astype(int).ravel(), minlength=4)
    np.testing.assert_array_equal(seen["tsinf"], [200, 0, 0, 200])
    assert seen["ts1"].sum() == 400 and (seen["ts1"] > 20).all()  # about 50, 150, 150, 50


def test_the_plan_is_the_best_one() -> None:
    """Rewards −(a − .4)²: every action is .4."""
    p = Planner(MODEL, TruncatedCem(300, 30, 8), 3, 1, "tsinf", known.never, lambda s, a, after: -jnp.square(a[..., 0] - 0.4))
    plan = p.plan(linear(), jnp.asarray(OBS), jnp.zeros((2, 3, 1)), KEY)
    assert plan.shape == (2, 3, 1)
    np.testing.assert_allclose(plan, 0.4, atol=0.06)
