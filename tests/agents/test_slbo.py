"""SLBO as an agent: virtual rollouts against a plain form, noise, stages, and what does not apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Walk

import beeline as api
from beeline import agents, trees
from beeline.agents.base import Spaces, Task
from beeline.agents.slbo import SLBOConfig
from beeline.agents.stages import SLBO, State, scales
from beeline.errors import ConfigError
from beeline.memory import Clock, Replay
from beeline.networks import normalise
from beeline.run.policy import load_policy

TINY: dict[str, Any] = {
    "hidden": (8,), "policy_hidden": (6,), "stage_steps": 30, "rounds": 2, "model_steps": 30, "policy_updates": 3,
    "virtual_steps": 24, "virtual_envs": 2, "reset_pool": 5, "model_hidden": (8,), "model_batch_size": 6, "batch_size": 8,
    "epochs": 2,
}  # fmt: skip
SPACES = Spaces(2, (-2.0,), (2.0,))


def resets(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (count, 2)).astype(np.float32)


def over(obs: Any, action: Any, after: Any) -> Any:
    return after[..., 0] < -0.6


def paid(obs: Any, action: Any, after: Any) -> Any:
    return after[..., 0] - 2 * obs[..., 1] + action[..., 0]


def agent(task: Task | None = None, **options: Any) -> SLBO:
    given = task or Task(SPACES, limit=5, terminated=over, reward=paid, resets=resets)
    return agents.get("slbo").build(SLBOConfig(**TINY | options), given)


def filled() -> Replay:
    replay, draw = Replay(100, 2, 1), np.random.default_rng(0)
    for _ in range(4):
        replay.start(0, draw.normal(size=2))
        for step in range(8):
            replay.add(0, draw.uniform(-1, 1, 1), draw.normal(), draw.normal(size=2), False, step == 7)
    return replay


def at(step: int, decisions: int = 0) -> Clock:
    return Clock(5, step=step, decisions=decisions)


def staged(a: SLBO, state: State, step: int = 30) -> tuple[State, dict[str, Any]]:
    found = a.prepare(state, {"replay": filled()}, at(step), lambda: False)
    assert found is not None
    return found


# --- virtual rollouts -------------------------------------------------------------------------------------------------


def test_a_virtual_rollout_goes_on_in_the_model_and_begins_anew_in_the_pool() -> None:
    a = agent(virtual_steps=120, virtual_envs=3)
    state = staged(a, a.init(5))[0]
    statistics, scale = scales(filled().whole())
    pool, slots = jnp.asarray(resets(5, 5)), (state.policy, state.value)
    rolled = a.virtual(slots, state.model.live, statistics, scale, pool, jax.random.key(0))
    rows = {name: np.asarray(each) for name, each in rolled.items()}
    assert rows["obs"].shape == (3, 40, 2) and rows["ended"].any() and rows["cut"].any()
    firsts = {tuple(each) for each in np.asarray(pool).tolist()}
    for lane in range(3):
        age = 0
        for t in range(40):
            row = {name: each[lane, t] for name, each in rows.items()}
            if age == 0:
                assert tuple(row["obs"].tolist()) in firsts
            taken = np.clip(row["action"], -1, 1)
            after, _ = a.model.predict(state.model.live, scale, jnp.asarray(row["obs"])[None], jnp.asarray(taken)[None])
            np.testing.assert_allclose(row["next_obs"], after[0], atol=1e-5)
            np.testing.assert_allclose(row["reward"], paid(row["obs"], taken, row["next_obs"]), atol=1e-5)
            assert row["ended"] == over(row["obs"], taken, row["next_obs"])
            assert row["cut"] == (age == 4 and not row["ended"])
            seen = normalise(statistics, jnp.asarray(row["obs"])[None])
            np.testing.assert_allclose(row["value"], a.inner._value(state.value.live, seen)[0], atol=1e-5)
            density = a.inner.net.log_prob(state.policy.live, seen, jnp.asarray(row["action"])[None])[0]
            np.testing.assert_allclose(row["log_prob"], density, atol=1e-4)
            age = 0 if row["ended"] or row["cut"] else age + 1
            if age and t < 39:
                np.testing.assert_array_equal(rows["obs"][lane, t + 1], row["next_obs"])
    assert (np.abs(rows["action"]) > 1).any()  # what is judged is the action before it is clipped
    assert len({tuple(each) for each in rows["obs"][rows["cut"].nonzero()].tolist()}) > 1


def test_an_update_is_trpo_on_the_advantages_of_the_virtual_rollout() -> None:
    """δ = r + γ (1 − end) V(s') − V, the trace cut at ends and limits; then TRPO's own `learn` on these rows."""
    a = agent()
    state = staged(a, a.init(5))[0]
    statistics, scale = scales(filled().whole())
    pool, slots, root = jnp.asarray(resets(5, 5)), (state.policy, state.value), np.array([0, 5], np.uint32)
    given: dict[str, Any] = {}
    learn = a.inner.learn
    a.inner.learn = lambda slots, flat, extras: given.update(flat, **extras) or learn(slots, flat, extras)  # type: ignore[method-assign]
    with jax.disable_jit(False):
        seen: list[Any] = []
        virtual = a.virtual
        a.virtual = lambda *more: seen.append(virtual(*more)) or seen[0]  # type: ignore[method-assign,func-returns-value]
        try:
            a._improve_impl(slots, state.model.live, statistics, scale, pool, jnp.asarray(root), jnp.uint32(7))
        finally:
            del a.virtual, a.inner.learn
    rows = {name: np.asarray(each, np.float64) for name, each in seen[0].items()}
    following = np.asarray(a._value(state.value.live, statistics, jnp.asarray(rows["next_obs"], jnp.float32)), np.float64)
    wanted = np.zeros((2, 12))
    for lane in range(2):
        later = 0.0
        for t in reversed(range(12)):
            ended, cut = rows["ended"][lane, t], rows["cut"][lane, t]
            delta = rows["reward"][lane, t] + 0.99 * (1 - ended) * following[lane, t] - rows["value"][lane, t]
            later = delta + 0.99 * 0.95 * (0.0 if ended or cut else later)
            wanted[lane, t] = later
    np.testing.assert_allclose(np.asarray(given["advantage"]).reshape(2, 12), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given["target"], np.asarray(given["advantage"]) + rows["value"].ravel(), rtol=1e-5, atol=1e-5)
    order = np.asarray(given["order"])
    assert order.shape == (6, 8)
    for epoch in order.reshape(2, 24):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(24))
    assert np.any(order[:3] != order[3:])


# --- acting -----------------------------------------------------------------------------------------------------------


def test_noise_is_added_while_collecting_alone_and_is_never_reset() -> None:
    a = agent(noise_decay=0.5, noise_scale=0.3)
    policy, carry = a.policy(a.init(5)), np.full((2, 1), 0.8, np.float32)
    obs = np.zeros((2, 2), np.float32)
    for mode in ("sample", "greedy"):
        assert a.act(policy, carry, obs, np.ones(2, bool), at(0), mode)[2] is not None
        np.testing.assert_array_equal(a.act(policy, carry, obs, np.ones(2, bool), at(0), mode)[2], carry)
    quiet = np.asarray(a.act(policy, np.zeros_like(carry), obs, np.ones(2, bool), at(0), "greedy")[0])
    np.testing.assert_allclose(quiet, a.inner.net.apply(policy["actor"], jnp.asarray(obs)), atol=1e-6)
    walks = []
    for first in (True, False):
        action, extras, after = a.act(policy, carry, obs, np.full(2, first), at(0, 3), "collect")
        assert extras == {}
        walks.append(np.asarray(after))
        sampled = np.asarray(a.act(policy, carry, obs, np.full(2, first), at(0, 3), "sample")[0])
        inside = (np.abs(sampled) < 1) & (np.abs(sampled + after) < 1)
        np.testing.assert_allclose(np.asarray(action)[inside], (sampled + after)[inside], atol=1e-6)
    np.testing.assert_array_equal(walks[0], walks[1])
    found = np.concatenate(
        [np.asarray(a.act(policy, carry, obs, np.ones(2, bool), at(0, n), "collect")[2]) for n in range(400)]
    )  # fmt: skip
    np.testing.assert_allclose([found.mean(), found.std()], [0.5 * 0.8, 0.3], atol=0.03)


# --- stages -----------------------------------------------------------------------------------------------------------


def test_a_stage_comes_every_so_many_steps_and_tells_its_metrics() -> None:
    a, memories = agent(), {"replay": filled()}
    state = a.init(5)
    assert a.prepare(state, memories, at(29), lambda: False) == (state, {})
    after, told = staged(a, state, 33)
    assert told.keys() == set(a.metric_names)
    assert (int(after.host["stages"]), int(after.host["step"]), float(told["model/rows"])) == (1, 33, 32)
    assert a.prepare(after, memories, at(62), lambda: False) == (after, {})
    assert int(staged(a, after, 63)[0].host["stages"]) == 2


def test_a_stage_is_a_function_of_its_state_and_the_next_draws_anew() -> None:
    a = agent()
    state = a.init(5)
    first, again = staged(a, state)[0], staged(a, state)[0]
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    later = State(state.policy, state.value, state.model, state.host | {"stages": np.ones((), np.int64)})
    other = staged(a, later)[0]
    for name in ("policy", "value", "model"):
        left, right = (trees.to_arrays(getattr(each, name).live) for each in (first, other))
        assert any(np.any(left[key] != right[key]) for key in left), name


def test_statistics_are_those_of_all_that_was_met() -> None:
    rows = filled().whole()
    statistics, scale = scales(rows)
    np.testing.assert_allclose(statistics["mean"], rows.obs.mean(0), rtol=1e-5)
    for (mean, deviation), met in ((scale.obs, rows.obs), (scale.change, rows.next_obs - rows.obs), (scale.reward, rows.reward)):
        np.testing.assert_allclose(mean, met.mean(0), atol=1e-6)
        np.testing.assert_allclose(deviation, met.std(0), rtol=1e-5)
    np.testing.assert_array_equal(staged(agent(), agent().init(5))[0].host["statistics"]["mean"], statistics["mean"])


def test_a_stage_can_be_given_up_everywhere() -> None:
    a = agent()
    state = a.init(5)
    before, asked = trees.to_arrays(state), 0
    a.prepare(state, {"replay": filled()}, at(30), lambda: False)

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == last

    for last in (1, 2, 3, 5, 6, 10):  # in the model's pieces (2 a round) and TRPO's updates (3 a round)
        asked = 0
        assert a.prepare(state, {"replay": filled()}, at(30), stop) is None and asked == last
        np.testing.assert_equal(trees.to_arrays(state), before)


def test_the_reward_is_learnt_where_it_is_not_known() -> None:
    unknown = Task(SPACES, limit=6, terminated=over, resets=resets)
    assert agent().model.learns_reward is False
    for a in (agent(known_reward=False), agent(unknown)):
        assert a.model.learns_reward and a.reward is None
        state = staged(a, a.init(5))[0]
        statistics, scale = scales(filled().whole())
        rows = a.virtual(
            (state.policy, state.value), state.model.live, statistics, scale, jnp.asarray(resets(5, 5)), jax.random.key(0)
        )
        _, reward = a.model.predict(state.model.live, scale, rows["obs"], jnp.clip(rows["action"], -1, 1))
        np.testing.assert_allclose(rows["reward"], reward, atol=1e-5)


# --- what does not apply, files, learning -----------------------------------------------------------------------------


def test_options_and_tasks_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no multiple of virtual_envs = 7"):
        SLBOConfig(virtual_envs=7)
    with pytest.raises(ConfigError, match="batch_size = 64 is more than virtual_steps = 40"):
        SLBOConfig(virtual_steps=40)
    for name, reason in (("lam", "no Q"), ("rollout", "virtual_steps"), ("normalize_obs", "all that it has met")):
        with pytest.raises(ConfigError, match=reason):
            SLBOConfig.make({name: 1})
    with pytest.raises(ConfigError, match="an env id or a factory"):
        api.train("slbo", Walk(), out=tmp_path / "run", limit=20, eval_episodes=0)
    assert not (tmp_path / "run").exists()


def test_its_policy_goes_through_a_file_and_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = api.model("slbo")("gym/Pendulum-v1", limit=10, eval_episodes=0, verbose=0, **TINY)
    model.learn(35)
    path, obs = model.policy.save(tmp_path / "policy.npz"), np.array([[0.5, 0.5, 3.0], [-0.1, 0.9, -2.0]], np.float32)
    np.testing.assert_array_equal(load_policy(path).predict(obs)[0], model.policy.predict(obs)[0])
    assert api.export(path, tmp_path / "policy.onnx", env="gym/Pendulum-v1")[2] < 1e-5


def test_learns_to_stay_near_the_middle() -> None:
    """The small sister: two stages of 300 steps of a walk on a line; untrained policies have −1.8 to −5.7, good ones −0.1."""
    options: dict[str, Any] = {
        "hidden": (32,), "policy_hidden": (16,), "stage_steps": 300, "rounds": 4, "model_steps": 100, "policy_updates": 15,
        "virtual_steps": 400, "virtual_envs": 8, "reset_pool": 50, "model_hidden": (32,), "gamma": 0.9, "limit": 20,
        "replay_capacity": 5_000, "entropy_weight": 0.0,
    }  # fmt: skip
    model = api.model("slbo")(Walk, eval_episodes=0, verbose=0, **options)
    judge = api.model("slbo")(Walk, eval_episodes=20, verbose=0, **options)
    before = judge.evaluate(episodes=20).mean
    model.learn(610)
    judge.trainer.state = model.trainer.state
    after = judge.evaluate(episodes=20).mean
    assert before < -1.5 and after > -0.4, (before, after)


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.long
def test_learns_pendulum() -> None:
    """Mean of 20 episodes after three stages of the light preset (MODEL_BASED.md, section 5, asks for −300 by 50,000)."""
    model = api.model("slbo")("gym/Pendulum-v1", seed=0, eval_episodes=20, log_every=5_000)
    model.learn(15_001)
    assert model.evaluate(episodes=20).mean >= -300
