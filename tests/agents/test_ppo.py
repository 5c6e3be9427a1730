"""PPO: its estimates by hand, whole updates against a plain form, and what a rollout must be made of."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import LIMIT, Walk
from whole_runs import Zygote, flags, same_run

import beeline as api  # `beeline` is the fixture that runs the command
from beeline import agents, rng, trees
from beeline.agents.base import Spaces, Task
from beeline.agents.on_policy import PPO, State, advantages
from beeline.agents.ppo import PPOConfig
from beeline.cli import main
from beeline.collect import Transition
from beeline.errors import ConfigError
from beeline.memory import Clock, Replay
from beeline.run.folder import RunFolder
from beeline.run.plan import Plan
from beeline.run.policy import load_policy

WALK = "toys:Walk-v0"
SPACES = Spaces(3, (-2.0, -0.4), (2.0, 0.4))
SMALL: dict[str, Any] = {
    "hidden": (8, 8), "rollout": 48, "batch_size": 12, "epochs": 2, "steps": 400, "eval_every": 130, "eval_episodes": 2,
    "log_every": 7, "checkpoint_every": 60, "replay_capacity": 1_000, "tensorboard": False,
}  # fmt: skip


def made(lanes: int = 2, **options: Any) -> PPO:
    config = PPOConfig(**{"hidden": (8, 6), "rollout": 24, "batch_size": 6, **options})
    return agents.get("ppo").build(config, Task(SPACES, lanes=lanes))


class Play:
    """An agent on random observations with ends of every kind: what a loop does, without environments."""

    def __init__(self, agent: PPO, seed: int = 0) -> None:
        self.agent, self.random, lanes = agent, np.random.default_rng(seed), agent.task.lanes
        spaces, spec = agent.task.spaces, agent.memories["replay"]
        self.replay = Replay(4_000, spaces.obs_dim, spaces.action_dim, lanes, spec.columns)
        self.state, self.clock, self.updates = agent.init(seed), Clock(seed), 0
        self.obs = self._observations(lanes)
        for lane in range(lanes):
            self.replay.start(lane, self.obs[lane])

    def _observations(self, count: int) -> np.ndarray:
        return (3.0 + 2.0 * self.random.standard_normal((count, 3))).astype(np.float32)

    def decide(self) -> list[dict[str, Any]]:
        """One decision of every lane; what happened, lane by lane."""
        policy, first = self.agent.policy(self.state), np.zeros(len(self.obs), bool)
        actions, extras, _ = self.agent.act(policy, (), self.obs, first, self.clock, "collect")
        steps, told = [], []
        for lane, (action, after) in enumerate(zip(np.asarray(actions), self._observations(len(self.obs)))):
            end = self.random.random()
            own = {name: np.asarray(each)[lane] for name, each in extras.items()}
            reward, ends = float(self.random.normal(-1.0, 5.0)), {"terminated": end < 0.1, "truncated": 0.1 <= end < 0.25}
            self.replay.add(lane, action, reward, after, **ends, extras=own)
            steps.append(Transition(lane, self.obs[lane].copy(), action, reward, after, **ends, info={}))
            told.append({"obs": self.obs[lane].copy(), "reward": reward, "next_obs": after, **ends, **own})
            self.obs[lane] = after
            if any(ends.values()):
                self.obs[lane] = self._observations(1)[0]
                self.replay.start(lane, self.obs[lane])
        decisions = self.clock.decisions + 1
        self.clock = self.clock._replace(decisions=decisions, step=decisions * self.agent.task.steps_per_decision)
        self.state = self.agent.notice(self.state, {"replay": self.replay}, steps, self.obs, self.clock)
        return told

    def rollout(self) -> list[list[dict[str, Any]]]:
        """As many decisions as a rollout has, `[time][lane]`."""
        return [self.decide() for _ in range(self.agent.decisions)]

    def draw(self) -> Any:
        return self.agent.draw(self.state, {"replay": self.replay}, self.clock)

    def learn(self) -> dict[str, float]:
        """An update on what was drawn."""
        data = self.draw()
        self.state, metrics = self.agent.update(self.state, data)
        self.clock = self.clock._replace(updates=self.clock.updates + data.updates)
        return {name: float(value) for name, value in metrics.items()}


# --- estimates by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "bootstrap", "wanted"),
    [
        # γ = λ = .5. δ = (1 + .5·20 − 10, 2 + .5·30 − 20, 3 + .5·m·7 − 30, 4 + .5·50 − 40) = (1, −3, −27 or −23.5, −11)
        ("terminated", True, [-1.4375, -9.75, -27.0, -11.0]),
        ("terminated", False, [-1.4375, -9.75, -27.0, -11.0]),
        ("truncated", True, [-1.21875, -8.875, -23.5, -11.0]),
        ("truncated", False, [-1.4375, -9.75, -27.0, -11.0]),
    ],
)
def test_advantages_by_hand(ending: str, bootstrap: bool, wanted: list[float]) -> None:
    """An episode that ends at the third transition; the fourth belongs to the next one, which goes on after the rollout."""
    agent = made(lanes=1, rollout=4, batch_size=4, gamma=0.5, gae=0.5, bootstrap_limits=bootstrap, normalize_reward=False)
    replay = Replay(20, 3, 2, 1, agent.memories["replay"].columns)
    for reward, value in ((1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (4.0, 40.0)):
        if not replay.is_open(0):
            replay.start(0, [0.0, 0.0, 0.0])
        end = {"terminated": reward == 3.0 and ending == "terminated", "truncated": reward == 3.0 and ending == "truncated"}
        replay.add(0, [0.0, 0.0], reward, [value, 1.0, 1.0], **end, extras={"log_prob": 0.0, "value": value, "unclipped": 0.0})
    state = agent.init(0)
    state = dataclasses.replace(state, host=state.host | {"since": np.array([4])})
    train = agent.draw(state, {"replay": replay}, Clock(0, step=4)).train
    next_value = np.array([[20.0, 30.0, 7.0, 50.0]], np.float32)
    found = advantages(train.reward[0], train.discount[0], train.extras["goes_on"][0], train.extras["value"][0], next_value, 0.25)
    np.testing.assert_array_equal(found, [wanted])
    assert train.next_obs[0, 0, 2, 0] == 30.0  # what the last action led to, not the next episode's first observation


def test_the_whole_update_uses_both_rules() -> None:
    """V's target of a truncated step differs by γ V(s') between the two, and nothing else does."""
    targets = {}
    for rule in (True, False):
        play = Play(made(bootstrap_limits=rule))
        told = play.rollout()
        train = play.draw().train
        targets[rule] = train.discount[0]
    cut = np.array([[step[lane]["truncated"] for step in told] for lane in range(2)])
    assert cut.any()
    np.testing.assert_array_equal(targets[True] != targets[False], cut)
    assert (targets[True][cut] == np.float32(0.99)).all() and (targets[False][cut] == 0.0).all()


def test_an_episode_that_was_cut_is_truncated() -> None:
    """Its environment failed, say: what follows in the ring is another episode, and nothing flows back from it."""
    replay = Replay(20, 1, 1)
    replay.start(0, [1.0])
    replay.add(0, [0.0], 1.0, [2.0], False, False)
    replay.start(0, [5.0])  # cuts the first one
    replay.add(0, [0.0], 1.0, [6.0], True, False)
    replay.start(0, [7.0])
    replay.add(0, [0.0], 1.0, [8.0], False, True)
    replay.start(0, [9.0])
    replay.add(0, [0.0], 1.0, [10.0], False, False)  # the newest, still open
    recent = replay.recent(4)
    assert recent.extras["terminated"].tolist() == [[False, True, False, False]]
    assert recent.extras["truncated"].tolist() == [[True, False, True, False]]
    assert recent.next_obs.ravel().tolist() == [2.0, 6.0, 8.0, 10.0]
    replay.cut(0)
    assert replay.recent(1).extras["truncated"].tolist() == [[True]]


def steps(*each: tuple[int, float, str]) -> list[Transition]:
    none = np.zeros(3, np.float32)
    return [Transition(lane, none, none, reward, none, end == "terminated", end == "truncated", {}) for lane, reward, end in each]


def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return() -> None:
    agent = made(gamma=0.5)
    state = agent.init(0)
    decisions = [
        steps((0, 1.0, ""), (1, 0.0, "")),
        steps((0, 2.0, "truncated"), (1, -2.0, "")),
        steps((0, 4.0, ""), (1, 6.0, "terminated")),
    ]
    for decision in decisions:
        state = agent.notice(state, {}, decision, np.zeros((2, 3)), Clock(0))
    # G of lane 0: 1, 2.5, and after the reset 4; of lane 1: 0, −2, 5. Mean 1.75, mean square 52.25 / 6.
    variance = 52.25 / 6 - 1.75**2
    np.testing.assert_allclose(state.host["returns"]["variance"], [variance], rtol=1e-12)
    assert state.host["returns"]["mean"].dtype == np.float64
    assert state.host["running"].tolist() == [4.0, 0.0] and state.host["since"].tolist() == [3, 3]
    raw = np.array([1.0, -3.0, 100.0, -100.0], np.float32)
    wanted = [1 / variance**0.5, -3 / variance**0.5, 10.0, -10.0]
    np.testing.assert_allclose(agent.scaled(state.host["returns"], raw), wanted, rtol=1e-6)
    assert made(normalize_reward=False).scaled(None, raw) is raw
    assert agent.notice(state, {}, (), np.zeros((2, 3)), Clock(0)) is state
    [cut] = steps((0, 7.0, ""))  # after an episode that was cut without an end
    state = agent.notice(state, {}, [dataclasses.replace(cut, first=True)], np.zeros((2, 3)), Clock(0))
    assert state.host["running"].tolist() == [7.0, 0.0]


def test_what_is_drawn_is_scaled_by_the_statistics_that_the_rollout_ends_with() -> None:
    play = Play(made())
    told = play.rollout()
    raw = np.array([[step[lane]["reward"] for step in told] for lane in range(2)])
    running, met = np.zeros(2), []
    for step in told:
        running = 0.99 * running + [each["reward"] for each in step]
        met += running.tolist()
        running *= [not (each["terminated"] or each["truncated"]) for each in step]
    np.testing.assert_allclose(play.draw().train.reward[0], np.clip(raw / np.sqrt(np.var(met) + 1e-8), -10, 10), rtol=1e-5)


def test_the_rate_falls_linearly_over_its_own_steps() -> None:
    agent = made(schedule_steps=1_000)
    assert [agent.rate(step) for step in (0, 250, 1_000, 5_000)] == [1.0, 0.75, 0.0, 0.0]
    assert made(schedule_steps=1_000, anneal=False).rate(900) == 1.0
    assert made().rate(10**9) == 1.0  # a schedule without a length: an agent that no plan has made
    play = Play(made(schedule_steps=240))
    for wanted in (1.0, 0.9, 0.8):  # a rollout of 24 steps begins at 0, 24, 48
        play.rollout()
        assert play.draw().train.extras["rate"][0] == np.float32(wanted)
        assert play.learn()["rate"] == pytest.approx(3e-4 * wanted)


def test_the_schedule_is_fixed_when_the_run_begins(beeline: Zygote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    beeline.run("train", "ppo", WALK, *flags(SMALL | {"steps": 100, "eval_episodes": 0}), "--out", run)
    assert RunFolder.open(run).plan().agent.schedule_steps == 100
    beeline.run("resume", run, "--steps", "200")
    plan = RunFolder.open(run).plan()
    assert (plan.agent.schedule_steps, plan.train.steps) == (100, 200)
    assert Plan.make("ppo", WALK, None, {"schedule_steps": 7}).agent.schedule_steps == 7
    assert not hasattr(Plan.make("sac", WALK, None, {}).agent, "schedule_steps")


# --- acting -----------------------------------------------------------------------------------------------------------


def density(mean: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.sum(-0.5 * ((action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi), axis=-1)


def test_actions_are_clipped_and_their_density_is_that_of_the_unclipped_ones() -> None:
    agent = made(log_std=0.5, normalize_obs=False)
    play = Play(agent)
    policy, obs = agent.policy(play.state), play.obs
    action, extras, _ = agent.act(policy, (), obs, np.ones(2, bool), Clock(3, decisions=7), "collect")
    unclipped, weights = np.asarray(extras["unclipped"]), numpy(policy["actor"])
    np.testing.assert_array_equal(action, np.clip(unclipped, -1.0, 1.0))
    mean = forward(weights["mean"], obs)[-1]
    noise = jax.random.normal(rng.fold(jax.random.wrap_key_data(rng.root(3)), "act", 7), (2, 2))
    np.testing.assert_allclose(unclipped, mean + np.exp(0.5) * noise, rtol=1e-5)
    np.testing.assert_allclose(extras["log_prob"], density(mean, weights["log_std"], unclipped), rtol=1e-5)
    np.testing.assert_allclose(extras["value"], forward(numpy(policy["value"]), obs)[-1][:, 0], rtol=1e-4, atol=1e-6)
    greedy, none, _ = agent.act(policy, (), obs, np.ones(2, bool), Clock(3), "greedy")
    np.testing.assert_allclose(greedy, np.clip(mean, -1.0, 1.0), rtol=1e-5)
    assert none == {}
    far = [play.decide() for _ in range(20)]
    assert max(np.abs(each["unclipped"]).max() for step in far for each in step) > 1.0
    stored = play.replay.recent(20)
    assert np.abs(stored.action).max() == 1.0
    np.testing.assert_array_equal(np.clip(stored.extras["unclipped"], -1.0, 1.0), stored.action)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_rollout_is_the_current_policys_own(lanes: int) -> None:
    """ρ = 1 in the first minibatch, also of the decision that an update falls into: statistics and policy move there alone.

    Up to the rounding of a product over a minibatch instead of over the lanes.
    """
    found: list[float] = []

    class Watch(api.Callback):
        def on_step(self, event: Any) -> None:
            if event.trainer.progress.updates > len(found):
                found.append(float(event.trainer.metrics["ratio/first"]))

    whole = {"batch_size": 48}  # the first minibatch holds all rows
    options = SMALL | whole | {"num_envs": lanes, "lr": 0.01, "epochs": 4, "steps": 10_000}
    model = api.PPO(Walk, seed=0, callbacks=[Watch()], **options)
    model.learn(48 * 6 + lanes)
    assert len(found) == 6 and max(found) <= 5e-6
    assert float(model.trainer.metrics["ratio/kl"]) > 1e-4  # later minibatches do see another policy


def test_the_statistics_of_acting_change_at_an_update_alone() -> None:
    play = Play(made())
    before = [trees.to_arrays(play.agent.policy(play.state))]
    told = play.rollout()
    after = trees.to_arrays(play.agent.policy(play.state))
    assert all(np.array_equal(before[0][name], after[name]) for name in after)
    play.learn()
    met = np.array([each["obs"] for step in told for each in step], np.float64)
    statistics = play.state.host["statistics"]
    assert statistics["count"] == 24 and statistics["mean"].dtype == np.float64
    np.testing.assert_allclose(statistics["mean"], met.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(statistics["variance"], met.var(axis=0), rtol=1e-12)


# --- whole updates against a plain form ---------------------------------------------------------------------------------


def numpy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def forward(layers: Sequence[Mapping[str, np.ndarray]], x: np.ndarray) -> list[np.ndarray]:
    """The inputs of every layer, and the output last."""
    seen = [np.asarray(x, np.float64)]
    for depth, layer in enumerate(layers):
        linear = seen[-1] @ layer["w"] + layer["b"]
        seen.append(linear if depth == len(layers) - 1 else np.tanh(linear))
    return seen


def backward(
    layers: Sequence[Mapping[str, np.ndarray]], seen: list[np.ndarray], gradient: np.ndarray
) -> tuple[dict[str, np.ndarray], ...]:
    """The gradients of all layers, given that of the output."""
    found: list[dict[str, np.ndarray]] = []
    for depth in reversed(range(len(layers))):
        if depth < len(layers) - 1:
            gradient = gradient * (1.0 - seen[depth + 1] ** 2)
        found.append({"w": seen[depth].T @ gradient, "b": gradient.sum(axis=0)})
        gradient = gradient @ layers[depth]["w"].T
    return tuple(reversed(found))


class Plain:
    """PPO's update in NumPy and float64, written from the specification; it shares nothing with the library."""

    def __init__(self, config: PPOConfig, state: State) -> None:
        self.config = config
        slots = {"policy": state.policy, "value": state.value}
        self.live = {name: numpy(slot.live) for name, slot in slots.items()}
        self.m = {name: numpy(slot.opt[0].mu) for name, slot in slots.items()}
        self.v = {name: numpy(slot.opt[0].nu) for name, slot in slots.items()}
        self.count = int(state.policy.opt[0].count)
        self.statistics, self.returns = dict(state.host["statistics"]), dict(state.host["returns"])
        self.running = state.host["running"].copy()

    def seen(self, obs: np.ndarray) -> np.ndarray:
        return np.clip((obs - self.statistics["mean"]) / np.sqrt(self.statistics["variance"] + 1e-8), -10, 10)

    def value_of(self, obs: np.ndarray) -> np.ndarray:
        return forward(self.live["value"], self.seen(obs))[-1][..., 0]

    @staticmethod
    def merge(statistics: Any, rows: np.ndarray) -> Any:
        """Mean and variance of everything met, from the sums of both parts."""
        n, total = statistics["count"], statistics["count"] + len(rows)
        first = (n * statistics["mean"] + rows.sum(axis=0)) / total
        square = (n * (statistics["variance"] + statistics["mean"] ** 2) + (rows**2).sum(axis=0)) / total
        return {"count": total, "mean": first, "variance": square - first**2}

    def update(self, told: list[list[dict[str, Any]]], orders: np.ndarray, rate: float) -> None:
        config, lanes, time = self.config, len(told[0]), len(told)
        for step in told:
            for lane, each in enumerate(step):
                self.running[lane] = config.gamma * self.running[lane] + each["reward"]
            self.returns = self.merge(self.returns, self.running[:, None].copy())
            for lane, each in enumerate(step):
                self.running[lane] *= not (each["terminated"] or each["truncated"])
        rows: list[dict[str, Any]] = []
        for lane in range(lanes):  # lane after lane, each in its order
            later, of_lane = 0.0, []
            for t in reversed(range(time)):
                each = told[t][lane]
                reward = np.clip(each["reward"] / np.sqrt(self.returns["variance"][0] + 1e-8), -10, 10)
                ended = each["terminated"] or each["truncated"]
                bootstraps = not ended or (each["truncated"] and config.bootstrap_limits)
                value = self.value_of(each["obs"][None])[0]
                next_value = self.value_of(each["next_obs"][None])[0]
                delta = reward + config.gamma * bootstraps * next_value - value
                later = delta + config.gamma * config.gae * (not ended) * later
                seen = self.seen(each["obs"])
                policy, action = self.live["policy"], each["unclipped"]
                old = density(forward(policy["mean"], seen[None])[-1][0], policy["log_std"], action)
                row = {"obs": seen, "action": action, "old": old, "value": value, "advantage": later, "target": later + value}
                of_lane.append(row)
            rows += reversed(of_lane)
        for order in orders:
            self.step([rows[i] for i in order], rate)
        met = np.array([each["obs"] for step in told for each in step], np.float64)
        self.statistics = self.merge(self.statistics, met)

    def step(self, rows: list[dict[str, Any]], rate: float) -> None:
        config, n = self.config, len(rows)
        column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        advantage = column["advantage"]
        advantage = (advantage - advantage.mean()) / (np.sqrt(((advantage - advantage.mean()) ** 2).sum() / (n - 1)) + 1e-8)
        policy, value = self.live["policy"], self.live["value"]

        layers, sigma = forward(policy["mean"], column["obs"]), np.exp(policy["log_std"])
        z = (column["action"] - layers[-1]) / sigma
        ratio = np.exp(density(layers[-1], policy["log_std"], column["action"]) - column["old"])
        free = -advantage * ratio >= -advantage * np.clip(ratio, 1 - config.clip, 1 + config.clip)  # else the bound holds it
        by_log_prob = np.where(free, -advantage * ratio, 0.0) / n
        gradients = {
            "policy": {
                "mean": backward(policy["mean"], layers, by_log_prob[:, None] * z / sigma),
                "log_std": (by_log_prob[:, None] * (z**2 - 1)).sum(axis=0) - config.entropy_weight,
            }
        }

        layers = forward(value, column["obs"])
        v = layers[-1][:, 0]
        move = v - column["value"]
        near = column["value"] + np.clip(move, -config.value_clip, config.value_clip)
        plain, bounded = (v - column["target"]) ** 2, (near - column["target"]) ** 2
        outside = np.abs(move) > config.value_clip
        by_v = np.where(outside & (bounded > plain), 0.0, 2 * (v - column["target"]))
        gradients["value"] = backward(value, layers, (config.value_weight * 0.5 * by_v / n)[:, None])

        self.share = (float(np.mean(~free)), float(np.mean(outside & (bounded > plain))))
        norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradients)))
        self.norm = norm
        scale = min(1.0, config.grad_clip / norm)
        self.count += 1
        for name in ("policy", "value"):
            g = jax.tree.map(lambda leaf: scale * leaf, gradients[name])
            self.m[name] = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, self.m[name], g)
            self.v[name] = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, self.v[name], g)
            bias = 1 - 0.9**self.count, 1 - 0.999**self.count
            self.live[name] = jax.tree.map(
                lambda p, m, v, bias=bias: p - rate * config.lr * (m / bias[0]) / (np.sqrt(v / bias[1]) + 1e-5),
                self.live[name], self.m[name], self.v[name],
            )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        parts = {"live": self.live, "m": self.m, "v": self.v, "statistics": self.statistics, "returns": self.returns}
        return trees.to_arrays(parts) | {"count": np.array(self.count), "running": self.running}


