"""TRPO: its parts on problems with known answers, whole updates against a plain form, and what does not apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ppo import SPACES, Play, backward, density, forward, numpy
from toys import LIMIT, Walk

import beeline as api
from beeline import agents, trees
from beeline.agents.base import Task
from beeline.agents.natural import TrustRegion, conjugate_gradient, trust_step
from beeline.agents.trpo import TRPOConfig
from beeline.agents.trust import TRPO
from beeline.cli import main
from beeline.errors import ConfigError
from beeline.run.plan import Plan
from beeline.run.policy import load_policy

SMALL: dict[str, Any] = {
    "hidden": (8, 8), "policy_hidden": (8,), "rollout": 48, "batch_size": 12, "epochs": 2, "steps": 400, "eval_every": 130,
    "eval_episodes": 2, "log_every": 7, "checkpoint_every": 60, "replay_capacity": 1_000, "tensorboard": False,
}  # fmt: skip


def made(lanes: int = 2, **options: Any) -> TRPO:
    config = TRPOConfig(**{"hidden": (8, 6), "policy_hidden": (6,), "rollout": 26, "batch_size": 6, **options})
    return agents.get("trpo").build(config, Task(SPACES, lanes=lanes))


# --- the step on problems with known answers ----------------------------------------------------------------------------


def positive(seed: int, size: int = 10) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return (root @ root.T / size + np.eye(size)).astype(np.float32)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_conjugate_gradients_solve_ten_equations_in_ten_steps(seed: int) -> None:
    matrix, b = positive(seed), np.random.default_rng(seed + 1).normal(size=10).astype(np.float32)
    found = conjugate_gradient(lambda x: jnp.asarray(matrix) @ x, jnp.asarray(b), 10)
    np.testing.assert_allclose(found, np.linalg.solve(np.float64(matrix), b), rtol=0, atol=2e-5)


def test_conjugate_gradients_by_hand() -> None:
    """F = diag(1, 4), b = (1, 1): the first step is 2/5 b; an exact residual ends it, and b = 0 stays at 0."""
    matrix = jnp.array([1.0, 4.0])
    np.testing.assert_allclose(conjugate_gradient(lambda x: matrix * x, jnp.ones(2), 1), [0.4, 0.4], rtol=1e-6)
    np.testing.assert_allclose(conjugate_gradient(lambda x: matrix * x, jnp.ones(2), 50), [1.0, 0.25], rtol=1e-6)
    assert not np.any(conjugate_gradient(lambda x: matrix * x, jnp.zeros(2), 10))


def test_the_full_step_on_a_linear_surrogate_and_a_quadratic_divergence() -> None:
    """√(2δ / xᵀFx) F⁻¹ g, taken at the first try: its divergence without damping is δ."""
    matrix, g = positive(3), np.random.default_rng(5).normal(size=10).astype(np.float32)
    start = {"a": jnp.arange(4.0), "b": jnp.full((3, 2), 0.5)}
    flat = jax.flatten_util.ravel_pytree(start)[0]

    def divergence(params: Any) -> Any:
        d = jax.flatten_util.ravel_pytree(params)[0] - flat
        return 0.5 * d @ matrix @ d

    moved, told = trust_step(
        start, lambda p: jax.flatten_util.ravel_pytree(p)[0] @ g, divergence, TrustRegion(damping=0.0, radius=0.02)
    )
    x = np.linalg.solve(np.float64(matrix), g)
    wanted = flat + np.sqrt(2 * 0.02 / (g @ x)) * x
    np.testing.assert_allclose(jax.flatten_util.ravel_pytree(moved)[0], wanted, atol=2e-5)
    assert told["step/kl"] == pytest.approx(0.02, rel=1e-4) and told["step/share"] == 1.0 and told["step/tries"] == 1
    assert told["step/gain"] == pytest.approx(float(np.sqrt(2 * 0.02 * (g @ x))), rel=1e-4)


def test_the_line_search_halves_until_both_conditions_hold_or_gives_up() -> None:
    """In one dimension: F = 2 gives x = g / 2 and a full step of √(2δ/2) = .1 for δ = .01."""
    region = TrustRegion(damping=0.0, slack=1.5)
    # The divergence x² + 1000 x⁴ is .11 at .1 and .00875 at .05
    steep, told = trust_step(jnp.zeros(1), lambda x: x[0], lambda x: x[0] ** 2 + 1e3 * x[0] ** 4, region)
    assert told["step/share"] == 0.5 and told["step/tries"] == 2 and steep[0] == pytest.approx(0.05, rel=1e-5)
    # A surrogate that has risen up to .02 alone: x − 25 x² is not above 0 at .1 and .05, and is at .025
    curved, told = trust_step(jnp.zeros(1), lambda x: x[0] - 25.0 * x[0] ** 2, lambda x: x[0] ** 2, region)
    assert told["step/share"] == 0.25 and curved[0] == pytest.approx(0.025, rel=1e-5)
    # Lower everywhere but at 0 itself: nothing moves after ten tries
    kink = lambda x: x[0] - 1e6 * jax.lax.stop_gradient(jnp.abs(x[0]))  # noqa: E731
    stays, told = trust_step(jnp.zeros(1), kink, lambda x: x[0] ** 2, region)
    assert stays[0] == 0.0 and told["step/tries"] == 10 and told["step/share"] == told["step/kl"] == told["step/gain"] == 0.0
    # No number, no step
    stays, told = trust_step(jnp.zeros(1), lambda x: x[0], lambda x: x[0] ** 2 + jnp.where(x[0] == 0.0, 0.0, jnp.nan), region)
    assert stays[0] == 0.0 and told["step/share"] == 0.0


def test_the_divergence_by_hand() -> None:
    """KL(N(0, 1) ‖ N(1, 2²)) = log 2 + (1 + 1) / 8 − ½."""
    net = made().net
    params = net.init(api_draw(), 3, 2)
    params = jax.tree.map(jnp.zeros_like, params) | {"log_std": jnp.log(jnp.array([2.0, 1.0]))}
    old = (jnp.array([[1.0, 0.0]]), jnp.zeros(2))
    wanted = np.log(2.0) + 2 / 8 - 0.5
    np.testing.assert_allclose(net.divergence(old, params, jnp.zeros((1, 3))), [wanted], rtol=1e-6)


def api_draw() -> Any:
    from beeline.networks import Draw

    return Draw(0, "test")


# --- whole updates against a plain form ---------------------------------------------------------------------------------


class Plain:
    """TRPO in NumPy and float64: the Fisher matrix is written out, the policy's gradients are by hand."""

    def __init__(self, agent: TRPO, state: Any) -> None:
        self.config, self.policy = agent.config, numpy(state.policy.live)
        moments = state.value.opt[0]
        self.value, self.m, self.v = numpy(state.value.live), numpy(moments.mu), numpy(moments.nu)
        self.count = int(moments.count)
        self.scale = np.sqrt(state.host["returns"]["variance"][0] + 1e-8)
        self.statistics = state.host["statistics"]

    def seen(self, obs: np.ndarray) -> np.ndarray:
        scaled = (np.asarray(obs, np.float64) - self.statistics["mean"]) / np.sqrt(self.statistics["variance"] + 1e-8)
        return np.clip(scaled, -10, 10)

    def rows(self, told: list[list[dict[str, Any]]]) -> dict[str, np.ndarray]:
        """The rollout lane by lane, with advantages and V's targets."""
        config, rows = self.config, []
        for lane in range(len(told[0])):
            later, of_lane = 0.0, []
            for each in (step[lane] for step in reversed(told)):
                v, after = (forward(self.value, self.seen(each[name])[None])[-1][0, 0] for name in ("obs", "next_obs"))
                ended = each["terminated"] or each["truncated"]
                reward = np.clip(each["reward"] / self.scale, -10, 10)
                delta = reward + config.gamma * (not each["terminated"]) * after - v
                later = delta + config.gamma * config.gae * (not ended) * later
                of_lane.append({"obs": self.seen(each["obs"]), "action": each["unclipped"], "adv": later, "target": later + v})
            rows += reversed(of_lane)
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    def step_policy(self, rows: dict[str, np.ndarray]) -> dict[str, float]:
        config, policy, n = self.config, self.policy, len(rows["adv"])
        advantage = (rows["adv"] - rows["adv"].mean()) / rows["adv"].std()
        layers, sigma = forward(policy["mean"], rows["obs"]), np.exp(policy["log_std"])
        mean, action = layers[-1], rows["action"]
        z = (action - mean) / sigma
        by = {
            "mean": backward(policy["mean"], layers, advantage[:, None] * z / sigma / n),
            "log_std": (advantage[:, None] * (z**2 - 1)).mean(axis=0) + config.entropy_weight,
        }
        g, unravel = jax.flatten_util.ravel_pytree(by)
        g = np.array(g, np.float64)
        fisher = np.zeros((g.size, g.size))
        for row in range(n):  # Σ_j ∇μ_j ∇μ_jᵀ / σ_j², one row and one action at a time
            for j in range(mean.shape[1]):
                one = np.zeros((1, mean.shape[1]))
                one[0, j] = 1.0
                here = [each[row : row + 1] for each in layers]
                slope = {"mean": backward(policy["mean"], here, one), "log_std": np.zeros_like(sigma)}
                d = np.array(jax.flatten_util.ravel_pytree(slope)[0], np.float64)
                fisher += np.outer(d, d) / sigma[j] ** 2 / n
        of_sigma = np.array(jax.flatten_util.ravel_pytree({"mean": jax.tree.map(np.zeros_like, by["mean"]),
                                                           "log_std": np.ones_like(sigma)})[0])  # fmt: skip
        fisher += np.diag(2.0 * of_sigma) + config.damping * np.eye(g.size)

        x, r = np.zeros_like(g), g.copy()
        p, square = r.copy(), r @ r
        for _ in range(config.cg_iterations):
            image = fisher @ p
            share = square / (p @ image)
            x, r = x + share * p, r - share * image
            after = r @ r
            if after < 1e-10:
                break
            p, square = r + after / square * p, after
        full = np.sqrt(2 * config.radius / (x @ fisher @ x)) * x
        old = density(mean, policy["log_std"], action)

        def judged(candidate: Any) -> tuple[float, float]:
            there, spread = forward(candidate["mean"], rows["obs"])[-1], np.exp(candidate["log_std"])
            ratio = np.exp(density(there, candidate["log_std"], action) - old)
            kl = np.log(spread / sigma) + (sigma**2 + (mean - there) ** 2) / (2 * spread**2) - 0.5
            entropy = np.sum(candidate["log_std"] + 0.5 * np.log(2 * np.pi * np.e))
            return np.mean(ratio * advantage) + config.entropy_weight * entropy, kl.sum(axis=1).mean()

        before, _ = judged(policy)
        flat = np.array(jax.flatten_util.ravel_pytree(policy)[0], np.float64)
        for tried in range(config.search_tries):
            moved = flat + 0.5**tried * full
            candidate = numpy(unravel(jnp.asarray(moved)))
            gained, kl = judged(candidate)
            if kl <= config.slack * config.radius and gained >= before:
                self.policy = candidate
                return {"share": 0.5**tried, "kl": kl, "gain": gained - before}
        return {"share": 0.0, "kl": 0.0, "gain": 0.0}

    def step_value(self, rows: dict[str, np.ndarray], order: np.ndarray) -> None:
        layers = forward(self.value, rows["obs"][order])
        error = layers[-1][:, 0] - rows["target"][order]
        g = backward(self.value, layers, 2 * error[:, None] / len(order))
        self.count += 1
        self.m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, self.m, g)
        self.v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, self.v, g)
        bias = 1 - 0.9**self.count, 1 - 0.999**self.count
        self.value = jax.tree.map(
            lambda p, m, v: p - self.config.lr * (m / bias[0]) / (np.sqrt(v / bias[1]) + 1e-8), self.value, self.m, self.v
        )


