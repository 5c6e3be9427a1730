"""GRAC: searches with known answers, the range by hand, whole updates against a plain form, and BEE on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
import states
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import Network, adam, below, critics, values
from toys import Walk

import beeline as api
from beeline import agents, rng, trees
from beeline.agents.base import Judged, Task
from beeline.agents.improved import Grac
from beeline.cem import Cem
from beeline.collect import Transition
from beeline.errors import ConfigError
from beeline.memory import Clock
from beeline.run.plan import Plan
from beeline.run.policy import load_policy

ADAM = {"actor_lr": 2e-3, "critic_lr": 2e-3, "value_lr": 2e-3}


# --- the search ---------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_search_finds_the_top_of_a_quadratic_inside_its_bounds_or_the_bound(seed: int) -> None:
    """Five iterations of 400: to .05 where the top is inside, and to the bound where it is outside."""
    draw = np.random.default_rng(seed)
    top = draw.uniform(-1.4, 1.4, (8, 2)).astype(np.float32)
    found = SEARCH(jnp.asarray(draw.uniform(-1.0, 1.0, (8, 2)), jnp.float32), jnp.asarray(top), jax.random.key(seed))
    np.testing.assert_allclose(found.best, np.clip(top, -1.0, 1.0), atol=0.08)
    assert np.mean(np.abs(np.asarray(found.best) - np.clip(top, -1.0, 1.0)) < 0.05) > 0.8
    assert (found.score >= found.before).all() and np.abs(found.best).max() <= 1.0


_WIDE = Cem(population=400, parents=40, iterations=5)
SEARCH = jax.jit(
    lambda start, top, key: _WIDE.search(lambda x: -jnp.sum(jnp.square(x - top), -1), start, _WIDE.noise(key, start.shape))
)


def test_a_search_that_finds_nothing_better_stays_where_it_began() -> None:
    cem = Cem()
    start = jnp.full((6, 3), 0.2)
    score = lambda x: -jnp.sum(jnp.abs(x - 0.2), axis=-1)  # noqa: E731
    found = cem.search(score, start, cem.noise(jax.random.key(0), start.shape))
    np.testing.assert_array_equal(found.best, start)
    np.testing.assert_array_equal(found.score, found.before)


def test_the_weights_by_hand() -> None:
    """log(3/1), log(3/2) over their sum, for two parents."""
    total = np.log(3) + np.log(1.5)
    np.testing.assert_allclose(Cem(parents=2).weights, [np.log(3) / total, np.log(1.5) / total], rtol=1e-6)


def plain_search(score: Any, start: np.ndarray, noise: Any) -> tuple[np.ndarray, float, float]:
    """One state's search, candidate by candidate."""
    drawn, elite = noise
    mean, variance, damp = start.copy(), np.full(start.shape, 0.01), 0.1
    weights = np.log(6 / np.arange(1, 6))
    weights /= weights.sum()
    for turn in range(2):
        people = [mean + np.clip(np.sqrt(variance) * e, -0.5, 0.5) for e in drawn[turn]]
        people[-1] = elite
        people = [np.clip(each, -1.0, 1.0) for each in people]
        ranked = sorted(people, key=score, reverse=True)[:5]
        damp = 0.95 * damp + 0.05 * 0.05
        variance = sum(w * (z - mean) ** 2 for w, z in zip(weights, ranked)) / 5 + damp
        mean = sum(w * z for w, z in zip(weights, ranked))
        elite = ranked[0]
    best = elite if score(elite) >= score(start) else start
    return best, score(best), score(start)


# --- the range ----------------------------------------------------------------------------------------------------------


def steps(*each: tuple[int, float, str]) -> list[Transition]:
    none = np.zeros(5, np.float32)
    return [Transition(lane, none, none, reward, none, end == "terminated", end == "truncated", {}) for lane, reward, end in each]


