"""The update against an independent plain form, exact equalities between algorithms, and what must not move."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from beeline import operators, rng
from beeline.agents import get, sac, schedule
from beeline.agents.base import Spaces, Task
from beeline.agents.off_policy import OffPolicy, State
from beeline.agents.options import BLENDS, EXPLOITS
from beeline.memory import Batch, Clock, Data

SPACES = Spaces(5, (-2.0, -0.4), (2.0, 0.4))
SMALL = {"hidden": (16, 16), "batch_size": 32}


def agent(algo: str, **options: Any) -> OffPolicy:
    algorithm = get(algo)
    built = algorithm.build(algorithm.config.make({**SMALL, **options}), SPACES)
    assert isinstance(built, OffPolicy)
    return built


def batch(updates: int = 1, size: int = 32, seed: int = 0, discount: float = 0.99) -> Batch:
    r = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return r.normal(size=(updates, size, *shape)).astype(np.float32)

    return Batch(normal(5), np.tanh(normal(2)), normal(), np.full((updates, size), discount, np.float32), normal(5))


def fresh(a: OffPolicy, seed: int = 0) -> State:
    return a.init(seed)


def act(a: OffPolicy, state: State, carry: Any, obs: np.ndarray, first: np.ndarray, counter: int, mode: str) -> tuple[Any, Any]:
    """Actions and the next carry at the `counter`-th decision."""
    action, _, carry = a.act(a.policy(state), carry, obs, first, Clock(0, 10**9, counter), mode)
    return action, carry


def leaves_equal(a: Any, b: Any) -> bool:
    x, y = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(x) == len(y) and all(np.array_equal(p, q) for p, q in zip(x, y))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells a process its memory mappings")
def test_a_dropped_agent_leaves_no_compiled_code_behind() -> None:
    def mappings() -> int:
        gc.collect()
        return len(Path("/proc/self/maps").read_text().splitlines())

    def use(lam: float) -> int:
        """How many mappings there are while the agent of another config exists; 65,530 are the most of a process."""
        algorithm = get("bac")
        a = sac.build(algorithm.config.make({**SMALL, "lam": lam}), Task(SPACES))  # the tests' Entry.build would keep it
        jax.block_until_ready(a.update(fresh(a), Data(batch(), 0)))
        return mappings()

    use(0.1)
    before = mappings()
    assert use(0.2) > before + 100
    for lam in (0.3, 0.4):
        use(lam)
    assert mappings() < before + 100


# --- an independent plain form ----------------------------------------------------------------------------------------
#
# The next three functions know how the state is laid out and how its noise is drawn; nothing else here does.


def read(state: State) -> plain.Arrays:
    """Everything that learns or counts, under the names that tests/agents/plain.py gives it."""

    def layers(prefix: str, params: Any) -> plain.Arrays:
        return {f"{prefix}/{depth}/{name}": leaf for depth, layer in enumerate(params) for name, leaf in layer.items()}

    found: plain.Arrays = {"updates": state.updates}

    def part(name: str, live: Any, target: Any, opt: Any, arrays: Any = layers) -> None:
        is_adam = lambda node: isinstance(node, optax.ScaleByAdamState)  # noqa: E731
        [moments] = [node for node in jax.tree.leaves(opt, is_leaf=is_adam) if is_adam(node)]
        found.update({f"{name}/count": moments.count} | arrays(f"{name}/live", live))
        found.update(arrays(f"{name}/m", moments.mu) | arrays(f"{name}/v", moments.nu))
        found.update({} if target is None else arrays(f"{name}/target", target))

    part("policy", *state.actor)
    part("critic", *state.critic)
    if state.backup:
        part("value", *state.backup["value"])
        found.update({f"blend/{name}": leaf for name, leaf in state.backup["blend"].items()} if state.backup["blend"] else {})
    if state.objective:
        part("alpha", *state.objective["log_alpha"], lambda prefix, leaf: {f"{prefix}/log": leaf})
    return {name: np.array(leaf) for name, leaf in found.items()}


def noise_of(state: State, rounds: int, shape: tuple[int, ...] = (32, 2)) -> plain.Arrays:
    """The standard normal noise of the next update, by what it is for."""
    root, number = jax.random.wrap_key_data(state.key), int(state.updates)
    keys = {name: rng.fold(root, name, number) for name in ("explore", "exploit")}
    keys |= {f"policy/{turn}": jax.random.fold_in(rng.fold(root, "policy", number), turn) for turn in range(rounds)}
    return {name: np.array(jax.random.normal(key, shape)) for name, key in keys.items()}


def learn(a: OffPolicy, state: State, b: Batch) -> tuple[State, dict[str, Any]]:
    """The next update of a state, from a batch with a leading axis of one."""
    return a.update(state, Data(b, int(state.updates)))


def elsewhere(state: State, seed: int) -> State:
    """A state in which no leaf is what it began as: targets have left the networks, Adam has moments, counts are 7."""
    r = np.random.default_rng(seed)

    def move(path: Any, leaf: Any) -> Any:
        if leaf.dtype == jnp.uint32:  # the key
            return jnp.array(leaf)
        if leaf.dtype == jnp.int32:
            return leaf + 7
        drift = r.normal(0.0, 0.1, leaf.shape).astype(np.float32)
        is_second_moment = ".nu" in jax.tree_util.keystr(path)
        return leaf + (0.005 + np.square(drift) if is_second_moment else drift)

    return jax.tree_util.tree_map_with_path(move, state)


def one(b: Batch) -> Batch:
    """The batch without its leading axis."""
    return Batch(*(x[0] for x in b[:5]))


def steps_of_reward(b: Batch, seed: int) -> Batch:
    """The batch with discounts as n steps of reward give them: γ, γ² or γ³ where episodes go on, 0 where they end."""
    powers = np.random.default_rng(seed).integers(0, 4, b.discount.shape)
    return b._replace(discount=np.where(powers == 0, 0.0, 0.99**powers).astype(np.float32))


def assert_same(got: plain.Arrays, expected: plain.Arrays, when: str, **close: float) -> None:
    assert got.keys() == expected.keys()
    for name, array in got.items():
        np.testing.assert_allclose(array, expected[name], err_msg=f"{name} after {when}", **close)


RATES = {"actor_lr": 0.01, "critic_lr": 0.02, "tau": 0.1}  # unlike each other, and large enough to see each step
SOFT = RATES | {"alpha_lr": 0.03}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac-mlp": ("sac", SOFT | {"network": "mlp", "alpha_beta1": 0.5, "grad_clip": 0.5}),
    "sac-bac": ("sac", SOFT | {"network": "bac", "policy_updates_per_step": 2, "entropy_units": "unit", "target_interval": 2}),
    "sac-ln": ("sac", SOFT | {"network": "ln", "entropy_units": "unit", "policy_updates_per_step": 0.5}),
    "bac-ln": ("bac", SOFT | {"network": "ln", "value_lr": 0.04, "lam": 0.5, "v_entropy": False, "target_interval": 1}),
    "td3-mlp": ("td3", RATES | {"network": "mlp"}),
    "td3-bac": ("td3", RATES | {"network": "bac", "target_interval": 1, "reward_scale": 2.0, "grad_clip": 0.3}),
    "bac-mlp": ("bac", SOFT | {"network": "mlp", "value_lr": 0.04, "blend": "ada", "v_entropy": False, "target_interval": 1,
                               "alpha_beta1": 0.5}),
    "bac-bac": ("bac", SOFT | {"network": "bac", "value_lr": 0.04, "lam": 0.4, "expectile": 0.8,
                               "policy_updates_per_step": 0.5}),
    "bac-h2o": ("bac", SOFT | {"network": "mlp", "value_lr": 0.04, "blend": "ada_h2o", "grad_clip": 1.0, "target_interval": 1}),
    "bee-td3-mlp": ("bee-td3", RATES | {"network": "mlp", "value_lr": 0.04, "blend": "ada", "smoothing_noise": 0.4}),
    "bee-td3-bac": ("bee-td3", RATES | {"network": "bac", "value_lr": 0.04, "lam": 0.4, "grad_clip": 1.0,
                                        "policy_updates_per_step": 1, "target_interval": 1}),
}  # fmt: skip


def settings(algo: str, options: dict[str, Any]) -> plain.Settings:
    """What the plain form is told: the case's options, and the delays that the sources have where it names none."""
    td3 = {"policy_updates_per_step": 0.5} if "td3" in algo else {}
    delays = td3 | ({} if algo == "sac" else {"target_interval": 2})
    own = {name: value for name, value in options.items() if name != "lam"}  # λ is read from the state
    return plain.Settings(algo, action_scale=(2.0, 0.4), **delays | own)