def library_arrays(state: State) -> dict[str, np.ndarray]:
    slots = {"policy": state.policy, "value": state.value}
    parts = {
        "live": {name: slot.live for name, slot in slots.items()},
        "m": {name: slot.opt[0].mu for name, slot in slots.items()},
        "v": {name: slot.opt[0].nu for name, slot in slots.items()},
        "statistics": state.host["statistics"],
        "returns": state.host["returns"],
    }
    assert state.policy.opt[0].count == state.value.opt[0].count
    return trees.to_arrays(parts) | {"count": np.array(state.policy.opt[0].count), "running": state.host["running"]}


CASES: dict[str, dict[str, Any]] = {
    "tight": {"clip": 0.05, "value_clip": 0.02, "entropy_weight": 0.01, "grad_clip": 0.3, "bootstrap_limits": False, "gae": 0.8},
    "sources": {"clip": 0.2, "value_clip": 0.2, "entropy_weight": 0.0, "grad_clip": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification_in_every_number(case: str) -> None:
    agent = made(lr=3e-3, epochs=3, gamma=0.9, schedule_steps=24 * 12, **CASES[case])
    play = Play(agent, seed=4)
    for _ in range(2):  # from where nothing is as it was at first
        play.rollout()
        play.learn()
    plain = Plain(agent.config, play.state)
    held = []
    for number in range(3):
        told = play.rollout()
        data = play.draw()
        orders = data.train.extras["order"][0]
        assert data.updates == 1 and orders.shape == (12, 6)
        for epoch in orders.reshape(3, 24):
            assert sorted(epoch.tolist()) == list(range(24))  # every transition once
        assert len({epoch.tobytes() for epoch in orders.reshape(3, 24)}) == 3
        plain.update(told, orders, 1.0 - (2 + number) / 12)
        held.append(plain.share)
        play.learn()
        ours, theirs = library_arrays(play.state), plain.arrays()
        assert ours.keys() == theirs.keys()
        for name in ours:
            size = np.abs(theirs[name]).max()
            assert np.allclose(ours[name], theirs[name], rtol=2e-4, atol=2e-4 * size + 1e-9), f"{name} after update {number + 1}"
    assert case != "tight" or all(max(each) > 0.0 for each in zip(*held)), "both bounds were to hold something"
    assert plain.norm > agent.config.grad_clip


def test_the_metrics_are_those_of_the_page() -> None:
    play = Play(made(epochs=1, batch_size=24))
    told = play.rollout()
    state, data = play.state, play.draw()
    train = data.train
    log_std = np.asarray(state.policy.live["log_std"])
    v = np.array([[step[lane]["value"] for step in told] for lane in range(2)])
    next_value = Plain(play.agent.config, state).value_of(train.next_obs[0])
    extras = {name: each[0] for name, each in train.extras.items()}
    advantage = np.asarray(advantages(train.reward[0], train.discount[0], extras["goes_on"], v, next_value, 0.99 * 0.95))
    found = play.learn()
    assert set(found) == set(play.agent.metric_names)
    assert found["entropy"] == pytest.approx(np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e)), rel=1e-5)
    assert found["v/mean"] == pytest.approx(v.mean(), rel=1e-4)
    assert found["v/explained"] == pytest.approx(1 - advantage.var() / (advantage + v).var(), rel=1e-3)
    assert found["loss/value"] == pytest.approx(0.5 * np.mean(advantage**2), rel=1e-3)
    assert found["loss/actor"] == pytest.approx(0.0, abs=1e-6)  # ρ = 1 and the advantages are centred
    assert found["ratio/first"] < 1e-5 and found["ratio/clipped"] == 0.0 and abs(found["ratio/kl"]) < 1e-6