def test_the_range_by_hand() -> None:
    agent = states.agent("grac", Task(states.SPACES, lanes=2), gamma=0.5, reward_scale=2.0, schedule_steps=100)
    state = agent.init(0)

    def notice(*each: tuple[int, float, str]) -> list[float]:
        nonlocal state
        state = agent.notice(state, {}, steps(*each), np.zeros((2, 5)), Clock(0, step=25))
        return state.host["bounds"].tolist()

    # Σ γ^t over T steps is 2 (1 − 2^−T), and rewards count twice
    assert notice((0, 0.5, ""), (1, 0.25, "")) == [0.25 * 2 * 2, 1.0 * 2 * 1]  # shortest 1000, longest 1, largest 1
    assert notice((0, 3.0, ""), (1, 0.25, "terminated")) == [0.25 * 2 * 1.5, 3.0 * 2 * 1.5]  # an episode of two
    assert notice((0, -2.0, "truncated"), (1, 0.0, "")) == [-2.0 * 2 * 1.75, 3.0 * 2 * 1.75]  # below zero: the longest counts
    assert state.host["progress"] == 0.25 and state.host["met"]["open"].tolist() == [0, 1]
    assert agent.notice(state, {}, (), np.zeros((2, 5)), Clock(0, step=25)).host["met"] is state.host["met"]
    for _ in range(2):  # the first transition of an episode, the one before having been cut without an end
        [begun] = steps((1, 0.0, ""))
        state = agent.notice(state, {}, [dataclasses.replace(begun, first=True)], np.zeros((2, 5)), Clock(0))
        assert state.host["met"]["open"].tolist() == [0, 1]


def test_small_rewards_and_short_episodes_are_forgotten_large_ones_are_not() -> None:
    agent = states.agent("grac", gamma=1.0)
    state = agent.init(0)
    met = state.host["met"] | {"count": np.int64(99_999), "episodes": np.int64(999)}
    met["rewards"] = np.full(100_000, 0.75, np.float32)
    met["rewards"][0] = -5.0
    met["lengths"] = np.full(1_000, 7.0)
    met["lengths"][0] = 1.0
    state = dataclasses.replace(state, host=state.host | {"met": met})
    state = agent.notice(state, {}, steps((0, 9.0, "terminated")), np.zeros((1, 5)), Clock(0))  # at the last places
    assert state.host["bounds"].tolist() == [-5.0, 9.0]
    state = agent.notice(state, {}, steps((0, 0.5, "terminated")), np.zeros((1, 5)), Clock(0))  # over the oldest
    assert state.host["bounds"].tolist() == [0.5, 9.0]  # shortest and longest are 1 by now
    assert met["rewards"][0] == -5.0  # the state before is as it was


# --- whole updates against a plain form -----------------------------------------------------------------------------------


def noise_of(agent: Grac, state: Any) -> Any:
    """The noise of the next update as the page names it."""
    root, number = jax.random.wrap_key_data(state.key), int(state.updates)

    def drawn(name: str) -> Any:
        normal, search = (jax.random.fold_in(rng.fold(root, each, number), 0) for each in (name, f"{name}/search"))
        return np.float64(jax.random.normal(normal, (32, 2))), [np.float64(x) for x in agent.search.noise(search, (32, 2))]

    return {"next": drawn("explore"), "here": drawn("policy")}


def policy_of(weights: plain.Arrays, obs: np.ndarray) -> tuple[Network, np.ndarray, np.ndarray]:
    network = Network(weights, obs, "mlp")
    mean, raw = np.split(network.output, 2, axis=-1)
    return network, np.tanh(mean), np.log1p(np.exp(raw)) + 1e-3


def searched(state: plain.Arrays, which: int, obs: np.ndarray, start: np.ndarray, noise: Any) -> list[Any]:
    def score_at(row: int) -> Any:
        one = lambda a: critics(state, "live", obs[row : row + 1], a[None], "mlp")[which].output[0, 0]  # noqa: E731
        return plain_search(one, start[row], (noise[0][:, :, row], noise[1][row]))

    return [score_at(row) for row in range(len(obs))]