CASES: dict[str, dict[str, Any]] = {
    "source": {},
    "short": {"radius": 0.2, "slack": 1.0, "damping": 0.01, "cg_iterations": 4, "entropy_weight": 0.05, "gae": 0.8},
}


@pytest.mark.parametrize("case", CASES)
def test_consecutive_updates_equal_the_specification(case: str) -> None:
    agent = made(gamma=0.9, lr=3e-3, **CASES[case])
    play = Play(agent, seed=4)
    for _ in range(2):  # from where nothing is as it was at first
        play.rollout()
        play.learn()
    shares = []
    plain = Plain(agent, play.state)
    for number in range(3):
        told = play.rollout()
        plain.scale = np.sqrt(play.state.host["returns"]["variance"][0] + 1e-8)
        plain.statistics = play.state.host["statistics"]
        orders = play.draw().train.extras["order"][0]
        assert orders.shape == (5 * 4, 6)  # four whole minibatches of 26 rows, five times
        rows = plain.rows(told)
        wanted = plain.step_policy(rows)
        for order in orders:
            plain.step_value(rows, order)
        before = numpy(play.state.policy.live)
        found = play.learn()
        shares.append(wanted["share"])
        assert found["step/share"] == wanted["share"]
        assert found["step/kl"] == pytest.approx(wanted["kl"], rel=2e-3)
        assert found["step/gain"] == pytest.approx(wanted["gain"], rel=2e-3)
        moved = max(np.abs(leaf).max() for leaf in jax.tree.leaves(jax.tree.map(np.subtract, plain.policy, before)))
        for ours, theirs in ((play.state.policy.live, plain.policy), (play.state.value.live, plain.value)):
            for a, b in zip(jax.tree.leaves(numpy(ours)), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=2e-3 * moved, err_msg=f"after update {number + 1}")
        moments = play.state.value.opt[0]
        for ours, theirs in ((moments.mu, plain.m), (moments.nu, plain.v)):
            for a, b in zip(jax.tree.leaves(numpy(ours)), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3 * np.abs(b).max())
        assert int(moments.count) == plain.count
        plain.policy = numpy(play.state.policy.live)  # rounding is not to add up over the updates
    assert all(shares) and (case == "source" or min(shares) < 1.0), "one case was to shorten a step"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1_000), radius=st.sampled_from([0.01, 0.05, 0.5]))