# --- rollouts, lanes, renewal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_lanes_share_a_rollout(lanes: int) -> None:
    play = Play(made(lanes))
    for _ in range(24 // lanes):
        assert play.draw() is None
        play.decide()
    data = play.draw()
    assert data.train.reward.shape == (1, lanes, 24 // lanes) and data.updates == 1
    again = play.draw()
    for name, left in trees.to_arrays(data.train._asdict()).items():
        assert left.tobytes() == trees.to_arrays(again.train._asdict())[name].tobytes()
    play.learn()
    assert play.draw() is None
    with pytest.raises(ConfigError, match="rollout = 24 is no multiple of num_envs = 5"):
        made(lanes=5)
    with pytest.raises(ConfigError, match="rollout = 24 is no multiple of batch_size = 7"):
        PPOConfig(rollout=24, batch_size=7)


def test_a_lane_that_failed_delays_the_update_until_its_share_is_there() -> None:
    play = Play(made())
    play.rollout()
    host = play.state.host
    play.state = dataclasses.replace(play.state, host=host | {"since": host["since"] - [0, 1]})
    assert play.draw() is None
    play.decide()
    assert play.draw() is not None


def test_renewed_networks_are_fresh_and_begin_a_rollout() -> None:
    play = Play(made())
    play.rollout()
    play.learn()
    play.decide()
    agent, before = play.agent, trees.to_arrays(play.state)
    assert agent.parts == ("policy", "value")
    for part, other in (("policy", "value"), ("value", "policy")):
        renewed = agent.renew(play.state, [part], Clock(0, step=100))
        after = trees.to_arrays(renewed)
        assert all(after[name].tobytes() == before[name].tobytes() for name in after if name.startswith(f".{other}"))
        weights = [name for name in after if name.startswith(f".{part}.live") and name.endswith("['w']")]
        assert weights and all(not np.array_equal(after[name], before[name]) for name in weights)
        first = trees.to_arrays(agent.init(0))
        assert all(not np.array_equal(after[name], first[name]) for name in weights)
        assert all(not after[name].any() for name in after if name.startswith(f".{part}.opt"))
        assert renewed.host["since"].tolist() == [0, 0] and renewed.host["statistics"] is play.state.host["statistics"]
        again = trees.to_arrays(agent.renew(play.state, [part], Clock(0, step=100)))
        assert all(again[name].tobytes() == after[name].tobytes() for name in after)


def test_the_ring_holds_a_rollout_and_the_open_episode() -> None:
    agent = agents.get("ppo").build(PPOConfig(rollout=24, batch_size=6), Task(SPACES, limit=100, repeat=3, lanes=2))
    rows = agent.memories["replay"].capacity // 2
    replay = Replay(2 * rows, 3, 2, 2, agent.memories["replay"].columns)
    for lane in range(2):
        for _ in range(40):  # episodes of one step take two rows each
            replay.start(lane, np.zeros(3))
            replay.add(lane, np.zeros(2), 1.0, np.zeros(3), True, False)
        replay.start(lane, np.zeros(3))
        for _ in range(33):  # an episode that the limit of 100 steps has not ended yet
            replay.add(lane, np.zeros(2), 1.0, np.zeros(3), False, False)
    assert replay.recent(12).reward.shape == (2, 12)
    assert all(replay.open_episode(lane) is not None for lane in range(2))


# --- what does not apply ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lam", "lambda", "blend", "exploit"])
def test_the_exploit_part_is_refused_with_the_reason(name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ConfigError, match="ppo has no Q to blend"):
        Plan.make("ppo", WALK, None, {name: 0.5})
    assert main(["train", "ppo", WALK, f"--{name}", "0.5"]) == 2
    assert f"the option '{name}' does not apply: ppo has no Q to blend" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"unknown option 'gamme' for PPO\. Did you mean gamma"):
        PPOConfig.make({"gamme": 0.9})


def test_diagnose_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="PPO has no Q to read"):
        api.PPO(Walk, **SMALL, diagnose=100)