def somewhere_telling(a: OffPolicy, s: plain.Settings) -> State:
    """A state in which each critic is the smaller one for some samples, both in the target and under the policy."""
    for seed in range(100):
        state = elsewhere(fresh(a), seed)
        _, numbers = plain.update(read(state), one(batch()), noise_of(state, s.policy_rounds), s)
        if all(0.2 <= numbers[name] <= 0.8 for name in ("first/target", "first/policy")):
            return state
    raise AssertionError("one critic is always the smaller one")


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification_in_every_number(case: str) -> None:
    algo, options = CASES[case]
    a, s = agent(algo, **options), settings(algo, options)
    state = somewhere_telling(a, s)
    expected, start = read(state), read(state)
    for number in range(4):
        b = steps_of_reward(batch(seed=number), number)
        expected, numbers = plain.update(expected, one(b), noise_of(state, s.policy_rounds), s)
        state, metrics = learn(a, state, b)
        assert_same(read(state), expected, f"update {number + 1} of {case}", rtol=1e-5, atol=5e-6)
        for name in numbers.keys() & metrics.keys():
            np.testing.assert_allclose(metrics[name], numbers[name], rtol=1e-5, atol=5e-6, err_msg=name)
    moved = {name for name in expected if not np.array_equal(expected[name], start[name])}
    assert moved == expected.keys() - {"blend/lam"}


