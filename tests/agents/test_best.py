"""What the preset `best` is made of: the scale of rewards, decay of weights, recency, double_q, γ by length, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from toys import Walk
from whole_runs import small

import beeline
from beeline import agents, operators
from beeline.agents.base import Spaces, Task
from beeline.errors import ConfigError
from beeline.memory import Recency, Replay
from beeline.networks import adam, init_statistics, normalise, observe
from beeline.networks.rewards import divisor, init_scale, met

SPACES = Spaces(3, (-1.0,), (1.0,))


@dataclasses.dataclass
class Step:
    lane: int
    reward: float
    terminated: bool = False
    truncated: bool = False
    first: bool = False


def test_the_scale_of_rewards_by_hand() -> None:
    scale = init_scale(2)
    for reward in (1.0, 2.0, 3.0):
        scale = met(scale, 0.9, [Step(0, reward)])
    assert scale["running"][0] == pytest.approx(5.61) and scale["running"][1] == 0.0
    assert float(scale["returns"]["variance"][0]) == pytest.approx(3.57847, abs=1e-5)
    assert float(divisor(scale, 5.0)) == pytest.approx(1.89168, abs=1e-5)
    assert float(divisor(scale, 2.0)) == pytest.approx(5.61 / 2)  # the largest return decides
    scale = met(scale, 0.9, [Step(0, 1.0, truncated=True), Step(1, -9.0)])
    assert scale["running"].tolist() == [0.0, -9.0] and scale["largest"] == 9.0
    assert met(scale, 0.9, [Step(0, 4.0)])["running"][0] == 4.0
    assert met(scale, 0.9, []) is scale
    cut = met(scale, 0.9, [Step(1, 2.0, first=True)])  # lane 1 failed, or could not be brought back: its end was never told
    assert cut["running"].tolist() == [0.0, 2.0]


def test_observations_by_hand() -> None:
    statistics = init_statistics(1)
    for each in (1.0, 2.0, 3.0, 6.0):
        statistics = observe(statistics, np.array([[each]]))
    assert statistics["mean"] == 3.0 and statistics["variance"] == 3.5
    assert float(normalise(statistics, jnp.array([6.0]))[0]) == pytest.approx(1.60357, abs=1e-5)


def test_rewards_are_divided_by_the_scale_of_now() -> None:
    model = beeline.SAC(Walk, **small("sac", normalize_reward=True, reward_scale=3.0, eval_episodes=0)).learn(60)
    agent, state = model.trainer.agent, model.trainer.state
    replay = model.trainer.replay
    batch = replay.sample(0, 0, 1, 16)
    by = float(divisor(state.host["scale"], 5.0))
    assert by != 1.0
    np.testing.assert_allclose(agent.scaled(state.host, batch).reward, 3.0 * batch.reward / by, rtol=1e-6)
    assert int(state.host["scale"]["returns"]["count"]) == 60


def test_decay_of_weights_is_decoupled() -> None:
    params, gradient = {"w": jnp.array([2.0, -1.0]), "b": jnp.array([0.5])}, {"w": jnp.array([0.3, 0.1]), "b": jnp.array([-0.2])}
    plain, decayed = adam(0.1), adam(0.1, decay=0.01)
    one, _ = plain.update(gradient, plain.init(params), params)
    two, _ = decayed.update(gradient, decayed.init(params), params)
    for name in params:
        np.testing.assert_allclose(two[name], one[name] - 0.1 * 0.01 * params[name], rtol=1e-5)
    for part in ("actor", "critic"):
        for algo in ("bac", "td3", "iql"):
            agent = agents.get(algo).build(agents.make_config(algo, "", None, {"hidden": (8, 8), "weight_decay": 0.01}), SPACES)
            learnable = getattr(agent, part).learnable
            zero = jax.tree.map(jnp.zeros_like, params)
            moved, _ = learnable.optimiser.update(zero, learnable.optimiser.init(params), params)
            assert all(float(jnp.abs(leaf).max()) > 0.0 for leaf in jax.tree.leaves(moved)), (algo, part)
    diverse: Any = agents.get("dac").build(agents.make_config("dac", "", None, {"hidden": (8, 8), "weight_decay": 0.01}), SPACES)
    for learnable in (diverse.backup.mixture.ratio, diverse.backup.mixture.share):
        moved, _ = learnable.optimiser.update(zero, learnable.optimiser.init(params), params)
        assert all(float(jnp.abs(leaf).max()) > 0.0 for leaf in jax.tree.leaves(moved))
    iql: Any = agents.get("iql").build(agents.make_config("iql", "", None, {"hidden": (8, 8), "weight_decay": 0.01}), SPACES)
    policy = jax.tree.map(lambda leaf: jnp.ones_like(leaf), iql.init(0).actor.live)
    optimiser = iql.actor.learnable.optimiser
    moved, _ = optimiser.update(jax.tree.map(jnp.zeros_like, policy), optimiser.init(policy), policy)
    assert not moved.pop("log_std").any()  # no weight: decay would draw σ to 1
    assert all((leaf < 0.0).all() for leaf in jax.tree.leaves(moved))
    still, _ = plain.update(jax.tree.map(jnp.zeros_like, params), plain.init(params), params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(still))


# --- recency ----------------------------------------------------------------------------------------------------------


def ring(rows: tuple[int, ...], capacity: int, episode: int = 10**9) -> Replay:
    """Lanes with so many transitions; an observation is the number of its step."""
    replay = Replay(capacity, 1, 1, len(rows))
    for lane, count in enumerate(rows):
        replay.start(lane, [0.0])
        for step in range(count):
            ended = (step + 1) % episode == 0
            replay.add(lane, [0.0], float(step), [step + 1.0], False, ended)
            if ended:
                replay.start(lane, [step + 1.0])
    return replay


def test_ages_are_drawn_by_their_weights() -> None:
    """q = .9999 and floor .1, as the specification has it, on 30,000 transitions: 10⁶ draws in 60 bins."""
    replay = ring((30_000,), 60_000)
    drawn = replay.sample(0, 0, 100, 10_000, recency=Recency(1e-4, 0.1)).obs.ravel()
    ages = 29_999 - drawn.astype(np.int64)
    weight = np.maximum(0.9999 ** np.arange(30_000), 0.1)
    observed = np.histogram(ages, 60, (0, 30_000))[0]
    expected = weight.reshape(60, -1).sum(axis=1) / weight.sum() * ages.size
    assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.parametrize("rows", [(40,), (30, 17, 80)])
def test_small_rings_and_lanes_row_by_row(rows: tuple[int, ...]) -> None:
    """A fast decay, so that each age counts for itself; the last lane's oldest rows were overwritten."""
    replay, recency = ring(rows, 50 * len(rows)), Recency(0.1, 0.25)
    batch = replay.sample(1, 0, 20, 10_000, recency=recency)
    weights = []
    for lane, count in enumerate(rows):
        held = count - replay.oldest(lane)
        weights.append(np.maximum(0.9 ** np.arange(held), 0.25))
    index = replay._indices(1, 0, 20, 10_000, "replay", recency).ravel()
    observed = [
        np.bincount(index, minlength=replay.capacity)[lane * 50 + (count - 1 - np.arange(len(w))) % 50]
        for lane, (count, w) in enumerate(zip(rows, weights))
    ]
    expected = np.concatenate(weights) / np.concatenate(weights).sum() * index.size
    assert stats.chisquare(np.concatenate(observed), expected).pvalue > 1e-4
    assert batch.reward.shape == (20, 10_000)


