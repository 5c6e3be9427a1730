"""RRS: the update against its plain form, shifted targets by hand, and when which pair of critics judges the policy."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import plain
import pytest
from states import SPACES, agent, assert_same, batch, elsewhere, learn, leaves_equal, noise_of, one, read
from whole_runs import small

import beeline
from beeline.agents import get, make_config
from beeline.agents.base import Judged, Task
from beeline.agents.options import BLENDS, EXPLOITS
from beeline.agents.rrs import SEVEN
from beeline.api import model as model_of
from beeline.cli import main
from beeline.diagnostics.delta import Fit
from beeline.diagnostics.monitor import Diagnoser, Effort
from beeline.errors import ConfigError
from beeline.memory import Batch, Clock, Data
from beeline.run.record import read_metrics

SHIFTS = (-0.5, 0.25, 1.0)


# --- an independent plain form ----------------------------------------------------------------------------------------


def member(state: plain.Arrays, part: str, which: str, *place: int) -> plain.Arrays:
    """The weights of one network of an ensemble."""
    return {name: w[place] for name, w in plain.below(state, f"{part}/{which}/").items()}


def stacked(gradients: dict[tuple[int, ...], plain.Arrays], *shape: int) -> plain.Arrays:
    """The gradients of an ensemble from those of its members, by their places."""
    names = gradients[(0,) * len(shape)]
    return {
        name: np.stack([gradients[place][name] for place in np.ndindex(shape)]).reshape(*shape, *names[name].shape)
        for name in names
    }


def plain_update(
    before: plain.Arrays, b: Batch, noise: plain.Arrays, s: plain.Settings, shifts: tuple[float, ...], selected: int
) -> tuple[plain.Arrays, dict[str, float]]:
    """One update, pair by pair: y_k = r + b_k + γ m min_j Q̄_kj(s', ã'), and the policy under Q_{k*,1} alone."""
    state = {name: np.asarray(array, np.float64) for name, array in before.items()}
    number, size, count = int(state["updates"]) + 1, len(b.reward), len(shifts)
    obs, action, next_obs, discount = (np.asarray(x, np.float64) for x in (b.obs, b.action, b.next_obs, b.discount))
    here = np.concatenate([obs, action], -1)

    # ã' of TD3
    smoothing = np.clip(s.smoothing_noise * noise["explore"], -s.smoothing_clip, s.smoothing_clip)
    followed = np.tanh(plain.Network(plain.below(state, "policy/target/"), next_obs, s.network).output)
    there = np.concatenate([next_obs, np.clip(followed + smoothing, -1.0, 1.0)], -1)

    def q(which: str, k: int, j: int, x: np.ndarray) -> plain.Network:
        return plain.Network(member(state, "critic", which, k, j), x, s.network)

    def smaller(which: str, k: int, x: np.ndarray) -> np.ndarray:
        return np.minimum(q(which, k, 0, x).output[:, 0], q(which, k, 1, x).output[:, 0])

    y, here_q, exploit, explore, worst = [], [], [], [], []
    following = [smaller("target", k, there) for k in range(count)]
    for k, shift in enumerate(shifts):
        reward = s.reward_scale * np.asarray(b.reward, np.float64) + shift
        explore.append(reward + discount * following[k])
        here_q.append(smaller("target", k, here))
        worst.append(smaller("live", k, here))
        if s.bee:
            v = plain.Network(member(state, "value", "live", k), next_obs, s.network).output[:, 0]
            exploit.append(reward + discount * v)
    numbers = {"shift": shifts[selected]}
    y = np.stack(explore)
    if s.bee:
        deltas = {"ada": np.stack(here_q) - np.stack(worst), "ada_h2o": np.stack(following) - np.stack(worst)}
        lam = plain.blend(state, s, np.stack(exploit), np.stack(explore), deltas)
        y = lam * np.stack(exploit) + (1 - lam) * np.stack(explore)
        numbers["lambda"] = lam.mean()
    numbers["q/target"] = y.mean()

    # L_Q = Σ_j mean over [B, K] of (Q_kj − y_k)²; L_V = mean over [B, K] of w u²
    gradients = {}
    for k, j in np.ndindex(count, 2):
        network = q("live", k, j, here)
        gradients[k, j] = network.gradients(2 * (network.output - y[k][:, None]) / (size * count))[0]
    value_gradients = {}
    for k in range(count if s.bee else 0):
        value = plain.Network(member(state, "value", "live", k), obs, s.network)
        u = here_q[k] - value.output[:, 0]
        weight = np.where(u >= 0, s.expectile, 1 - s.expectile)
        value_gradients[(k,)] = value.gradients((-2 * weight * u / (size * count))[:, None])[0]
    plain.adam(state, "critic", stacked(gradients, count, 2), s.critic_lr, s.grad_clip)
    if s.bee:
        plain.adam(state, "value", stacked(value_gradients, count), s.value_lr, s.grad_clip)

    if number % s.policy_interval == 0:  # L_π = −mean Q_{k*,1}(s, π(s)), under the new critics
        policy = plain.Network(plain.below(state, "policy/live/"), obs, s.network)
        chosen = np.tanh(policy.output)
        _, g = q("live", selected, 0, np.concatenate([obs, chosen], -1)).gradients(np.full((size, 1), -1 / size))
        gradient = policy.gradients(g[:, obs.shape[-1] :] * (1 - chosen**2))[0]
        plain.adam(state, "policy", gradient, s.actor_lr, s.grad_clip)
    if number % s.target_interval == 0:
        for name in [name for name in state if "/target/" in name]:
            state[name] = s.tau * state[name.replace("/target/", "/live/")] + (1 - s.tau) * state[name]
    state["updates"] = np.float64(number)
    return state, numbers


RATES = {"actor_lr": 0.01, "critic_lr": 0.02, "tau": 0.1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "rrs-mlp": ("rrs", RATES | {"network": "mlp", "reward_scale": 2.0}),
    "rrs-bac": ("rrs", RATES | {"network": "bac", "grad_clip": 0.3, "target_interval": 1}),
    "bee-rrs-mlp": ("bee-rrs", RATES | {"network": "mlp", "value_lr": 0.04, "lam": 0.4, "expectile": 0.8}),
    "bee-rrs-ada": ("bee-rrs", RATES | {"network": "bac", "value_lr": 0.04, "blend": "ada", "policy_updates_per_step": 1}),
    "bee-rrs-h2o": ("bee-rrs", RATES | {"network": "mlp", "value_lr": 0.04, "blend": "ada_h2o"}),
}


def judged_by(state: Any, selected: int) -> Any:
    return dataclasses.replace(state, host=state.host | {"selected": np.int32(selected)})


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification_in_every_number(case: str) -> None:
    algo, options = CASES[case]
    a = agent(algo, shifts=SHIFTS, **options)
    delays = {"policy_updates_per_step": 0.5, "target_interval": 2}
    own = {name: value for name, value in options.items() if name != "lam"}
    s = plain.Settings(algo, action_scale=(2.0, 0.4), **delays | own)
    state = elsewhere(a.init(0), 1)
    expected, start = read(state), read(state)
    for number, selected in enumerate((1, 2, 0, 2)):
        state = judged_by(state, selected)
        b = batch(seed=number)._replace(extras=None)
        expected, numbers = plain_update(expected, one(b), noise_of(state, 1), s, SHIFTS, selected)
        state, metrics = learn(a, state, b)
        assert_same(read(state), expected, f"update {number + 1} of {case}")
        for name in numbers.keys() & metrics.keys():
            np.testing.assert_allclose(metrics[name], numbers[name], rtol=1e-5, atol=5e-6, err_msg=name)
    moved = {name for name in expected if not np.array_equal(expected[name], start[name])}
    assert moved == expected.keys() - {"blend/lam"}


# --- targets ----------------------------------------------------------------------------------------------------------


def by_hand() -> Batch:
    """Two transitions, the second one terminal."""
    column = np.zeros((2, 1), np.float32)
    return Batch(column, column, np.array([1.0, -2.0], np.float32), np.array([0.5, 0.0], np.float32), column)


def test_each_pair_has_its_own_target_and_the_shift_is_there_at_the_end_too() -> None:
    a = agent("rrs", shifts=(-1.0, 2.0))
    q = jnp.array([[[4.0, 9.0], [6.0, 1.0]], [[-8.0, 3.0], [2.0, 7.0]]])  # minima 4, 1 and −8, 3
    terms = a.backup.terms(None, by_hand(), (), [q])
    np.testing.assert_array_equal(terms.value, [[4.0, 1.0], [-8.0, 3.0]])
    np.testing.assert_array_equal(terms.target, [[1 - 1 + 2, -2 - 1], [1 + 2 - 4, -2 + 2]])


def test_the_critics_of_one_shift_of_zero_are_those_of_td3() -> None:
    a, b = agent("rrs", shifts=(0.0,)), agent("td3")
    one, told = learn(a, a.init(0), batch(updates=4)._replace(extras=None))
    two, also = learn(b, b.init(0), batch(updates=4)._replace(extras=None))
    for name, array in read(two).items():
        np.testing.assert_allclose(read(one)[name].reshape(array.shape), array, rtol=1e-5, atol=1e-7, err_msg=name)
    np.testing.assert_allclose(told["q/target"], also["q/target"], rtol=1e-6)


def test_lambda_one_is_the_shifted_reward_and_the_v_of_the_same_shift() -> None:
    a, b = agent("bee-rrs", lam=1.0, shifts=SHIFTS), batch()._replace(extras=None)
    state = elsewhere(a.init(0), 0)
    state = dataclasses.replace(state, backup=state.backup | {"blend": {"lam": jnp.float32(1.0)}})
    values = [plain.Network(member(read(state), "value", "live", k), b.next_obs[0], "mlp").output[:, 0] for k in range(3)]
    expected = [b.reward[0] + shift + b.discount[0] * v for shift, v in zip(SHIFTS, values)]
    assert max(np.abs(values[0] - values[1]).max(), np.abs(values[1] - values[2]).max()) > 0.1
    scaled = a.scaled(state.host, one(b))
    pairs, seen = a.backup.look(state, scaled, noise_of(state, 1))
    terms = a.backup.terms(state, scaled, seen, a.ask(state.critic.target, pairs))
    y, _, _ = a.backup.target(state.backup, terms, jnp.zeros((3, 32)))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    _, metrics = learn(a, state, b)
    np.testing.assert_allclose(metrics["q/target"], np.mean(expected), rtol=1e-5)


# --- who moves whom ---------------------------------------------------------------------------------------------------


def test_the_selected_pair_moves_the_policy_alone() -> None:
    a, b = agent("bee-rrs", shifts=SHIFTS, policy_updates_per_step=1, target_interval=3), batch()._replace(extras=None)
    found = [learn(a, judged_by(a.init(0), k), b)[0] for k in range(3)]
    for k in (1, 2):
        assert not leaves_equal(found[0].actor.live, found[k].actor.live)
        assert leaves_equal(found[0].critic, found[k].critic) and leaves_equal(found[0].backup, found[k].backup)


def test_the_other_critics_do_not_judge_the_policy() -> None:
    a, b = agent("rrs", shifts=SHIFTS, policy_updates_per_step=1), batch()._replace(extras=None)
    state = a.init(0)

    def with_noise(k: int, j: int) -> Any:
        other = [{name: leaf.at[k, j].add(0.5) for name, leaf in layer.items()} for layer in state.critic.live]
        return a.objective.loss(state.actor.live, (), judged_by(state, 1), tuple(other), one(b), None)[0]

    plainly = a.objective.loss(state.actor.live, (), judged_by(state, 1), state.critic.live, one(b), None)[0]
    assert [with_noise(k, j) == plainly for k in range(3) for j in range(2)] == [True, True, False, True, True, True]


def test_the_exploit_loss_moves_v_alone() -> None:
    b = batch()._replace(extras=None)
    one, two = (learn(a, a.init(0), b)[0] for a in (agent("bee-rrs", expectile=each) for each in (0.6, 0.9)))
    assert not leaves_equal(one.backup, two.backup)
    assert leaves_equal(one.critic, two.critic) and leaves_equal(one.actor, two.actor)


# --- which pair judges ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Step:
    terminated: bool = False
    truncated: bool = False


def after(a: Any, state: Any, steps: list[Step], step: int, seed: int = 0) -> Any:
    return a.notice(state, {}, steps, np.zeros((len(steps), 5), np.float32), Clock(seed, step, decisions=step))


def test_a_pair_is_drawn_at_the_start_and_at_the_end_of_an_episode_after_enough_steps() -> None:
    a = agent("rrs", switch_every=100)
    begun = after(a, a.init(0), [], 0)
    selected = {int(after(a, a.init(0), [], 0, seed).host["selected"]) for seed in range(100)}
    assert selected == set(range(7))
    for step, steps, drawn in (
        (99, [Step(truncated=True)], False),  # too early
        (100, [Step()], False),  # in an episode
        (100, [Step(truncated=True)], True),
        (100, [Step(terminated=True)], True),
        (250, [Step(), Step(terminated=True)], True),  # in one of two lanes
    ):
        found = after(a, begun, steps, step).host
        assert int(found["drawn_at"]) == (step if drawn else 0)
        if not drawn:
            assert found["selected"] == begun.host["selected"]
    later = after(a, begun, [Step(truncated=True)], 150)
    assert int(after(a, later, [Step(truncated=True)], 249).host["drawn_at"]) == 150
    assert int(after(a, later, [Step(truncated=True)], 250).host["drawn_at"]) == 250


def test_pairs_are_drawn_uniformly_and_as_functions_of_seed_and_step() -> None:
    a = agent("rrs", switch_every=1)
    state = a.init(0)
    drawn = [int(after(a, state, [Step(truncated=True)], step).host["selected"]) for step in range(1, 7001)]
    counts = Counter(drawn)
    assert sorted(counts) == list(range(7))
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 22.5  # χ² with 6 degrees of freedom, p = .001
    again = [int(after(a, state, [Step(truncated=True)], step).host["selected"]) for step in range(1, 200)]
    other = [int(after(a, state, [Step(truncated=True)], step, seed=1).host["selected"]) for step in range(1, 200)]
    assert again == drawn[:199] != other


def test_a_run_switches_at_ends_of_episodes_and_goes_on_with_its_pair(tmp_path: Path) -> None:
    class Watch(beeline.Callback):
        def __init__(self, stop: int) -> None:
            self.stop, self.seen = stop, {}

        def on_step(self, event: beeline.StepEvent) -> bool:
            ended = any(each.terminated or each.truncated for each in event.transitions)
            self.seen[event.step] = (int(event.trainer.state.host["selected"]), int(event.trainer.state.host["drawn_at"]), ended)
            return event.step < self.stop

    options = small("rrs", switch_every=25, steps=200)
    whole, half, rest = Watch(10**9), Watch(90), Watch(10**9)
    beeline.train("rrs", "toys:Walk-v0", out=tmp_path / "whole", callbacks=[whole], **options)
    beeline.train("rrs", "toys:Walk-v0", out=tmp_path / "run", callbacks=[half], **options)
    beeline.resume(tmp_path / "run", callbacks=[rest])
    assert half.seen | rest.seen == whole.seen and min(rest.seen) > max(half.seen)
    drawn = sorted({at for _, at, _ in whole.seen.values()})
    assert len(drawn) > 3 and all(later - at >= 25 for at, later in zip(drawn, drawn[1:]))
    assert all(whole.seen[at][2] for at in drawn if at)
    logged = {row["shift"] for row in read_metrics(tmp_path / "whole" / "metrics.csv") if row["shift"] is not None}
    assert len(logged) > 1 and all(any(abs(shift - each) < 1e-6 for each in SEVEN) for shift in logged)


# --- options and instruments ------------------------------------------------------------------------------------------


def test_presets_and_lists() -> None:
    paper = make_config("rrs", "dmc/walker-run", "paper", {})
    np.testing.assert_allclose(paper.shifts, np.linspace(-0.5, 0.5, 7), atol=1e-12)
    assert (paper.hidden, paper.batch_size, paper.critic_lr, paper.random_steps, paper.learn_after) == (
        (256, 256), 256, 3e-4, 25_000, 25_000,
    )  # fmt: skip
    assert (paper.switch_every, paper.lam, get("bee-rrs").config().lam) == (1_000, 0.0, 0.5)
    with pytest.raises(ConfigError, match="n_step = 3"):
        make_config("rrs", "gym/Hopper-v5", None, {"n_step": 3})
    with pytest.raises(ConfigError, match=r"shifts = 'a,b' is not numbers separated by commas"):
        make_config("rrs", "gym/Hopper-v5", None, {"shifts": "a,b"})


@pytest.mark.parametrize("words", [["--shifts=-0.5,0,0.5"], ["--shifts", "-0.5,0,0.5"], ["--shifts", "-.5,0,.5"]])
def test_shifts_on_the_command_line(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def train(algo: str, env: str, **options: Any) -> Any:
        given.update(options)
        raise ConfigError("enough")

    monkeypatch.setattr("beeline.api.train", train)
    assert main(["train", "rrs", "toys:Walk-v0", *words]) == 2
    assert make_config("rrs", "toys:Walk-v0", None, {"shifts": given["shifts"]}).shifts == (-0.5, 0.0, 0.5)


def test_instruments_read_the_pair_with_the_smallest_shift() -> None:
    b = one(batch())
    for shifts, nearest in ((SEVEN, 3), ((1.0, -0.5, 2.0), 1)):
        for ends, gamma in ((True, 0.9), (False, 0.9)):
            a = agent("bee-rrs", Task(SPACES, ends=ends), shifts=shifts, gamma=gamma)
            assert isinstance(a, Judged)
            state = a.init(0)
            x = np.concatenate([b.obs, b.action], -1)
            q = [plain.Network(member(read(state), "critic", "live", nearest, j), x, "mlp").output[:, 0] for j in (0, 1)]
            v = plain.Network(member(read(state), "value", "live", nearest), b.obs, "mlp").output[:, 0]
            surplus = 0.0 if ends else shifts[nearest] / (1 - 0.9)
            np.testing.assert_allclose(a.q(state, b.obs, b.action), np.stack(q) - surplus, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(a.v(state, b.obs), v - surplus, rtol=1e-5, atol=1e-5)
            assert a.lam(state, b, a.init(0).key).shape == (len(shifts), 32)


def test_a_diagnosis_of_it() -> None:
    options = small("bee-rrs", blend="ada", diagnose=100)
    steps = options.pop("steps")
    model = model_of("bee-rrs")("toys:Walk-v0", **options)
    effort = Effort(pairs=20, states=64, batches=2, passive=Fit(steps=5))
    model.trainer.diagnoser = Diagnoser(model.trainer.agent, model.trainer.diagnoser.env, 0, effort)
    model.learn(steps)
    [row] = [row for row in model.metrics if row.get("diag/pairs") is not None]
    assert 0.0 <= row["diag/lambda_p50"] <= 1.0 and np.isfinite(row["diag/gap_min"]) and np.isfinite(row["diag/delta_own"])


@pytest.mark.parametrize(
    ("exploit", "blend"), [*((each, "fixed") for each in EXPLOITS), *(("expectile", each) for each in BLENDS if each != "fixed")]
)
def test_every_estimator_and_blend_works_with_a_target_per_shift(exploit: str, blend: str) -> None:
    a = agent("bee-rrs", exploit=exploit, blend=blend, shifts=SHIFTS, hidden=(8,))
    state, told = a.update(a.init(0), Data(batch(updates=4)._replace(extras=None), 0))
    assert set(told) == set(a.metric_names) and all(np.isfinite(each) for each in told.values())
    y, targets = float(told["q/target"]), (float(told["q/exploit_target"]), float(told["q/explore_target"]))
    if blend in ("min", "max"):
        assert y <= min(targets) + 1e-5 if blend == "min" else y >= max(targets) - 1e-5
    if blend.startswith("ada") and blend != "ada_batch":
        assert state.backup["blend"]["delta"].shape == (3, 32)


@pytest.mark.parametrize("algo", ["rrs", "bee-rrs"])
def test_learns_the_best_action_of_a_task_of_one_step(algo: str) -> None:
    """Reward −Σ (a − c)² and then the end: within 3,000 updates the policy has c, and critics differ by their shifts."""
    a = agent(algo, actor_lr=3e-3, critic_lr=3e-3, shifts=SHIFTS, lam=0.0 if algo == "rrs" else 0.5)
    best, r = np.array([0.5, -0.25]), np.random.default_rng(0)
    obs, action = r.normal(size=(3000, 32, 5)).astype(np.float32), r.uniform(-1, 1, (3000, 32, 2)).astype(np.float32)
    reward = -np.square(action - best).sum(-1).astype(np.float32)
    data = Batch(obs, action, reward, np.zeros((3000, 32), np.float32), obs)
    state = judged_by(a.init(0), 2)
    state, _ = a.update(state, Data(data, 0))
    found, _, _ = a.act(a.policy(state), a.begin(32), obs[0], np.ones(32, bool), Clock(0, 10**6), "greedy")
    np.testing.assert_allclose(np.asarray(found).mean(0), best, atol=0.1)
    q = np.asarray(a.critic.q(state.critic.live, obs[0], action[0])).mean((1, 2))
    np.testing.assert_allclose(q - reward[0].mean(), SHIFTS, atol=0.1)