# --- whole runs ---------------------------------------------------------------------------------------------------------


def test_a_policy_file_there_and_back(tmp_path: Path) -> None:
    model = api.PPO(Walk, **SMALL).learn(110)
    policy = load_policy(model.policy.save(tmp_path / "policy.npz"))
    obs = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    assert policy.predict(obs)[0].tobytes() == model.predict(obs)[0].tobytes()
    assert policy.policy["normaliser"]["count"] == 96  # two rollouts
    before = {name: each.tobytes() for name, each in trees.to_arrays(model.trainer.state).items()}
    model.evaluate(episodes=2)  # frozen statistics: nothing moves
    assert before == {name: each.tobytes() for name, each in trees.to_arrays(model.trainer.state).items()}
    other = api.PPO(Walk, **SMALL, init_from=tmp_path / "policy.npz")
    assert other.predict(obs)[0].tobytes() == model.predict(obs)[0].tobytes()


@pytest.mark.parametrize("task", [WALK, "gym/Pendulum-v1"])  # without a limit that is known, and with one
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(task: str, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        api.train("ppo", task, out=tmp_path / name, seed=seed, num_envs=2, **SMALL)
    same_run(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "policy.npz").read_bytes() != (tmp_path / "c" / "policy.npz").read_bytes()


@pytest.mark.parametrize("moment", ["1:101", "2:45"], ids=["in an episode", "in an evaluation"])
def test_sigkill_and_resume_change_nothing(moment: str, beeline: Zygote, tmp_path: Path) -> None:
    words = ["train", "ppo", WALK, *flags(SMALL)]
    beeline.run(*words, "--out", tmp_path / "whole")
    process = beeline.start(*words, "--out", tmp_path / "broken", env={"TOY_KILL": moment})
    assert process.wait() == -signal.SIGKILL
    beeline.run("resume", tmp_path / "broken")
    same_run(tmp_path / "whole", tmp_path / "broken")
    assert json.loads((tmp_path / "whole" / "status.json").read_text())["state"] == "finished"


def test_learns_to_stay_in_the_middle_of_the_walk_within_seconds() -> None:
    """Mean of 20 deterministic episodes of 20 steps; the untrained policy drifts away and has about −2.5, this one −0.1."""
    options = {"num_envs": 4, "rollout": 256, "hidden": (32, 32), "gamma": 0.9, "lr": 1e-3}
    model = api.PPO(Walk, eval_env=Walk, seed=0, steps=12_000, eval_every=100_000, **options)
    assert model.evaluate(episodes=20).mean < -1.5
    trained = model.learn(12_000).evaluate(episodes=20)
    assert trained.mean > -0.4 and set(trained.lengths) == {LIMIT}


@pytest.mark.learns
@pytest.mark.slow
def test_learns_pendulum_within_a_hundred_thousand_steps() -> None:
    """The settings of the page; a random policy has about −1200, a good one −150."""
    settings = {"num_envs": 4, "gamma": 0.9, "gae": 0.9, "lr": 1e-3}
    model = api.PPO("gym/Pendulum-v1", seed=0, steps=100_000, eval_every=100_000, log_every=10_000, **settings)
    assert model.learn(100_000).evaluate(episodes=20).mean >= -250