@pytest.mark.parametrize("body", ["mlp", "bac"])
@pytest.mark.parametrize(("algo", "lam", "v_entropy"), [("sac", 0.0, True), ("bac", 0.5, True), ("bac", 0.3, False)])
def test_update_equals_the_specification_step_by_step(algo: str, lam: float, v_entropy: bool, body: str) -> None:
    own = {"lam": lam, "v_entropy": v_entropy, "expectile": 0.8} if algo == "bac" else {}
    options = {"network": body, "target_interval": 1, **own}
    a = agent(algo, **options)
    before, noise = read(fresh(a)), noise_of(fresh(a), 1)
    expected, numbers = plain.update(before, one(batch()), noise, settings(algo, options))
    state, metrics = learn(a, fresh(a), batch())
    # Adam's first step is a sign: tiny gradients amplify rounding
    assert_same(read(state), expected, "the first update", rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(read(state)["alpha/live/log"], expected["alpha/live/log"], rtol=1e-5)
    np.testing.assert_allclose(metrics["q/target"], numbers["q/target"], rtol=1e-5, atol=1e-5)


def plain_mlp(params: Any, x: np.ndarray, body: str) -> np.ndarray:
    weights = {f"{depth}/{name}": np.array(leaf) for depth, layer in enumerate(params) for name, leaf in layer.items()}
    return plain.Network(weights, x, body).output


def test_td3_update_by_hand() -> None:
    """The target of one critic step: smoothing noise from its own key, min of targets; the actor on Q_1 alone."""
    a = agent("td3")
    state = fresh(a)
    b = batch()
    key = rng.fold(jax.random.wrap_key_data(state.key), "explore", 0)
    noise = np.clip(0.2 * jax.random.normal(key, (32, 2)), -0.5, 0.5)
    a2 = np.clip(np.tanh(plain_mlp(state.actor.target, b.next_obs[0], "mlp")) + noise, -1, 1)
    x = np.concatenate([b.next_obs[0], a2], -1)
    members = [[{k: v[i] for k, v in layer.items()} for layer in state.critic.target] for i in (0, 1)]
    q2 = np.minimum(*(plain_mlp(m, x, "mlp")[:, 0] for m in members))
    y = b.reward[0] + 0.99 * q2
    _, metrics = a.update(fresh(a), Data(b, 0))
    np.testing.assert_allclose(metrics["q/target"], y.mean(), rtol=1e-5)


# --- λ = 0 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backbone", "bee"), [("sac", "bac"), ("td3", "bee-td3")])
def test_a_traced_lambda_of_zero_equals_the_plain_update(backbone: str, bee: str) -> None:
    shared = {"network": "mlp", "target_interval": 1, "policy_updates_per_step": 1.0}
    one, two = agent(backbone, **shared), agent(bee, lam=0.5, **shared)
    start = fresh(two)
    state = dataclasses.replace(start, backup=start.backup | {"blend": {"lam": jnp.float32(0.0)}})
    a, _ = one.update(fresh(one), Data(batch(), 0))
    b, metrics = two.update(state, Data(batch(), 0))
    assert float(metrics["lambda"]) == 0.0
    for slot in ("actor", "critic"):
        for name in ("live", "target"):
            x, y = (getattr(getattr(each, slot), name) for each in (a, b))
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), x, y)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), a.objective, b.objective)