def test_without_decay_ages_count_alike_and_a_young_ring_has_no_floor() -> None:
    replay = ring((200,), 500)
    counts = np.bincount(replay.sample(0, 0, 10, 10_000, recency=Recency(1e-9, 0.1)).obs.ravel().astype(int), minlength=200)
    assert stats.chisquare(counts).pvalue > 1e-4
    recency = Recency(0.01, 0.05)  # N = 299 > 200: the floor would hold the oldest up
    found = replay.sample(0, 0, 10, 10_000, recency=recency).obs.ravel().astype(int)
    weight = 0.99 ** np.arange(200)[::-1]
    assert stats.chisquare(np.bincount(found, minlength=200), weight / weight.sum() * found.size).pvalue > 1e-4


def test_rows_that_start_no_transition_are_never_drawn() -> None:
    replay = ring((95,), 300, episode=10)
    index = replay._indices(0, 0, 10, 1_000, "replay", Recency(0.05, 0.1))
    assert replay._starts(index).all()


def test_the_option_reaches_the_draw() -> None:
    make = lambda **options: agents.get("sac").build(agents.make_config("sac", "", None, {"hidden": (8, 8), **options}), SPACES)  # noqa: E731
    assert make().feed.recency is None
    assert make(replay_decay=1e-4).feed.recency == Recency(1e-4, 0.1)


