"""PETS as an agent: when it trains, what it carries, what it acts by, and what does not apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Walk

import beeline as api
from beeline import agents, rng, trees
from beeline.agents.base import Spaces, Task
from beeline.agents.pets import PETSConfig
from beeline.agents.planner import PETS, State
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState
from beeline.envs import known
from beeline.errors import CheckpointError, ConfigError, ExportError
from beeline.memory import Clock, Replay
from beeline.networks import Slot
from beeline.run.policy import load_policy, save_arrays

TINY: dict[str, Any] = {
    "hidden": (8,), "model_members": 2, "model_epochs": 2, "batch_size": 8, "lookahead": 3, "population": 8, "elites": 3,
    "iterations": 2, "particles": 1,
}  # fmt: skip
SPACES = Spaces(2, (-2.0,), (2.0,))


def reward(obs: Any, action: Any, after: Any) -> Any:
    return -jnp.square(action[..., 0] - obs[..., 0])


def agent(task: Task | None = None, **options: Any) -> PETS:
    return agents.get("pets").build(PETSConfig(**TINY | options), task or Task(SPACES, terminated=known.never, reward=reward))


def filled(episodes: int = 2, length: int = 6) -> Replay:
    replay, draw = Replay(100, 2, 1), np.random.default_rng(0)
    for _ in range(episodes):
        replay.start(0, draw.normal(size=2))
        for step in range(length):
            replay.add(0, draw.uniform(-1, 1, 1), draw.normal(), draw.normal(size=2), False, step == length - 1)
    return replay


def at(episodes: int = 0, step: int = 0, decisions: int = 0) -> Clock:
    return Clock(5, step=step, decisions=decisions, episodes=episodes)


def trained(a: PETS) -> State:
    found = a.prepare(a.init(5), {"replay": filled()}, at(episodes=1), lambda: False)
    assert found is not None
    return found[0]


def test_actions_are_random_until_the_model_was_trained() -> None:
    a = agent()
    state, obs = a.init(5), np.zeros((3, 2), np.float32)
    rows = [a.act(a.policy(state), a.begin(3), obs, np.ones(3, bool), at(decisions=n), "collect") for n in range(300)]
    actions = np.concatenate([np.asarray(row[0]) for row in rows])
    assert actions.dtype == np.float32 and (np.abs(actions) <= 1).all()
    np.testing.assert_allclose([actions.mean(), actions.std()], [0.0, 3**-0.5], atol=0.04)  # uniform
    assert len(np.unique(actions)) == actions.size and not any(np.any(row[2]) for row in rows)


def test_the_model_is_trained_after_every_episode_and_once() -> None:
    a, memories = agent(), {"replay": filled()}
    state = a.init(5)
    assert a.prepare(state, memories, at(episodes=0, step=900), lambda: False) == (state, {})
    found = a.prepare(state, memories, at(episodes=1, step=6), lambda: False)
    assert found is not None
    after, told = found
    assert told.keys() == set(a.metric_names)
    assert (told["model/epochs"], told["model/batches"], told["model/rows"], told["model/trainings"]) == (2, 4, 12, 1)
    assert np.isfinite(told["model/mse"])
    again = a.prepare(after, memories, at(episodes=1, step=7), lambda: False)
    assert again is not None and again[0] is after and not again[1]
    assert a.due(after, at(episodes=2, step=12))


def test_the_model_is_trained_every_so_many_steps() -> None:
    a = agent(model_every=10)
    state = a.init(5)
    assert not a.due(state, at(episodes=4, step=9)) and a.due(state, at(step=10))
    found = a.prepare(state, {"replay": filled()}, at(step=12), lambda: False)
    assert found is not None and not a.due(found[0], at(episodes=9, step=21)) and a.due(found[0], at(step=22))


def test_a_training_that_is_given_up_changes_nothing() -> None:
    a = agent()
    state = a.init(5)
    before = trees.to_arrays(state)
    assert a.prepare(state, {"replay": filled()}, at(episodes=1), lambda: True) is None
    np.testing.assert_equal(trees.to_arrays(state), before)


def model_of(a: PETS, policy: Any) -> ModelState:
    blank = a.model.init(rng_draw())
    return blank._replace(
        slot=Slot(policy["nets"], None, ()), mean=policy["mean"], deviation=policy["deviation"], unit=policy["unit"]
    )


def rng_draw() -> Any:
    from beeline.networks import Draw

    return Draw(0, "any")


def test_one_decision_against_its_plain_form() -> None:
    """The search begins at the shifted plan, at zeros where an episode begins, and the first action of what it finds is taken."""
    a = agent()
    policy = a.policy(trained(a))
    obs = np.array([[0.5, 0.1], [-0.4, 0.0]], np.float32)
    carry = np.full((2, 3, 1), 0.3, np.float32)
    action, extras, after = a.act(policy, carry, obs, np.array([False, True]), at(decisions=4), "collect")
    start = np.array([[[0.3]] * 3, [[0.0]] * 3], np.float32)
    key = jax.random.wrap_key_data(jnp.asarray(rng.root(5)))
    key = jax.random.fold_in(jax.random.fold_in(key, rng.tag("plan/collect")), 4)
    plan = np.asarray(a.planner.plan(model_of(a, policy), jnp.asarray(obs), jnp.asarray(start), key))
    np.testing.assert_allclose(action, plan[:, 0], atol=1e-6)
    np.testing.assert_allclose(after, np.concatenate([plan[:, 1:], np.zeros((2, 1, 1))], axis=1), atol=1e-6)
    assert extras == {} and np.any(plan[0] != plan[1])


def test_planning_finds_the_action_that_is_paid() -> None:
    a = agent(population=200, elites=20, iterations=6, lookahead=1)
    policy = a.policy(trained(a))
    obs = np.array([[0.5, 0.0], [-0.6, 0.0]], np.float32)
    for mode in ("collect", "sample", "greedy"):
        action = a.act(policy, a.begin(2), obs, np.ones(2, bool), at(), mode)[0]
        np.testing.assert_allclose(np.asarray(action)[:, 0], [0.5, -0.6], atol=0.08)


def test_the_reward_of_the_task_or_of_the_model() -> None:
    assert agent().planner.reward is reward
    assert agent(known_reward=False).planner.reward is None
    assert agent(Task(SPACES, terminated=known.never)).planner.reward is None


def test_an_evaluation_has_a_stream_of_its_own_for_every_episode() -> None:
    a = agent()
    policy, obs, first = a.policy(trained(a)), np.array([[0.5, 0.1]], np.float32), np.ones(1, bool)
    kinds = [("collect", 0), ("collect", 1), ("greedy", 0), ("greedy", 1), ("sample", 0)]
    found = [float(np.asarray(a.act(policy, a.begin(1), obs, first, at(episodes=n), mode)[0])[0, 0]) for mode, n in kinds]
    assert found[0] == found[1] and len(set(found)) == 4


def test_it_cannot_be_exported_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no policy network"):
        agent().write(None, None, "obs")  # type: ignore[arg-type]


def test_a_task_without_a_known_end_is_refused(tmp_path: Path) -> None:
    class Silent(Walk):
        beeline_terminated = None  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="beeline_terminated"):
        api.train("pets", Silent, out=tmp_path / "run", limit=20)
    assert not (tmp_path / "run").exists()


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="elites = 9 is more than population = 8"):
        PETSConfig(population=8, elites=9)
    with pytest.raises(ConfigError, match="lookahead is 3,200,000,000: so many steps are imagined at once"):
        PETSConfig(population=4_000_000, lookahead=40)
    with pytest.raises(ConfigError, match="model_decay has 2 numbers"):
        PETSConfig(hidden=(8, 8), model_decay=(0.1, 0.1))
    for name, reason in (("lam", "no Q"), ("gamma", "plans"), ("random_steps", "model_every")):
        with pytest.raises(ConfigError, match=reason):
            PETSConfig.make({name: 0.5})


def test_presets_are_those_of_the_tasks() -> None:
    def paper(env_id: str) -> Any:
        return agents.make_config("pets", env_id, "paper", {})

    assert paper("dmc/cartpole-swingup").hidden == (500,) * 3
    assert (paper("gym/HalfCheetah-v5").population, len(paper("gym/HalfCheetah-v5").model_decay)) == (500, 5)
    assert len(paper("gym/Reacher-v5").model_decay) == 5 and len(paper("gym/Pusher-v5").model_decay) == 4
    hopper = paper("mbpo/hopper")
    assert (hopper.lookahead, hopper.population, hopper.elites, hopper.model_every) == (30, 350, 35, 250)
    assert hopper.propagation == "ts1" and not hopper.known_reward
    for env_id in ("gym/Pendulum-v1", "mbpo/hopper", "gym/Reacher-v5", "gym/Pusher-v5", "gym/HalfCheetah-v5"):
        for preset in ("light", "paper"):
            assert agents.get("pets").preset(preset, env_id)["eval_episodes"] == 1
        assert paper(env_id).model_members * paper(env_id).particles == 20


def test_a_policy_file_plans_once_it_knows_the_task(tmp_path: Path) -> None:
    model = api.model("pets")("gym/Pendulum-v1", limit=10, eval_episodes=0, verbose=0, **TINY)
    model.learn(15)
    path = model.policy.save(tmp_path / "policy.npz")
    obs = np.array([0.5, 0.5, 0.1], np.float32)
    with pytest.raises(CheckpointError, match=r"policy.on\(env\)"):
        load_policy(path).predict(obs)
    loaded = load_policy(path).on("gym/Pendulum-v1")
    np.testing.assert_array_equal(loaded.predict(obs)[0], model.policy.predict(obs)[0])
    judged, _ = api.evaluate_run(path, episodes=1, env="gym/Pendulum-v1")
    assert len(judged.returns) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_members": 2**31}, "model_members = 2147483648 is out of range"),
        ({"model_members": 1000, "hidden": [100]}, "it describes networks of 2,[0-9,]+ numbers or more"),
        ({"population": 2**31}, "so many steps are imagined at once"),
        ({"iterations": 2**31}, "iterations = 2147483648 is out of range"),
    ],
)
def test_a_description_of_more_nets_than_the_file_has_makes_none(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = api.model("pets")("gym/Pendulum-v1", limit=10, eval_episodes=0, verbose=0, **TINY | {"hidden": (8, 8)}).policy
    meta = policy.meta | {"agent": policy.meta["agent"] | {"hidden": [8, 8]} | options}
    if "hidden" in options:
        meta["spaces"] = {"obs_dim": 20, "action_low": [-1.0], "action_high": [1.0]}
    path = save_arrays(tmp_path / "policy.npz", trees.to_arrays(policy.policy), meta)
    monkeypatch.setattr(GaussianEnsemble, "init", lambda *args: pytest.fail("networks were made"))
    with pytest.raises(CheckpointError, match=message):
        load_policy(path)


# --- learning ---------------------------------------------------------------------------------------------------------


def returns_of(run: api.Run) -> list[float]:
    return [row["train/return"] for row in run.metrics if row.get("train/return") is not None]


def test_learns_to_stay_near_the_middle(tmp_path: Path) -> None:
    """The small sister: five trials of twenty steps on a line; the first one is random."""

    class Told(Walk):
        def beeline_reward(self, obs: Any, action: Any, next_obs: Any) -> Any:
            return -(next_obs[..., 0] ** 2)

    options = TINY | {"hidden": (32,), "model_epochs": 60, "lookahead": 6, "population": 60, "elites": 8, "iterations": 3}
    run = api.train(
        "pets", Told, out=tmp_path / "run", steps=140, limit=20, log_every=20, eval_episodes=0, verbose=0, seed=1, **options
    )
    found = returns_of(run)
    assert np.mean(found[2:]) > -0.5 and np.mean(found[2:]) > found[0]


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.long
def test_learns_pendulum(tmp_path: Path) -> None:
    """Mean of trials 2 to 6, after a random one (MODEL_BASED.md, section 5)."""
    run = api.train("pets", "gym/Pendulum-v1", out=tmp_path / "run", steps=1_200, log_every=200, eval_episodes=0, verbose=0)
    found = returns_of(run)
    assert len(found) == 6 and np.mean(found[1:]) >= -250