def test_lambda_one_ignores_the_explore_target() -> None:
    a = agent("bac", lam=1.0, v_entropy=False, expectile=0.5)
    state = fresh(a)
    v = plain_mlp(state.backup["value"].live, batch().next_obs[0], "bac")[:, 0]
    expected = (batch().reward[0] + 0.99 * v).mean()
    _, metrics = a.update(state, Data(batch(), 0))
    np.testing.assert_allclose(metrics["q/target"], expected, rtol=1e-5)


# --- isolation: who moves whom ----------------------------------------------------------------------------------------


def test_the_exploit_loss_moves_v_alone() -> None:
    a, b = agent("bac", expectile=0.6), agent("bac", expectile=0.9)
    one, _ = a.update(fresh(a), Data(batch(), 0))
    two, _ = b.update(fresh(b), Data(batch(), 0))
    assert not leaves_equal(one.backup["value"], two.backup["value"])
    for name in ("critic", "actor", "objective"):
        assert leaves_equal(getattr(one, name), getattr(two, name)), name


def test_the_critic_loss_does_not_move_v_nor_the_temperature() -> None:
    a, b = agent("bac", reward_scale=1.0), agent("bac", reward_scale=3.0)  # another y, so another critic step
    one, _ = a.update(fresh(a), Data(batch(), 0))
    two, _ = b.update(fresh(b), Data(batch(), 0))
    assert not leaves_equal(one.critic.live, two.critic.live)
    assert leaves_equal(one.backup, two.backup) and leaves_equal(one.objective, two.objective)


def test_the_policy_loss_moves_the_policy_alone() -> None:
    a = agent("bac", policy_updates_per_step=0.5)
    before = jax.tree.map(np.array, fresh(a))
    skipped, _ = a.update(fresh(a), Data(batch(), 0))  # the first update has no policy step
    assert leaves_equal(skipped.actor, before.actor) and leaves_equal(skipped.objective, before.objective)
    b = agent("bac")
    stepped, _ = b.update(fresh(b), Data(batch(), 0))
    assert not leaves_equal(stepped.actor.live, before.actor.live)
    for name in ("critic", "backup"):
        assert leaves_equal(getattr(skipped, name), getattr(stepped, name)), name


def test_loss_gradients_are_zero_where_they_must_be() -> None:
    """Through the operators as the update composes them: no gradient flows through targets."""
    r = jnp.ones(4)
    assert not jax.grad(lambda v: operators.bellman_target(r, r, v).sum())(r).any()
    assert not jax.grad(lambda q: operators.expectile_value_loss(q, r, 0.7).sum())(r * 3).any()
    assert float(jax.grad(lambda lp: operators.temperature_loss(jnp.float32(0.5), lp, 1.0))(r).sum()) == 0.0


# --- schedule ---------------------------------------------------------------------------------------------------------


