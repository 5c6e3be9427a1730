"""MAXQ: the update against its plain form, targets by hand, and what the action taken at s' may and may not do."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import plain
import pytest
from states import agent, assert_same, batch, elsewhere, learn, leaves_equal, noise_of, one, read
from whole_runs import small

import beeline
from beeline.agents import get
from beeline.agents.base import Judged
from beeline.api import model as model_of
from beeline.diagnostics.delta import Fit
from beeline.diagnostics.monitor import Diagnoser, Effort
from beeline.memory import Batch, Clock, Data, Replay

RATES = {"actor_lr": 0.01, "critic_lr": 0.02, "tau": 0.1}
SOFT, VALUE = RATES | {"alpha_lr": 0.03}, {"value_lr": 0.04, "lam": 0.4}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "maxq-mlp": ("maxq", SOFT | {"network": "mlp", "reward_scale": 2.0}),
    "maxq-bac": ("maxq", SOFT | {"network": "bac", "target_interval": 2, "policy_updates_per_step": 0.5}),
    "bee-maxq-mlp": ("bee-maxq", SOFT | VALUE | {"network": "mlp"}),
    "bee-maxq-h2o": ("bee-maxq", SOFT | VALUE | {"network": "mlp", "blend": "ada_h2o", "v_entropy": False}),
    "maxq-td3-mlp": ("maxq-td3", RATES | {"network": "mlp"}),
    "bee-maxq-td3-bac": ("bee-maxq-td3", RATES | VALUE | {"network": "bac", "target_interval": 1}),
}


def settings(algo: str, options: dict[str, Any]) -> plain.Settings:
    """What the plain form is told: the case's options, and TD3's delays where it names none."""
    delays = {"policy_updates_per_step": 0.5, "target_interval": 2} if algo.endswith("td3") else {}
    own = {name: value for name, value in options.items() if name != "lam"}  # λ is read from the state
    return plain.Settings(algo, action_scale=(2.0, 0.4), **delays | own)


def somewhere_telling(a: Any, s: plain.Settings) -> Any:
    """A state in which either critic, and either action, is the one that counts for some samples."""
    for seed in range(200):
        state = elsewhere(a.init(0), seed)
        _, numbers = plain.update(read(state), one(batch()), noise_of(state, s.policy_rounds), s)
        if all(0.2 <= numbers[name] <= 0.8 for name in ("first/target", "first/policy")) and 0.1 <= numbers["taken"] <= 0.6:
            return state
    raise AssertionError("one critic or one action is always the one that counts")


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification_in_every_number(case: str) -> None:
    algo, options = CASES[case]
    a, s = agent(algo, **options), settings(algo, options)
    state = somewhere_telling(a, s)
    expected, start = read(state), read(state)
    for number in range(4):
        b = batch(seed=number)
        expected, numbers = plain.update(expected, one(b), noise_of(state, s.policy_rounds), s)
        state, metrics = learn(a, state, b)
        assert_same(read(state), expected, f"update {number + 1} of {case}")
        for name in numbers.keys() & metrics.keys():
            np.testing.assert_allclose(metrics[name], numbers[name], rtol=1e-5, atol=5e-6, err_msg=name)
        assert metrics.keys() <= set(a.metric_names)
    moved = {name for name in expected if not np.array_equal(expected[name], start[name])}
    assert moved == expected.keys() - {"blend/lam"}


def by_hand(**extras: list) -> Batch:
    """Three transitions, the last of them terminal."""
    column = np.array([[0.0], [0.0], [0.0]], np.float32)
    reward, discount = (np.array(x, np.float32) for x in ([1.0, 2.0, 3.0], [0.5, 0.5, 0.0]))
    return Batch(column, column, reward, discount, column, {name: np.array(x) for name, x in extras.items()})


@pytest.mark.parametrize(
    ("valid", "value"), [([True, True, True], [4.0, 7.0]), ([False, True, True], [2.0, 7.0]), ([True, False, False], [4.0, 7.0])]
)
def test_the_target_is_that_of_the_better_action_where_there_is_one(valid: list[bool], value: list[float]) -> None:
    a = agent("maxq-td3")
    own = jnp.array([[2.0, 9.0, 1.0], [3.0, 7.0, 1.0]])  # Q̄_i(s', ã'): 2, 7 and 1 are the smaller ones
    taken = jnp.array([[8.0, 5.0, 6.0], [4.0, 8.0, 5.0]])  # Q̄_i(s', a_next): 4, 5 and 5
    terms = a.backup.terms(None, by_hand(next_action_valid=valid), (), [own, taken])
    np.testing.assert_array_equal(terms.value[:2], value)
    np.testing.assert_array_equal(terms.target, [1.0 + 0.5 * value[0], 2.0 + 0.5 * value[1], 3.0])
    np.testing.assert_allclose(terms.told["taken"], sum(t and v for t, v in zip((True, False, True), valid)) / 3)


def test_the_entropy_belongs_to_the_sampled_action_alone() -> None:
    a = agent("maxq", tune_alpha=False, alpha=2.0, entropy_units="unit")
    own, taken = jnp.array([[4.0, 4.0, 0.0]] * 2), jnp.array([[3.0, 3.0, 0.0]] * 2)
    log_prob = jnp.array([1.0, 0.25, 0.0])  # soft values 4 − 2 and 4 − ½, on either side of 3
    terms = a.backup.terms(a.init(0), by_hand(next_action_valid=[True] * 3), log_prob, [own, taken])
    np.testing.assert_array_equal(terms.target, [1.0 + 0.5 * 3.0, 2.0 + 0.5 * 3.5, 3.0])


@pytest.mark.parametrize(("algo", "backbone"), [("maxq", "sac"), ("maxq-td3", "td3")])
def test_without_any_next_action_it_is_the_backbone(algo: str, backbone: str) -> None:
    a, b = agent(algo), agent(backbone)
    many = batch(updates=4)
    none = many._replace(extras=many.extras | {"next_action_valid": np.zeros((4, 32), bool)})
    one, told = learn(a, a.init(0), none)
    two, _ = learn(b, b.init(0), many._replace(extras=None))
    for name, array in read(two).items():
        np.testing.assert_allclose(read(one)[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    assert float(told["taken"]) == 0.0


def test_what_stands_in_for_a_missing_next_action_does_not_matter() -> None:
    a, b = agent("maxq"), batch(updates=2)
    junk = np.where(b.extras["next_action_valid"][..., None], b.extras["next_action"], 0.9).astype(np.float32)
    one, _ = learn(a, a.init(0), b)
    two, _ = learn(a, a.init(0), b._replace(extras=b.extras | {"next_action": junk}))
    assert leaves_equal(one, two)


@pytest.mark.parametrize("algo", ["bee-maxq", "bee-maxq-td3"])
def test_lambda_one_bootstraps_from_v_alone(algo: str) -> None:
    a, b = agent(algo, lam=1.0), batch()
    state = elsewhere(a.init(0), 0)
    state = dataclasses.replace(state, backup=state.backup | {"blend": {"lam": jnp.float32(1.0)}})
    v = plain.Network(plain.below(read(state), "value/live/"), b.next_obs[0], "mlp").output[:, 0]
    _, metrics = learn(a, state, b)
    np.testing.assert_allclose(metrics["q/target"], (b.reward[0] + b.discount[0] * v).mean(), rtol=1e-5)


def test_the_next_action_moves_the_critics_and_nothing_else() -> None:
    a, b = agent("bee-maxq-td3"), batch()
    other = b._replace(extras=b.extras | {"next_action": -b.extras["next_action"]})
    one, _ = learn(a, a.init(0), b)  # the first update has no policy step, which would look at the new critics
    two, _ = learn(a, a.init(0), other)
    assert not leaves_equal(one.critic.live, two.critic.live)
    assert leaves_equal(one.backup, two.backup) and leaves_equal(one.actor, two.actor)


def test_the_feed_brings_the_action_that_was_taken_next() -> None:
    a = agent("maxq", batch_size=4)
    replay = Replay(64, 5, 2)
    replay.start(0, np.zeros(5))
    for t in range(1, 9):
        replay.add(0, [t / 10, -t / 10], 0.0, np.full(5, t), terminated=False, truncated=t == 5)
        if t == 5:
            replay.start(0, np.full(5, t + 0.5))
    data = a.draw(a.init(0), {"replay": replay}, Clock(0, 100))
    assert isinstance(data, Data)
    batch, extras = data.train, data.train.extras
    number = np.rint(10 * batch.action[..., 0])
    last = (number == 5) | (number == 8)  # cut there, or the newest
    np.testing.assert_array_equal(extras["next_action_valid"], ~last)
    np.testing.assert_allclose(extras["next_action"][..., 0], np.where(last, 0.0, (number + 1) / 10), rtol=1e-6)


def test_each_backbone_has_its_own_options_and_presets() -> None:
    for algo, backbone in (("maxq", "sac"), ("maxq-td3", "td3")):
        assert get(algo).config.names() == get(backbone).config.names()
        assert get(f"bee-{algo}").config.names() == get(backbone).config.names()
        for preset in ("light", "paper"):
            assert get(algo).preset(preset, "dmc/walker-run") == get(backbone).preset(preset, "dmc/walker-run")
    with pytest.raises(beeline.BeelineError, match="smoothing_noise"):
        get("maxq").config.make({"smoothing_noise": 0.1})
    with pytest.raises(beeline.BeelineError, match="tune_alpha"):
        get("maxq-td3").config.make({"tune_alpha": False})


def test_instruments_read_it_and_its_blend() -> None:
    options = small("bee-maxq", blend="ada", diagnose=100)
    steps = options.pop("steps")
    model = model_of("bee-maxq")("toys:Walk-v0", **options)
    model.trainer.diagnoser = Diagnoser(
        model.trainer.agent, model.trainer.diagnoser.env, 0, Effort(pairs=20, states=64, batches=2, passive=Fit(steps=5))
    )
    assert isinstance(model.trainer.agent, Judged)
    model.learn(steps)
    rows = [row for row in model.metrics if row.get("diag/lambda_p50") is not None]
    assert rows and all(0.0 <= row["diag/lambda_p50"] <= 1.0 for row in rows)


@pytest.mark.parametrize("algo", ["maxq", "bee-maxq", "maxq-td3", "bee-maxq-td3"])
def test_learns_the_best_action_of_a_task_of_one_step(algo: str) -> None:
    """Reward −Σ (a − c)² and then the end: within 3,000 updates the policy has c, which no action of the buffer is."""
    a = agent(algo, actor_lr=3e-3, critic_lr=3e-3, explore="none")
    best, r = np.array([0.5, -0.25]), np.random.default_rng(0)
    obs, action = r.normal(size=(3000, 32, 5)).astype(np.float32), r.uniform(-1, 1, (3000, 32, 2)).astype(np.float32)
    reward = -np.square(action - best).sum(-1).astype(np.float32)
    extras = {"next_action": action, "next_action_valid": np.zeros((3000, 32), bool)}
    data = Batch(obs, action, reward, np.zeros((3000, 32), np.float32), obs, extras)
    state, _ = a.update(a.init(0), Data(data, 0))
    found, _, _ = a.act(a.policy(state), a.begin(32), obs[0], np.ones(32, bool), Clock(0, 10**6), "greedy")
    np.testing.assert_allclose(np.asarray(found).mean(0), best, atol=0.1)
