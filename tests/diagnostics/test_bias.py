"""Returns, cutoffs, normalisation and sign changes by hand; measured pairs against episodes played by hand."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from toys import Walk

from beeline import agents, envs
from beeline.diagnostics import bias
from beeline.diagnostics.probe import Probe
from beeline.errors import ConfigError, EnvError
from beeline.memory import Clock
from beeline.rng import root as root_key
from beeline.run.build import spaces_of


def test_plain_returns_by_hand() -> None:
    np.testing.assert_allclose(bias.discounted_returns([1.0, 2.0, 4.0], 0.5), [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4.0])


def test_soft_returns_leave_out_the_first_actions_entropy() -> None:
    # G_2 = 4; G_1 = 2 + ½(4 + 30); G_0 = 1 + ½(19 + 20); the bonus 10 of the first action is nowhere
    soft = bias.discounted_returns([1.0, 2.0, 4.0], 0.5, [10.0, 20.0, 30.0])
    np.testing.assert_allclose(soft, [20.5, 19.0, 4.0])


def test_a_timeout_goes_on_with_the_value_of_the_last_state() -> None:
    np.testing.assert_allclose(bias.discounted_returns([1.0, 2.0], 0.5, bootstrap=8.0), [1 + 0.5 * 6, 2 + 0.5 * 8])
    soft = bias.discounted_returns([1.0, 2.0], 0.5, [9.0, 4.0], bootstrap=8.0 + 6.0)  # the last state's value and its bonus
    np.testing.assert_allclose(soft, [1 + 0.5 * (9 + 4), 2 + 0.5 * 14])
    assert bias.discounted_returns([], 0.5).size == 0


def test_the_cutoff_of_the_specification() -> None:
    assert bias.horizon(0.99) == 647  # log .0015 / log .99 = 646.98
    assert 0.99**647 <= 0.0015 < 0.99**646
    assert bias.kept(1000, 1000, 0.99) == 354  # t = 0 … 353: 647 steps or more are left
    assert bias.kept(100, 1000, 0.99) == 100  # an episode that ended early counts whole
    assert bias.horizon(1.0) == math.inf and bias.horizon(0.0) == 1
    assert bias.kept(20, 20, 0.5) == 11  # .5^10 = .00098
    assert bias.kept(20, 20, 0.0) == 20


@pytest.mark.parametrize(
    ("limit", "gamma", "short"), [(1000, 0.99, False), (500, 0.99, True), (None, 0.99, True), (1000, 1.0, True)]
)
def test_short_tasks_are_bootstrapped_and_keep_all(limit: int | None, gamma: float, short: bool) -> None:
    assert bias.is_short(limit, gamma) is short
    if short:
        assert bias.kept(123, limit, gamma) == 123


def test_normalised_gap_by_hand() -> None:
    assert bias.normalised(np.array([-3.0, -5.0]), np.array([30.0, 50.0])) == -4 / 40
    assert bias.normalised(np.array([2.0]), np.array([-1.0])) == 2 / 10  # never by less than 10
    assert bias.normalised(np.array([2.0]), np.array([-40.0])) == 2 / 40


def test_sign_changes_by_hand() -> None:
    found = bias.sign_changes([0, 10, 20, 30, 40], [3.0, 1.0, -1.0, -2.0, 2.0])
    assert found == [bias.SignChange(15.0, True), bias.SignChange(35.0, False)]
    assert bias.sign_changes([0, 10, 30], [1.0, 0.0, -3.0]) == [bias.SignChange(7.5, True)]  # zero has no sign of its own
    assert bias.sign_changes([0, 10], [0.0, 0.0]) == bias.sign_changes([], []) == []
    assert bias.sign_changes([0, 10], [1.0, 2.0]) == []


def test_row_by_hand() -> None:
    pairs = bias.Pairs(np.array([[10.0, 20.0], [14.0, 18.0]]), plain=np.array([20.0, 20.0]), soft=np.array([10.0, 10.0]))
    row = pairs.row(soft=True)
    assert row["diag/q_min"] == 14 and row["diag/q_mean"] == 15.5
    assert row["diag/gap_min"] == -6 and row["diag/gap_min_norm"] == -0.3 and row["diag/gap_mean"] == -4.5
    assert row["diag/gap_std"] == 4 and row["diag/pairs"] == 2
    assert row["diag/soft_gap_min"] == 4 and row["diag/soft_gap_mean_norm"] == 0.55 and row["diag/soft_return"] == 10
    assert not [name for name in pairs.row(soft=False) if "soft" in name]


# --- on an environment ------------------------------------------------------------------------------------------------


def set_up(algo: str, **options: Any) -> tuple[Probe, Any, gymnasium.Env]:
    env = envs.make("toys:Walk-v0?limit=20")
    algorithm = agents.get(algo)
    agent = algorithm.build(algorithm.config.make({"hidden": (8, 8)} | options), spaces_of(env))
    return Probe(agent), agent.init(0), env


def measure(probe: Probe, state: Any, env: gymnasium.Env, step: int = 5, pairs: int = 30) -> bias.Pairs:
    return bias.measure(probe, state, env, root=root_key(3), seed=3, step=step, pairs=pairs)


@pytest.mark.parametrize(("algo", "gamma"), [("sac", 0.5), ("sac", 0.99), ("td3", 0.99)])
def test_measured_returns_are_those_of_the_episodes(algo: str, gamma: float) -> None:
    """γ = .5: 20-step episodes are cut to 11 pairs. γ = .99: they are short, and timeouts are bootstrapped."""
    probe, state, env = set_up(algo, gamma=gamma, reward_scale=2.0)
    found = measure(probe, state, env)
    plain, soft, number = [], [], 0
    while len(plain) < 30:
        episode = bias.play(probe, state, env, root_key(3), 3, 5, number)
        tail = tail_bonus = 0.0
        if gamma == 0.99 and not episode.terminated:
            action, tail_bonus = probe.act(probe.acting(state), root_key(3), (5, number, len(episode.reward)), episode.last_obs)
            tail = float(probe.q(state, episode.last_obs[None], action[None]).min())
        count, length = (11 if gamma == 0.5 else 20), len(episode.reward)
        for t in range(min(count, length)):  # the definition, term by term, forward
            weight = gamma ** np.arange(length - t)
            plain.append(weight @ (2.0 * episode.reward[t:]) + gamma ** (length - t) * tail)
            extra = (weight[1:] @ episode.bonus[t + 1 :]) + gamma ** (length - t) * tail_bonus
            soft.append(plain[-1] + extra)
        number += 1
    np.testing.assert_allclose(found.plain, plain, rtol=1e-9)
    np.testing.assert_allclose(found.soft, soft, rtol=1e-9)
    assert found.q.shape == (2, len(plain))
    if algo == "td3":
        np.testing.assert_array_equal(found.soft, found.plain)
    else:
        assert np.abs(found.soft - found.plain).max() > 0.1


def test_td3_acts_without_noise_and_sac_samples() -> None:
    for algo, same in (("td3", True), ("sac", False)):
        probe, state, env = set_up(algo)
        episode = bias.play(probe, state, env, root_key(3), 3, 5, 0)
        policy, first = probe.agent.policy(state), np.zeros(len(episode.obs), bool)
        greedy, _, _ = probe.agent.act(policy, (), episode.obs, first, Clock(0), "greedy")
        assert np.allclose(episode.action, greedy, atol=1e-6) is same


def test_measures_are_functions_of_seed_and_step() -> None:
    probe, state, env = set_up("sac")
    first = measure(probe, state, env)
    measure(probe, state, env, step=6)
    np.testing.assert_array_equal(measure(probe, state, env).plain, first.plain)
    assert measure(probe, state, env, step=6).plain[0] != first.plain[0]


def test_errors_say_that_it_was_a_diagnosis() -> None:
    probe, state, _ = set_up("sac")
    for fault, told in (("raise", "the motor is hot"), ("nan reward", "the reward is nan")):
        with pytest.raises(EnvError, match=f"in an episode of a diagnosis.*{told}"):
            measure(probe, state, envs.make(lambda fault=fault: Walk(fault, at=7)))
    with pytest.raises(ConfigError, match="no Q to read"):
        Probe(object())