def test_target_interval_two_leaves_the_targets_alone_on_odd_updates() -> None:
    a = agent("bac", target_interval=2)
    before = jax.tree.map(np.array, fresh(a).critic.target)
    state, _ = a.update(fresh(a), Data(batch(), 0))
    assert leaves_equal(state.critic.target, before)
    state, _ = a.update(state, Data(batch(seed=1), 1))
    assert not leaves_equal(state.critic.target, before)


@pytest.mark.parametrize(
    ("algo", "options"),
    [("td3", {}), ("bac", {"target_interval": 3, "policy_updates_per_step": 0.5}),
     ("sac", {"critic_updates_per_step": 4}), ("sac", {"critic_updates_per_step": 5, "policy_updates_per_step": 1})],
)  # fmt: skip
@pytest.mark.parametrize("first", [0, 1])
def test_many_updates_in_one_call_equal_as_many_calls(algo: str, options: dict, first: int) -> None:
    a = agent(algo, **options)
    many = batch(updates=7)
    together, metrics = a.update(fresh(a), Data(many, first))
    state, latest = fresh(a), {}
    for i in range(7):
        state, m = a.update(state, Data(Batch(*(None if x is None else x[i : i + 1] for x in many)), first + i))
        latest |= m
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), together, state)
    assert set(metrics) == set(latest) == set(a.metric_names)
    for name in metrics:
        np.testing.assert_allclose(metrics[name], latest[name], rtol=1e-3, atol=1e-5)


@settings_of(max_examples=8, deadline=None)
@given(st.integers(0, 5), st.integers(0, 9), st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=2))
def test_noise_is_that_of_each_update_drawn_alone_however_updates_are_spread_over_calls(
    seed: int, number: int, interval: int, calls: list[int]
) -> None:
    a = agent("bac", critic_updates_per_step=interval, policy_updates_per_step=1, v_entropy=True)
    state = dataclasses.replace(a.init(seed), updates=jnp.int32(number))
    for count in calls:
        due = [policy for policy, _ in schedule.due(number, count, interval, 1)]
        drawn = a.all_noise(state, batch(count), None, due)
        assert set(drawn) == {"explore", "exploit"} | ({"policy/0"} if any(due) else set())
        for at, policy in enumerate(due):
            alone = noise_of(state, 1)
            for name, together in drawn.items():
                wanted = alone[name] if policy or name != "policy/0" else np.zeros((32, 2))
                np.testing.assert_array_equal(together[at], wanted, err_msg=f"{name} of update {at} of {count}")
            number += 1
            state = dataclasses.replace(state, updates=jnp.int32(number))


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_two_calls_of_two_updates_give_the_state_of_one_of_four(lam: float) -> None:
    small = {"hidden": (16, 16), "policy_hidden": (8, 8), "batch_size": 32, "lam": lam}
    best = {name: value for name, value in sac.best("dmc/walker-run").items() if name in sac.BACConfig.__dataclass_fields__}
    entry = get("bac")
    a = entry.build(entry.config.make(best | small), Task(SPACES, ends=False))
    four = batch(updates=4)
    together, _ = a.update(fresh(a), Data(four, 0))
    state = fresh(a)
    for first in (0, 2):
        state, _ = a.update(state, Data(Batch(*(x[first : first + 2] for x in four[:5])), first))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), together, state)


@pytest.mark.parametrize("algo", ["sac", "td3", "bee-td3"])
def test_a_delayed_policy_is_not_overwritten_by_the_update_that_follows_its_action(algo: str) -> None:
    a = agent(algo)
    state = fresh(a)
    obs, first = np.ones((1, 5), np.float32), np.ones(1, bool)
    action, _ = act(a, state, a.begin(1), obs, first, 0, "sample")
    after = state
    for number in range(2):  # the second one changes the delayed policy
        after, _ = a.update(after, Data(batch(), number))
    old, new = jax.tree.leaves(state.actor.live), jax.tree.leaves(after.actor.live)
    if algo == "sac":  # one that changes every time is updated in place
        assert all(leaf.is_deleted() for leaf in old)
        return
    assert not leaves_equal(old, new)
    again, _ = act(a, state, a.begin(1), obs, first, 0, "sample")
    np.testing.assert_array_equal(action, again)
    in_place = (state.critic, state.actor.target, state.actor.opt)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(in_place))