def test_a_step_stays_in_its_region_and_never_lowers_the_surrogate(seed: int, radius: float) -> None:
    agent = SHARED[radius]
    draw = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.5 * draw.normal(size=leaf.shape).astype(np.float32)),
                          agent.blank_policy()["actor"])  # fmt: skip
    obs, action = draw.normal(size=(64, 3)).astype(np.float32), draw.normal(size=(64, 2)).astype(np.float32)
    rows = {"obs": obs, "action": action, "advantage": draw.standard_t(2, 64).astype(np.float32)}
    rows["log_prob"] = np.asarray(agent.net.log_prob(params, obs, action))
    moved, told = STEPS[radius](params, rows)
    old = (agent.net.apply(params, obs), params["log_std"])
    kl = float(jnp.mean(agent.net.divergence(old, moved, obs)))
    assert kl <= 1.5 * radius * (1 + 1e-5) + 1e-7
    assert float(told["step/gain"]) >= 0.0
    ratio = np.exp(np.asarray(agent.net.log_prob(moved, obs, action)) - rows["log_prob"])
    scaled = (rows["advantage"] - rows["advantage"].mean()) / rows["advantage"].std()
    assert np.mean(ratio * scaled) >= -1e-5  # the surrogate, which is zero where the step begins
    if told["step/share"] == 0.0:
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(params)))