def plain_update(before: plain.Arrays, batch: Any, noise: Any, config: Any, host: Any, bee: bool) -> tuple[plain.Arrays, Any]:
    """GRAC in NumPy and float64, in the order of the page."""
    state = {name: np.asarray(array, np.float64) for name, array in before.items()}
    obs, action, next_obs, reward, discount = (
        np.asarray(x, np.float64) for x in (batch.obs, batch.action, batch.next_obs, batch.reward, batch.discount)
    )
    low, high = host["bounds"]
    size = len(reward)

    # y, of the better of two actions
    epsilon, search = noise["next"]
    _, mean, std = policy_of(below(state, "policy/live/"), next_obs)
    first = np.clip(mean + std * epsilon, -1, 1)
    second = np.stack([each[0] for each in searched(state, 1, next_obs, first, search)])
    q0, q1 = (np.clip(values(critics(state, "live", next_obs, a, "mlp")), low, high) for a in (first, second))
    better = q1.min(0) >= q0.min(0)
    chosen, held = np.where(better[:, None], second, first), np.where(better, q1, q0)
    explore = y = reward + discount * np.maximum(q0.min(0), q1.min(0))
    live = critics(state, "live", obs, action, "mlp")
    here = np.clip(values(live), low, high).min(0)
    if bee:
        exploit = reward + discount * Network(below(state, "value/live/"), next_obs, "mlp").output[:, 0]
        lam = state["blend/lam"]
        y = lam * exploit + (1 - lam) * explore
    clamped = float(np.mean((q0 == low) | (q0 == high)))

    def step(both: bool) -> float:
        """A step of the critics; the loss before it."""
        loss, gradients = 0.0, []
        for i, network in enumerate(critics(state, "live", obs, action, "mlp")):
            error = network.output[:, 0] - y
            g = network.gradients((2 * error / size)[:, None])[0]
            loss += np.mean(error**2)
            if both:
                other = critics(state, "live", next_obs, chosen, "mlp")[i]
                moved = other.output[:, 0] - held[i]
                more = other.gradients((2 * moved / size)[:, None])[0]
                g = {name: g[name] + more[name] for name in g}
                loss += np.mean(moved**2)
            gradients.append(g)
        adam(state, "critic", {name: np.stack([g[name] for g in gradients]) for name in gradients[0]}, config.critic_lr, None)
        return loss

    td = step(False)
    start = step(True)
    bound = config.repeat_until + host["progress"] * (config.repeat_until_end - config.repeat_until)
    repeats = 0
    while True:
        repeats += 1
        if step(True) < bound * start or repeats >= config.repeat_most:
            break

    if bee:
        value = Network(below(state, "value/live/"), obs, "mlp")
        u = here - value.output[:, 0]
        weight = np.where(u >= 0, config.expectile, 1 - config.expectile)
        adam(state, "value", value.gradients((-2 * weight * u / size)[:, None])[0], config.value_lr, None)

    # the policy under the new critics
    epsilon, search = noise["here"]
    network, mean, std = policy_of(below(state, "policy/live/"), obs)
    free = mean + std * epsilon
    sampled = np.clip(free, -1, 1)
    found = searched(state, 0, obs, sampled, search)
    target, gain = np.stack([each[0] for each in found]), np.array([each[1] - each[2] for each in found])
    advantage = np.clip(gain, 0.0, config.advantage_clip)
    judge = critics(state, "live", obs, sampled, "mlp")[0]
    by_action = judge.gradients(np.full((size, 1), -1 / size))[1][:, 5:] * (np.abs(free) < 1)
    z = (target - mean) / std
    weight = -advantage[:, None] / 2 / size
    by_mean = by_action + weight * z / std
    by_std = by_action * epsilon + weight * (z**2 - 1) / std
    raw = np.split(network.output, 2, axis=-1)[1]
    by_output = np.concatenate([by_mean * (1 - mean**2), by_std / (1 + np.exp(-raw))], axis=-1)
    adam(state, "policy", network.gradients(by_output)[0], config.actor_lr / (1 + td), None)
    state["updates"] = state["updates"] + 1
    numbers = {"repeats": repeats, "clamped": clamped, "better": better.mean(), "advantage": advantage.mean(), "td": td}
    return state, numbers


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grac-capped": ("grac", {"repeat_until": 0.05, "repeat_until_end": 0.05, "repeat_most": 4}),
    "grac-until": ("grac", {"repeat_until": 0.9, "repeat_until_end": 0.98, "repeat_most": 80}),
    "bee-grac": (
        "bee-grac", {"repeat_until": 0.95, "repeat_until_end": 0.97, "repeat_most": 80, "lam": 0.3, "advantage_clip": 0.05}
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification_in_every_number(case: str) -> None:
    algo, options = CASES[case]
    agent = states.agent(algo, **ADAM, **options)
    host = agent.init(5).host | {"bounds": np.array([-0.2, 0.25], np.float32), "progress": np.float32(0.5)}
    state = dataclasses.replace(states.elsewhere(agent.init(5), 3), host=host)
    seen = []
    for number in range(3):
        batch = states.batch(seed=number)
        expected, numbers = plain_update(
            states.read(state), states.one(batch), noise_of(agent, state), agent.config, host, algo == "bee-grac"
        )
        state, metrics = states.learn(agent, state, batch)
        states.assert_same(states.read(state), expected, f"update {number + 1}")
        assert float(metrics["critic/steps"]) == numbers["repeats"] + 2
        assert float(metrics["policy/advantage"]) == pytest.approx(numbers["advantage"], rel=1e-3)
        assert float(metrics["rate"]) == pytest.approx(2e-3 / (1 + numbers["td"]), rel=1e-4)
        seen.append(numbers)
    assert all(0.05 < each["clamped"] < 0.95 and 0.0 < each["better"] <= 1.0 for each in seen)
    counts = {each["repeats"] for each in seen}
    assert counts == {4} if case == "grac-capped" else max(counts) < agent.config.repeat_most


def test_the_metrics_are_those_of_the_page() -> None:
    for algo in ("grac", "bee-grac"):
        agent = states.agent(algo)
        _, metrics = states.learn(agent, agent.init(0), states.batch())
        assert set(metrics) == set(agent.metric_names)


def test_no_target_networks_are_kept() -> None:
    state = states.agent("bee-grac").init(0)
    assert state.critic.target is None and state.actor.target is None and state.backup["value"].target is None


# --- BEE on it ------------------------------------------------------------------------------------------------------------


def test_with_all_of_lambda_v_is_the_target() -> None:
    full = states.agent("bee-grac", lam=1.0)
    state, batch = full.init(1), states.batch(seed=9)
    v = np.asarray(full.v(state, batch.next_obs[0]))
    wanted = np.mean(batch.reward[0] + batch.discount[0] * v)
    _, metrics = states.learn(full, state, batch)
    assert float(metrics["q/target"]) == pytest.approx(wanted, rel=1e-4, abs=1e-6) and metrics["lambda"] == 1.0


def test_instruments_can_read_it() -> None:
    agent = states.agent("bee-grac", blend="max")
    assert isinstance(agent, Judged) and not agent.soft and agent.has_value
    state, batch = agent.init(0), states.one(states.batch())
    lam = np.asarray(agent.lam(state, batch, jax.random.key(0)))
    assert lam.shape == (32,) and set(lam.tolist()) <= {0.0, 1.0}
    assert agent.q(state, batch.obs, batch.action).shape == (2, 32)
    action, bonus = agent.sample(agent.acting(state), jax.random.key(0), batch.obs)
    assert action.shape == (32, 2) and not np.any(bonus)


# --- acting ---------------------------------------------------------------------------------------------------------------


def test_collecting_searches_less_and_less_and_evaluation_never() -> None:
    agent = states.agent("grac", random_steps=10, schedule_steps=1_000)
    state = states.elsewhere(agent.init(0), 1)
    policy, obs = agent.policy(state), np.random.default_rng(0).normal(size=(2_000, 5)).astype(np.float32)
    first = np.zeros(2_000, bool)

    def act(step: int, mode: str) -> np.ndarray:
        return np.asarray(agent.act(policy, (), obs, first, Clock(0, step=step, decisions=step), mode)[0])

    def worst(action: np.ndarray) -> np.ndarray:
        return np.asarray(agent.q(state, obs, action)).min(0)

    uniform = rng.stream(0, "random actions", 5).uniform(-1, 1, (2_000, 2)).astype(np.float32)
    np.testing.assert_array_equal(act(5, "collect"), uniform)
    shares = []
    for step in (11, 50, 500):
        own, taken = act(step, "sample"), act(step, "collect")
        moved = (own != taken).any(axis=1)
        shares.append(moved.mean())
        assert (worst(taken)[moved] >= worst(own)[moved] - 1e-6).all()
    always = shares[0] / (1.0 - 0.11)  # what of the searches finds something: chances are .89, .5 and .05
    np.testing.assert_allclose(np.array(shares) / always, [0.89, 0.5, 0.05], atol=0.05)
    mean = np.tanh(np.split(np.asarray(agent.actor.learnable.net.apply(state.actor.live, obs)), 2, axis=-1)[0])
    np.testing.assert_allclose(act(500, "greedy"), mean, rtol=1e-5, atol=1e-6)


def test_a_policy_file_holds_the_critics_and_a_model_can_begin_from_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": (8, 8), "batch_size": 8, "random_steps": 20, "learn_after": 20, "eval_episodes": 0}
    model = api.GRAC(Walk, **options, limit=20, verbose=0).learn(60)
    policy = load_policy(model.policy.save(tmp_path / "policy.npz"))
    obs = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    assert policy.predict(obs)[0].tobytes() == model.predict(obs)[0].tobytes()
    other = api.GRAC(Walk, **options, limit=20, verbose=0, init_from=tmp_path / "policy.npz")
    for name in ("actor", "critic"):
        ours, theirs = (trees.to_arrays(getattr(each.trainer.state, name).live) for each in (model, other))
        assert all(ours[leaf].tobytes() == theirs[leaf].tobytes() for leaf in ours)


# --- what does not apply ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tau": 0.01}, "the option 'tau' does not apply: grac has no target networks"),
        ({"target_interval": 2}, "grac has no target networks"),
        ({"double_q": "off"}, "grac searches under one of two critics"),
        ({"parents": 30}, "parents = 30 is more than population = 25"),
        ({"blend": "ada"}, "blend = 'ada' compares target critics with live ones"),
        ({"repeat_until": 0.0}, r"repeat_until = 0\.0 is out of range"),
    ],
)
def test_options_that_do_not_apply_are_refused_with_the_reason(options: dict[str, Any], why: str) -> None:
    for algo in ("grac", "bee-grac"):
        with pytest.raises(ConfigError, match=why):
            Plan.make(algo, "toys:Walk-v0", None, options)
    assert not {"tau", "target_interval", "double_q"} & set(agents.get("grac").config.names())


def test_the_schedule_is_fixed_when_the_run_begins() -> None:
    assert Plan.make("grac", "toys:Walk-v0", None, {"steps": 7_000}).agent.schedule_steps == 7_000
    agent = states.agent("grac", schedule_steps=50)
    assert [agent.progress(step) for step in (0, 25, 50, 80)] == [0.0, 0.5, 1.0, 1.0]
    assert states.agent("grac").progress(10**6) == 0.0