def test_compiled_size_does_not_grow_with_the_number_of_updates() -> None:
    def size(count: int) -> int:
        a = agent("sac", critic_updates_per_step=20, policy_updates_per_step=1)
        kept, rest = a._split(fresh(a))
        lowered = a._update.lower(kept, fresh(a).host, rest, batch(updates=count), None, phase=0)
        return len(lowered.as_text())

    assert size(80) < 1.5 * size(40)


# --- options ----------------------------------------------------------------------------------------------------------


def test_terminal_transitions_do_not_bootstrap() -> None:
    a = agent("bac")
    _, metrics = a.update(fresh(a), Data(batch(discount=0.0), 0))
    np.testing.assert_allclose(metrics["q/target"], batch().reward.mean(), rtol=1e-5)


def test_one_critic_without_double_q() -> None:
    a = agent("bac", double_q=False)
    assert fresh(a).critic.live[0]["w"].shape[0] == 1
    _, metrics = a.update(fresh(a), Data(batch(), 0))
    assert all(np.isfinite(v) for v in metrics.values())


def test_fixed_temperature_of_zero_is_no_entropy() -> None:
    a, b = agent("sac", tune_alpha=False, alpha=0.0), agent("sac", explore="none")
    one, m = a.update(fresh(a), Data(batch(), 0))
    two, _ = b.update(fresh(b), Data(batch(), 0))
    assert leaves_equal(one, two) and float(m["alpha"]) == 0.0


def test_entropy_units_shift_log_pi_by_the_action_scale() -> None:
    metrics = {}
    for units in ("env", "unit"):
        a = agent("sac", entropy_units=units)
        _, m = a.update(fresh(a), Data(batch(), 0))
        metrics[units] = float(m["entropy"])
    assert metrics["env"] - metrics["unit"] == pytest.approx(np.log(2.0) + np.log(0.4), abs=1e-5)


def test_gradient_clipping_bounds_the_step() -> None:
    a = agent("sac", grad_clip=1e-10)  # far below Adam's ε = 1e-8, so that steps nearly vanish
    before = jax.tree.map(np.array, fresh(a).critic.live)
    state, _ = a.update(fresh(a), Data(batch(), 0))
    moved = max(float(np.abs(x - y).max()) for x, y in zip(jax.tree.leaves(state.critic.live), jax.tree.leaves(before)))
    assert 0 < moved < 3e-4 * 0.02


def test_normalisation_scales_what_is_sampled_and_acted_on() -> None:
    a = agent("sac", normalize_obs=True)
    state = a.init(0)
    data = np.random.default_rng(1).normal(3.0, 2.0, (500, 5)).astype(np.float32)
    for start in range(0, 500, 5):
        state = a.notice(state, {}, (), data[start : start + 5], Clock(0))
    statistics = state.host["statistics"]
    np.testing.assert_allclose(statistics["mean"], data.mean(0), rtol=1e-4)
    np.testing.assert_allclose(statistics["variance"], data.var(0), rtol=1e-3)
    plain = dataclasses.replace(state, host={"statistics": None})
    scaled = (data[:4] - data.mean(0)) / data.std(0)
    got, _ = act(a, state, (), data[:4], np.zeros(4, bool), 0, "greedy")
    expected, _ = act(a, plain, (), scaled, np.zeros(4, bool), 0, "greedy")
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("algo", ["bac", "bee-td3"])
@pytest.mark.parametrize("exploit", EXPLOITS)
@pytest.mark.parametrize("blend", BLENDS)
def test_every_estimator_and_blend_composes_with_every_backbone(algo: str, exploit: str, blend: str) -> None:
    a = agent(algo, exploit=exploit, blend=blend, target_interval=1, policy_updates_per_step=1.0)
    state, m1 = a.update(a.init(0), Data(batch(updates=4), 0))
    state, m2 = a.update(state, Data(batch(updates=4, seed=1), 4))
    metrics = m1 | m2
    assert set(metrics) == set(a.metric_names)
    assert all(np.isfinite(v) for v in metrics.values())
    assert 0.0 <= float(metrics["lambda"]) <= 1.0