SHARED = {radius: made(radius=radius) for radius in (0.01, 0.05, 0.5)}
STEPS = {radius: jax.jit(agent.policy_step) for radius, agent in SHARED.items()}


def test_the_metrics_are_those_of_the_page() -> None:
    play = Play(made())
    play.rollout()
    log_std = np.asarray(play.state.policy.live["log_std"])
    found = play.learn()
    assert set(found) == set(play.agent.metric_names)
    assert found["entropy"] == pytest.approx(np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e)), rel=1e-5)
    assert found["ratio/first"] < 1e-5 and 0.0 < found["step/kl"] <= 0.015 and found["step/gain"] > 0.0
    assert found["step/tries"] == 1 - np.log2(found["step/share"])


# --- what does not apply, whole runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [("lam", "trpo has no Q to blend"), ("random_steps", "trpo learns from its own actions alone"),
     ("clip", "trpo bounds a step by its divergence")],
)  # fmt: skip
def test_options_of_others_are_refused_with_the_reason(name: str, why: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ConfigError, match=why):
        Plan.make("trpo", "toys:Walk-v0", None, {name: 0.5})
    assert main(["train", "trpo", "toys:Walk-v0", f"--{name.replace('_', '-')}", "0.5"]) == 2
    assert why in capsys.readouterr().err


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="rollout = 26 is no multiple of num_envs = 5"):
        made(lanes=5)
    with pytest.raises(ConfigError, match="batch_size = 64 is more than rollout = 26"):
        TRPOConfig(rollout=26)
    with pytest.raises(ConfigError, match=r"radius = 0\.0 is out of range"):
        TRPOConfig(radius=0.0)