# --- the target, critics, γ, what is refused ---------------------------------------------------------------------------


def test_bees_target_by_hand() -> None:
    soft = operators.entropy_value(jnp.float32(10.0), jnp.float32(-4.0), jnp.float32(0.01))
    for discount, expected in ((0.99, 11.2098), (0.0, 0.3)):
        reward, m = jnp.float32(0.3), jnp.float32(discount)
        targets = [operators.bellman_target(reward, m, value) for value in (jnp.float32(12.0), soft)]
        assert float(0.5 * targets[0] + 0.5 * targets[1]) == pytest.approx(expected, abs=1e-5)


def test_one_critic_where_episodes_cannot_end() -> None:
    for ends, members in ((False, 1), (True, 2)):
        agent = agents.get("bac").build(agents.make_config("bac", "", "best", {}), dataclasses.replace(Task(SPACES), ends=ends))
        assert agent.critic.shape == (members,)


@pytest.mark.parametrize(
    ("algo", "options", "why"),
    [
        ("sac", {"network": "simba", "hidden": (16, 8)}, "hidden = 16,8: the blocks of simba have one width"),
        ("sac", {"network": "simba", "policy_hidden": (16, 8)}, "policy_hidden = 16,8"),
        ("sac", {"atoms": 51}, "atoms = 51 belongs to value_head = two_hot or hl_gauss, not to scalar"),
        ("sac", {"support": (-1.0, 1.0)}, "support = -1.0,1.0 belongs to value_head"),
        ("sac", {"replay_floor": 0.2}, "replay_floor = 0.2 is read with replay_decay"),
        ("sac", {"value_head": "two_hot", "support": (1.0, -1.0)}, "two numbers, the smaller first"),
        ("sac", {"value_head": "two_hot", "support": (1.0,)}, "two numbers"),
        ("rrs", {"value_head": "two_hot"}, "does not apply: each shift moves the values"),
        ("xtd3", {"value_head": "two_hot"}, "a loss of their own"),
        ("bee-grac", {"value_head": "hl_gauss"}, "grac bounds its critics"),
        ("grac", {"normalize_reward": True}, "grac bounds its critics by the rewards"),
        ("ppo", {"replay_decay": 1e-4}, "newest rollout alone"),
        ("trpo", {"value_head": "two_hot"}, "has no Q"),
        ("ppo", {"weight_decay": 0.1}, "plain Adam"),
    ],
)
def test_what_does_not_apply_is_refused_with_the_reason(algo: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        agents.make_config(algo, "", None, options)


# --- the schedule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["SAC", "TD3"])
def test_not_one_update_in_the_warm_up_and_then_four_per_decision(algo: str) -> None:
    tiny = {"hidden": (8, 8), "policy_hidden": (8,), "batch_size": 8, "random_steps": 30, "learn_after": 30, "eval_episodes": 0}
    model = getattr(beeline, algo)(Walk, **tiny, verbose=0).learn(30)
    before = jax.tree.map(np.array, model.trainer.state.actor.live)
    assert model.trainer.progress.updates == int(model.trainer.state.updates) == 0
    model.learn(3)
    counts = {name: int(getattr(model.trainer.state, name).opt[0].count) for name in ("actor", "critic")}
    assert model.trainer.progress.updates == 12 and counts == {"actor": 6, "critic": 12}
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(model.trainer.state.actor.live)))


@pytest.mark.parametrize(
    ("limit", "repeat", "gamma"), [(1000, 1, 0.995), (1000, 2, 0.99), (100, 1, 0.95), (50, 1, 0.95), (None, 1, 0.99)]
)
def test_gamma_by_the_length_of_an_episode(limit: int | None, repeat: int, gamma: float) -> None:
    task = dataclasses.replace(Task(SPACES), limit=limit, repeat=repeat)
    agent = agents.get("sac").build(agents.make_config("sac", "", None, {"hidden": (8, 8), "gamma": "auto"}), task)
    assert agent.gamma == pytest.approx(gamma)