def test_min_and_max_blends_bound_the_target() -> None:
    for blend, choose in (("min", min), ("max", max)):
        a = agent("bac", blend=blend)
        _, m = a.update(fresh(a), Data(batch(), 0))
        bound = choose(float(m["q/exploit_target"]), float(m["q/explore_target"]))
        assert (float(m["q/target"]) <= bound + 1e-6) if blend == "min" else (float(m["q/target"]) >= bound - 1e-6)


def test_the_exploit_part_can_be_fitted_on_another_batch() -> None:
    a = agent("bac")
    same, _ = a.update(fresh(a), Data(batch(), 0, fit=batch()))
    default, _ = a.update(fresh(a), Data(batch(), 0))
    other, _ = a.update(fresh(a), Data(batch(), 0, fit=batch(seed=5)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), same, default)
    assert not leaves_equal(other.backup["value"], default.backup["value"])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), other.critic, default.critic)


def test_a_whole_state_can_be_vmapped_over_seeds() -> None:
    a = agent("bac")
    states = [a.init(seed) for seed in (0, 1, 2)]
    stacked = dataclasses.replace(jax.tree.map(lambda *x: jnp.stack(x), *states), host={})
    data = jax.tree.map(lambda *x: jnp.stack(x), *(batch(seed=s) for s in (0, 1, 2)))
    host = states[0].host
    together = jax.jit(jax.vmap(lambda s, b: a._update_impl({}, host, s, b, None, 0)[1]))(stacked, data)
    for i in range(3):
        alone, _ = a.update(a.init(i), Data(batch(seed=i), 0))
        own = dataclasses.replace(jax.tree.map(lambda x, i=i: x[i], together), host=alone.host)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-6), own, alone)


# --- acting -----------------------------------------------------------------------------------------------------------


def test_acting_noise() -> None:
    obs, first = np.ones((3, 5), np.float32), np.ones(3, bool)
    quiet = agent("td3", exploration_noise=0.0)
    state = quiet.init(0)
    explore, _ = act(quiet, state, quiet.begin(3), obs, first, 0, "sample")
    greedy, _ = act(quiet, state, (), obs, first, 0, "greedy")
    np.testing.assert_array_equal(explore, greedy)
    noisy = agent("sac")
    state = noisy.init(0)
    one, _ = act(noisy, state, (), obs, first, 0, "sample")
    again, _ = act(noisy, state, (), obs, first, 0, "sample")
    later, _ = act(noisy, state, (), obs, first, 1, "sample")
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, later) and np.abs(one).max() <= 1.0


def test_pink_noise_is_correlated_in_time_and_renewed_by_episode() -> None:
    a = agent("td3", acting_noise="pink", exploration_noise=0.3)
    state, obs = a.init(0), np.zeros((2, 5), np.float32)
    base, _ = act(a, state, (), obs, np.ones(2, bool), 0, "greedy")
    carried, seen = a.begin(2), []
    for t in range(400):
        first = np.array([t == 0, t in (0, 200)])
        action, carried = act(a, state, carried, obs, first, t, "sample")
        seen.append((action - base) / 0.3)
    x = np.array(seen)[:, 0, 0]
    assert np.corrcoef(x[:-1], x[1:])[0, 1] > 0.3  # white noise would be near 0
    assert int(carried["time"][0]) == 400 and int(carried["time"][1]) == 200


def test_adding_a_part_changes_no_other_stream() -> None:
    plain, bee = agent("sac", network="bac"), agent("bac")
    one, two = plain.init(3), bee.init(3)
    assert leaves_equal(one.actor, two.actor) and leaves_equal(one.critic, two.critic)


def test_option_tables_agree_with_the_operators() -> None:
    assert set(EXPLOITS) == set(operators.EXPLOIT)