def test_a_policy_file_there_and_back_and_nothing_moves_in_evaluation(tmp_path: Path) -> None:
    model = api.TRPO(Walk, **SMALL).learn(110)
    policy = load_policy(model.policy.save(tmp_path / "policy.npz"))
    obs = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    assert policy.predict(obs)[0].tobytes() == model.predict(obs)[0].tobytes()
    before = {name: each.tobytes() for name, each in trees.to_arrays(model.trainer.state).items()}
    model.evaluate(episodes=2)
    assert before == {name: each.tobytes() for name, each in trees.to_arrays(model.trainer.state).items()}


def test_renewed_networks_begin_a_rollout() -> None:
    play = Play(made())
    play.rollout()
    play.learn()
    play.decide()
    renewed = play.agent.renew(play.state, ["policy"], play.clock)
    assert renewed.host["since"].tolist() == [0, 0]
    assert not np.array_equal(renewed.policy.live["mean"][0]["w"], play.state.policy.live["mean"][0]["w"])
    assert renewed.value is play.state.value


def test_learns_to_stay_in_the_middle_of_the_walk_within_seconds() -> None:
    """Mean of 20 deterministic episodes of 20 steps; the untrained policy drifts away and has about −2.5."""
    options = {"num_envs": 4, "rollout": 256, "hidden": (32, 32), "gamma": 0.9}
    model = api.TRPO(Walk, eval_env=Walk, seed=0, steps=16_000, eval_every=100_000, **options)
    assert model.evaluate(episodes=20).mean < -1.5
    trained = model.learn(16_000).evaluate(episodes=20)
    assert trained.mean > -0.4 and set(trained.lengths) == {LIMIT}


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.long
def test_learns_pendulum_within_two_hundred_thousand_steps() -> None:
    """The settings of the page; a random policy has about −1200, a good one −150."""
    model = api.TRPO("gym/Pendulum-v1", seed=0, steps=200_000, eval_every=200_000, log_every=20_000, num_envs=4, gamma=0.9)
    assert model.learn(200_000).evaluate(episodes=20).mean >= -400
