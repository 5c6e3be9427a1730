"""DAC, XQL, X-TD3, IQL and OBAC: updates against plain forms, numbers by hand, gradients that must be zero, refusals.

The plain forms are written from the specification: their own networks, losses and Adam, with gradients by `jax.grad` of the whole
scalar loss, one network at a time, in float64. Nothing of the library's update, backups or objectives is called.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from states import agent, batch, elsewhere, learn, leaves_equal, one

from beeline import rng
from beeline.agents import get
from beeline.agents.mixture import buffer_log_prob
from beeline.agents.owned import gumbel_loss
from beeline.errors import ConfigError

TAU, RATE = 0.1, 0.01
RATES = {"actor_lr": RATE, "critic_lr": RATE, "value_lr": RATE, "tau": TAU, "network": "mlp"}
LOG_SCALE = math.log(2.0) + math.log(0.4)  # of the action bounds in tests/agents/states.py


# --- plain parts ------------------------------------------------------------------------------------------------------


def net(layers: Any, x: Any) -> Any:
    """A perceptron with ReLU."""
    for each in layers[:-1]:
        x = jnp.maximum(x @ each["w"] + each["b"], 0.0)
    return x @ layers[-1]["w"] + layers[-1]["b"]


def v_of(layers: Any, s: Any) -> Any:
    return net(layers, s)[:, 0]


def q_of(stacked: Any, s: Any, a: Any) -> list[Any]:
    """Q_1 and Q_2, one after the other."""
    x = jnp.concatenate([s, a], -1)
    return [net(jax.tree.map(lambda leaf, i=i: leaf[i], stacked), x)[:, 0] for i in range(2)]


def q_min(stacked: Any, s: Any, a: Any) -> Any:
    return jnp.minimum(*q_of(stacked, s, a))


def gaussian(layers: Any, s: Any) -> tuple[Any, Any]:
    out = net(layers, s)
    return out[:, :2], jnp.clip(out[:, 2:], -20.0, 2.0)


def log_pi(mean: Any, log_std: Any, u: Any) -> Any:
    """log density of tanh u, in [-1, 1] units."""
    normal = -0.5 * ((u - mean) / jnp.exp(log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
    return (normal + 2.0 * jnp.log(jnp.cosh(u))).sum(-1)  # 1 − tanh² u = cosh⁻² u


def sampled(layers: Any, s: Any, noise: Any) -> tuple[Any, Any]:
    mean, log_std = gaussian(layers, s)
    u = mean + jnp.exp(log_std) * noise
    return jnp.tanh(u), log_pi(mean, log_std, u)


def stepped(slot: Any, loss: Any, rate: float = RATE) -> Any:
    """One step of Adam, from the moments that are there."""
    [moments] = [m for m in jax.tree.leaves(slot.opt, is_leaf=is_adam) if is_adam(m)]
    g = jax.grad(loss)(slot.live)
    count = moments.count + 1
    mu = jax.tree.map(lambda m, d: 0.9 * m + 0.1 * d, moments.mu, g)
    nu = jax.tree.map(lambda v, d: 0.999 * v + 0.001 * d * d, moments.nu, g)
    first, second = 1 - 0.9 ** int(count), 1 - 0.999 ** int(count)
    live = jax.tree.map(lambda w, m, v: w - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), slot.live, mu, nu)
    return slot._replace(live=live, opt=replaced(slot.opt, moments._replace(count=count, mu=mu, nu=nu)))


def is_adam(node: Any) -> bool:
    return isinstance(node, optax.ScaleByAdamState)


def replaced(opt: Any, moments: Any) -> Any:
    return jax.tree.map(lambda node: moments if is_adam(node) else node, opt, is_leaf=is_adam)


def followed(slot: Any) -> Any:
    return slot._replace(target=jax.tree.map(lambda slow, fast: TAU * fast + (1 - TAU) * slow, slot.target, slot.live))


def mse(q: list[Any], y: Any) -> Any:
    return sum(((each - y) ** 2).mean() for each in q)


def gumbel(aim: Any, pred: Any, beta: float, clip: float) -> Any:
    """The rescaled form for one batch."""
    z = jnp.clip((jax.lax.stop_gradient(aim) - pred) / beta, -clip, clip)
    m = jax.lax.stop_gradient(jnp.maximum(z.max(), -1.0))
    return (jnp.exp(z - m) - z * jnp.exp(-m) - jnp.exp(-m)).mean()


def expectile(aim: Any, v: Any, tau: float) -> Any:
    u = jax.lax.stop_gradient(aim) - v
    return (jnp.where(u < 0, 1 - tau, tau) * u**2).mean()


def noise_of(state: Any) -> dict[str, Any]:
    root, number = jax.random.wrap_key_data(state.key), int(state.updates)
    keys = {name: rng.fold(root, name, number) for name in ("value", "explore", "exploit")}
    keys["policy"] = jax.random.fold_in(rng.fold(root, "policy", number), 0)
    return {name: jax.random.normal(key, (32, 2), jnp.float32) for name, key in keys.items()}


def temperature_step(slot: Any, log_prob: Any, rate: float) -> Any:
    return stepped(slot, lambda log: -log * jax.lax.stop_gradient(log_prob - LOG_SCALE - 2.0).mean(), rate)


# --- plain updates: the state after one update, from the specification ------------------------------------------------


def plain_dac(state: Any, b: Any, fixed: float | None = None, bee: bool = False, soft: bool = False) -> Any:
    """All five losses from the parameters of the start, then V̄; `soft`: as SAC's own term, with its units and temperature."""
    noise, own = noise_of(state), state.backup["inner"] if bee else state.backup
    s, a = b.obs, b.action
    logit = lambda params, act: net(params, jnp.concatenate([s, act], -1))[:, 0]  # noqa: E731
    ratio = lambda params, act: jax.nn.sigmoid(logit(params, act))  # noqa: E731
    share = lambda params: 0.49 * jax.nn.sigmoid(net(params, s)[:, 0]) + 0.5  # noqa: E731
    alpha = jnp.full(32, fixed) if fixed else share(own["share"].live)
    heat, units = (jnp.exp(state.objective["log_alpha"].live), LOG_SCALE) if soft else (1.0, 0.0)
    drawn, log_prob = sampled(state.actor.live, s, noise["value"])
    log_prob = log_prob - units
    taken = log_pi(*gaussian(state.actor.live, s), jnp.arctanh(a - jnp.sign(a) * 1e-3)) - units
    r_own, r_taken = ratio(own["ratio"].live, drawn), ratio(own["ratio"].live, a)

    def entropy(alpha: Any) -> Any:
        mine = jnp.log(r_own) - jnp.log(alpha) - log_prob
        other = jnp.clip(jnp.log(r_taken) - jnp.log(alpha) - taken, -2.0, 2.0)
        return alpha * mine + (1 - alpha) * other

    y = explore = b.reward + b.discount * v_of(own["value"].target, b.next_obs)
    backup = {}
    if bee:
        y = 0.4 * (b.reward + b.discount * v_of(state.backup["value"].live, b.next_obs)) + 0.6 * explore
        here = q_min(state.critic.target, s, a)
        backup["value"] = stepped(state.backup["value"], lambda w: expectile(here, v_of(w, s), 0.7))
        backup["blend"] = state.backup["blend"]
    aim = q_min(state.critic.live, s, drawn) + heat * entropy(alpha)
    new = {"value": followed(stepped(own["value"], lambda w: ((v_of(w, s) - aim) ** 2).mean()))}
    new["ratio"] = stepped(
        own["ratio"], lambda w: -(alpha * jnp.log(ratio(w, drawn)) + (1 - alpha) * jnp.log(1 - ratio(w, a))).mean(), RATE
    )
    if not fixed:

        def share_loss(w: Any) -> Any:
            c = -2.0 * 2
            size = sum((leaf**2).sum() for leaf in jax.tree.leaves(w))
            return (entropy(share(w)) - share(w) * c).mean() + 1e-3 * size / 2

        new["share"] = stepped(own["share"], share_loss)

    def policy_loss(w: Any) -> Any:
        act, log_prob = sampled(w, s, noise["policy"])
        diverse = log_prob - units - jnp.log(ratio(own["ratio"].live, act))
        return (-q_of(state.critic.live, s, act)[0] + heat * alpha * diverse).mean()

    objective = state.objective
    if soft:
        _, log_prob = sampled(state.actor.live, s, noise["policy"])
        objective = {"log_alpha": temperature_step(objective["log_alpha"], log_prob, 3e-4)}
    critic = stepped(state.critic, lambda w: mse(q_of(w, s, a), y))
    return dataclasses.replace(
        state, updates=state.updates + 1, actor=stepped(state.actor, policy_loss),
        critic=followed(critic) if bee else critic, backup=backup | {"inner": new} if bee else new, objective=objective,
    )  # fmt: skip


def plain_xql(state: Any, b: Any) -> Any:
    """Q on V̄; V on the new critics at the policy's action; policy and temperature; V̄."""
    noise, s = noise_of(state), b.obs
    y = b.reward + b.discount * v_of(state.backup["value"].target, b.next_obs)
    critic = stepped(state.critic, lambda w: mse(q_of(w, s, b.action), y))
    act, _ = sampled(state.actor.live, s, noise["value"])
    q = q_min(critic.live, s, act)
    value = stepped(state.backup["value"], lambda w: gumbel(q, v_of(w, s), 1.5, 10.0))
    alpha = jnp.exp(state.objective["log_alpha"].live)

    def policy_loss(w: Any) -> Any:
        act, log_prob = sampled(w, s, noise["policy"])
        return (alpha * log_prob - q_min(critic.live, s, act)).mean()

    _, log_prob = sampled(state.actor.live, s, noise["policy"])
    return dataclasses.replace(
        state, updates=state.updates + 1, critic=critic, backup={"value": followed(value)},
        actor=stepped(state.actor, policy_loss),
        objective={"log_alpha": temperature_step(state.objective["log_alpha"], log_prob, 3e-4)},
    )  # fmt: skip


def plain_xtd3(state: Any, b: Any) -> Any:
    """TD3 with the Gumbel loss of each critic; here with policy and targets at every update."""
    noise, s = noise_of(state), b.obs
    smooth = jnp.clip(0.2 * noise["explore"], -0.5, 0.5)
    act = jnp.clip(jnp.tanh(net(state.actor.target, b.next_obs)) + smooth, -1.0, 1.0)
    y = b.reward + b.discount * q_min(state.critic.target, b.next_obs, act)
    critic = stepped(state.critic, lambda w: sum(gumbel(y, each, 1.5, 8.0) for each in q_of(w, s, b.action)))
    actor = stepped(state.actor, lambda w: -q_of(critic.live, s, jnp.tanh(net(w, s)))[0].mean())
    return dataclasses.replace(state, updates=state.updates + 1, critic=followed(critic), actor=followed(actor))


def plain_iql(state: Any, b: Any) -> Any:
    """V, then the policy under the new V, then Q on the new V, then Q̄."""
    s, a = b.obs, b.action
    here = q_min(state.critic.target, s, a)
    value = stepped(state.backup["value"], lambda w: expectile(here, v_of(w, s), 0.7))
    weight = jnp.minimum(jnp.exp(3.0 * (here - v_of(value.live, s))), 2.0)

    def policy_loss(w: Any) -> Any:
        log_std = jnp.clip(w["log_std"], -5.0, 2.0)
        z = (a - jnp.tanh(net(w["mean"], s))) / jnp.exp(log_std)
        return -(weight * (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)).mean()

    y = b.reward + b.discount * v_of(value.live, b.next_obs)
    critic = followed(stepped(state.critic, lambda w: mse(q_of(w, s, a), y)))
    actor = stepped(state.actor, policy_loss)
    return dataclasses.replace(state, updates=state.updates + 1, critic=critic, backup={"value": value}, actor=actor)


def plain_obac(state: Any, b: Any) -> Any:
    """SAC's losses and those of Q^μ and V^μ, all from the parameters of the start; cloning where Q^μ is ahead."""
    noise, s, a, own = noise_of(state), b.obs, b.action, state.backup
    alpha = jnp.exp(state.objective["log_alpha"].live)
    act, log_prob = sampled(state.actor.live, b.next_obs, noise["explore"])
    y = b.reward + b.discount * (q_min(state.critic.target, b.next_obs, act) - alpha * (log_prob - LOG_SCALE))
    y_buffer = b.reward + b.discount * v_of(own["value"].live, b.next_obs)
    here = q_min(own["critic"].target, s, a)
    drawn, log_prob = sampled(state.actor.live, s, noise["policy"])
    behind = q_min(state.critic.live, s, drawn).mean() < q_min(own["critic"].live, s, a).mean()

    def policy_loss(w: Any) -> Any:
        act, log_prob = sampled(w, s, noise["policy"])
        mean, log_std = gaussian(w, s)
        density = -0.5 * ((a - mean) / jnp.exp(log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        cloned = 0.5 * jnp.clip(density, -20.0, 2.0).mean() if behind else 0.0
        return (alpha * log_prob - q_min(state.critic.live, s, act)).mean() - cloned

    return dataclasses.replace(
        state, updates=state.updates + 1, actor=stepped(state.actor, policy_loss),
        critic=followed(stepped(state.critic, lambda w: mse(q_of(w, s, a), y))),
        backup={
            "critic": followed(stepped(own["critic"], lambda w: mse(q_of(w, s, a), y_buffer))),
            "value": stepped(own["value"], lambda w: expectile(here, v_of(w, s), 0.9)),
        },
        objective={"log_alpha": temperature_step(state.objective["log_alpha"], log_prob, 3e-4)},
    )  # fmt: skip


EVERY = {"policy_updates_per_step": 1.0, "target_interval": 1}
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "dac": ("dac", {"mixture_lr": RATE}, plain_dac),
    "dac-fixed": ("dac", {"mixture_lr": RATE, "mixture": 0.7}, lambda state, b: plain_dac(state, b, 0.7)),
    "bee-dac": ("bee-dac", {"mixture_lr": RATE, "lam": 0.4}, lambda state, b: plain_dac(state, b, bee=True)),
    "sample-aware": (
        "sac", {"explore": "sample-aware", "mixture_lr": RATE}, lambda state, b: plain_dac(state, b, soft=True)
    ),
    "xql": ("xql", {"beta": 1.5}, plain_xql),
    "xtd3": ("xtd3", {"beta": 1.5} | EVERY, plain_xtd3),
    "iql": ("iql", {"weight_bound": 2.0}, plain_iql),
    "obac": ("obac", {"cloning": 0.5}, plain_obac),
}


def somewhere(a: Any, seed: int = 3) -> Any:
    """A state in which no learnt leaf is what it began as; λ stays."""
    state, fresh = elsewhere(a.init(0), seed), a.init(0)
    if isinstance(state.backup, dict) and "blend" in state.backup:
        state = dataclasses.replace(state, backup=state.backup | {"blend": fresh.backup["blend"]})
    return dataclasses.replace(state, objective=fresh.objective) if "alpha" in state.objective else state


def precise(tree: Any) -> Any:
    """The same numbers in float64."""
    with jax.enable_x64(True):
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64 if leaf.dtype == np.float32 else None), tree)


def assert_near(got: Any, want: Any, name: str = "") -> None:
    """As near as float32 lets a few updates be to float64."""
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=5e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_three_updates_equal_the_specification_in_every_number(case: str) -> None:
    algo, options, update = CASES[case]
    a = agent(algo, **RATES, **options)
    state = somewhere(a)
    expected, start = precise(state), jax.tree.map(np.array, state)
    for number in range(3):
        b = batch(seed=number)
        with jax.enable_x64(True):
            expected = update(expected, precise(one(b)))
        assert {leaf.dtype for leaf in jax.tree.leaves(expected.critic.live)} == {np.dtype(np.float64)}
        state, metrics = learn(a, state, b)
        assert set(metrics) == set(a.metric_names)
        got, want = (jax.tree_util.tree_flatten_with_path(each)[0] for each in (state, expected))
        assert [path for path, _ in got] == [path for path, _ in want]
        for (path, leaf), (_, other) in zip(got, want):
            name = f"{jax.tree_util.keystr(path)} after update {number + 1}"
            assert_near(leaf, other, name)
    same = [jax.tree_util.keystr(path) for (path, leaf), other in zip(got, jax.tree.leaves(start)) if np.array_equal(leaf, other)]
    assert all(".key" in name or "blend" in name or "alpha" in name for name in same), same


@pytest.mark.parametrize("ahead", [True, False])
def test_obac_clones_where_the_buffers_critic_is_ahead_and_nowhere_else(ahead: bool) -> None:
    a, b = agent("obac", cloning=0.5, **RATES), batch()
    state = somewhere(a)
    lift = lambda w: (*w[:-1], w[-1] | {"b": w[-1]["b"] + (50.0 if ahead else -50.0)})  # noqa: E731
    own = state.backup["critic"]
    state = dataclasses.replace(state, backup=state.backup | {"critic": own._replace(live=lift(own.live))})
    with jax.enable_x64(True):
        expected = plain_obac(precise(state), precise(one(b)))
    without = agent("obac", cloning=0.0, **RATES)
    other, _ = learn(without, jax.tree.map(jnp.array, state), b)
    after, metrics = learn(a, state, b)
    assert float(metrics["cloning"]) == ahead
    for leaf, want in zip(jax.tree.leaves(after.actor.live), jax.tree.leaves(expected.actor.live)):
        assert_near(leaf, want)
    assert leaves_equal(after.actor.live, other.actor.live) != ahead


def constant(layers: Any, *bias: float) -> Any:
    """A network that puts out the same for every input."""
    zero = jax.tree.map(jnp.zeros_like, layers)
    return (*zero[:-1], zero[-1] | {"b": jnp.broadcast_to(jnp.float32(bias), zero[-1]["b"].shape)})


def test_what_is_cloned_is_bounded_for_each_dimension() -> None:
    """N(0, e⁻⁴): log-density 4 − ½ log 2π = 3.08 at 0, which counts as 2; far below −20 at .9, which counts as −20."""
    b = batch()
    b = b._replace(action=np.broadcast_to(np.float32([0.0, 0.9]), b.action.shape))
    losses = []
    for weight in (0.5, 0.0):
        a = agent("obac", cloning=weight, **RATES)
        state = a.init(0)
        ahead = state.backup["critic"]._replace(live=constant(state.backup["critic"].live, 50.0))
        actor = state.actor._replace(live=constant(state.actor.live, 0.0, 0.0, -4.0, -4.0))
        state = dataclasses.replace(state, actor=actor, backup=state.backup | {"critic": ahead})
        losses.append(float(learn(a, state, b)[1]["loss/actor"]))
    assert losses[0] - losses[1] == pytest.approx(-0.5 * (2.0 - 20.0) / 2, rel=1e-4)


def test_obac_begins_with_twice_the_same_critics() -> None:
    state = agent("obac").init(0)
    own = state.backup["critic"]
    assert leaves_equal(own.live, state.critic.live) and leaves_equal(own.target, state.critic.target)


# --- numbers by hand --------------------------------------------------------------------------------------------------


def test_the_policy_of_iql_by_hand() -> None:
    """μ = tanh .5 and tanh −3, log σ = −7 and 3, which count as −5 and 2."""
    actor = agent("iql").actor
    params = {"mean": constant(agent("iql").init(0).actor.live["mean"], 0.5, -3.0), "log_std": jnp.array([-7.0, 3.0])}
    output = actor.output(params, jnp.ones((1, 5)))
    mean, sigma = np.tanh([0.5, -3.0]), np.exp([-5.0, 2.0])
    np.testing.assert_allclose(actor.greedy(params, jnp.ones((1, 5)))[0], mean, rtol=1e-6)
    taken = np.array([mean[0] + 0.01, 0.4])
    want = np.sum(-0.5 * ((taken - mean) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(actor.log_prob(output, jnp.asarray(taken, jnp.float32)[None]), [want], rtol=1e-4)
    for noise, second in ((2.0, 1.0), (-2.0, -1.0), (0.1, mean[1] + 0.1 * sigma[1])):
        drawn, _ = actor.sample(jnp.full((1, 2), noise), output)
        np.testing.assert_allclose(drawn[0], [mean[0] + noise * sigma[0], second], rtol=1e-5)


def test_gumbel_loss_by_hand() -> None:
    aim, pred = jnp.array([2.0, 0.0, 100.0]), jnp.array([0.0, 4.0, 0.0])
    z = np.array([1.0, -2.0, 3.0])  # β = 2, bounded at 3
    want = (np.exp(z) - z - 1) * np.exp(-3.0)
    np.testing.assert_allclose(gumbel_loss(aim, pred, 2.0, 3.0), want, rtol=1e-5)
    low = np.array([-2.0, -3.0])  # all below −1: rescaled by e
    found = gumbel_loss(jnp.zeros(2), jnp.array([4.0, 6.0]), 2.0, 10.0)
    np.testing.assert_allclose(found, (np.exp(low) - low - 1) * np.e, rtol=1e-5)
    np.testing.assert_allclose(gumbel_loss(jnp.zeros(2), jnp.array([4.0, 9.0]), 2.0, 3.0), found, rtol=1e-5)  # −4.5 is −3
    slope = jax.grad(lambda p: gumbel_loss(aim, p, 2.0, 3.0).sum())(pred)
    np.testing.assert_allclose(slope, [-(np.e - 1) / 2 * np.exp(-3.0), (1 - np.exp(-2.0)) / 2 * np.exp(-3.0), 0.0], rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_rescaled_gumbel_gradient_is_proportional_to_the_plain_one(seed: int) -> None:
    aim, pred = jax.random.normal(jax.random.key(seed), (2, 64)) * 3
    plain = jax.grad(lambda p: (jnp.exp((aim - p) / 2) - (aim - p) / 2 - 1).mean())(pred)
    ours = jax.grad(lambda p: gumbel_loss(aim, p, 2.0, 1e3).mean())(pred)
    factor = np.exp(-max(float(((aim - pred) / 2).max()), -1.0))
    np.testing.assert_allclose(ours, plain * factor, rtol=1e-4, atol=1e-7)


def test_gumbel_regression_finds_the_log_mean_exponential() -> None:
    aim = jax.random.normal(jax.random.key(0), (4096,))
    v = jnp.float32(0.0)
    for _ in range(300):
        v = v - 0.3 * jax.grad(lambda v: gumbel_loss(aim, jnp.full_like(aim, v), 1.0, 10.0).mean())(v) * 30
    np.testing.assert_allclose(v, np.log(np.mean(np.exp(np.asarray(aim)))), atol=1e-3)


def test_density_of_a_buffer_action_is_that_of_the_squashed_gaussian() -> None:
    mean, log_std = jnp.array([[0.3]]), jnp.array([[-0.7]])
    grid = jnp.linspace(-1.0, 1.0, 20_001)[:, None]
    density = jnp.exp(buffer_log_prob((jnp.broadcast_to(mean, grid.shape), jnp.broadcast_to(log_std, grid.shape)), grid))
    np.testing.assert_allclose(jnp.sum(density) * 1e-4, 1.0, atol=5e-3)
    assert np.isfinite(buffer_log_prob((mean, log_std), jnp.array([[1.0]]))).all()


def test_the_ratio_learns_to_tell_the_policy_from_the_buffer() -> None:
    """Where both act alike R = α; a ratio that cannot tell has the loss 0, one that can has less."""
    a = agent("dac", mixture=0.5, mixture_lr=RATE, **RATES)
    state, first = a.init(0), None
    for number in range(60):
        b = batch(seed=number)
        state, metrics = learn(a, state, b._replace(action=np.full_like(b.action, 0.9)))
        first = metrics["loss/ratio"] if first is None else first
    assert float(metrics["loss/ratio"]) < min(float(first), 0.0) - 0.2
    assert float(metrics["loss/ratio"]) > -math.log(2.0)


def test_a_learnt_share_stays_between_a_half_and_99() -> None:
    a = agent("dac", **RATES)
    own = a.init(0).backup
    for bias, share in ((-1e3, 0.5), (1e3, 0.99), (0.0, 0.745)):
        params = jax.tree.map(jnp.zeros_like, own["share"].live)
        params = (*params[:-1], params[-1] | {"b": jnp.array([bias])})
        np.testing.assert_allclose(a.backup.mixture.alpha(own, jnp.ones((3, 5)), params), share, rtol=1e-6)


# --- the operator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["bee-dac", "bee-xql", "bee-xtd3"])
def test_lambda_one_bootstraps_from_the_exploit_part_alone(algo: str) -> None:
    a, b = agent(algo, lam=1.0, reward_scale=3.0, **RATES), batch()
    state = somewhere(a)
    v = v_of(state.backup["value"].live, b.next_obs[0])
    want = (3.0 * b.reward[0] + b.discount[0] * v).mean()
    _, metrics = learn(a, state, b)
    np.testing.assert_allclose(metrics["q/target"], want, rtol=1e-5)


def test_sample_aware_bac_has_dacs_parts_and_bacs_networks() -> None:
    from beeline.agents.mixture import Diverse

    a = agent("bac", explore="sample-aware")
    assert isinstance(a.backup.inner, Diverse) and not a.fresh
    own = a.init(0).backup["inner"]
    assert set(own) == {"value", "ratio", "share"} and "scale" in own["ratio"].live[0]  # the LayerNorm of BAC's body


@pytest.mark.parametrize("algo", ["dac", "xql", "xtd3", "iql", "obac"])
def test_a_terminal_transition_bootstraps_nothing(algo: str) -> None:
    a, b = agent(algo, **RATES), batch()
    b = b._replace(discount=np.zeros_like(b.discount))
    _, metrics = learn(a, somewhere(a), b)
    np.testing.assert_allclose(metrics["q/target"], b.reward.mean(), rtol=1e-5)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo", "options", "reason"),
    [
        ("iql", {"lam": 0.5}, "nothing to blend"),
        ("iql", {"blend": "min"}, "nothing to blend"),
        ("obac", {"lam": 0.5}, "beside the target"),
        ("sac", {"mixture": 0.7}, "explore = sample-aware"),
        ("bac", {"mixture_control": 1.0}, "explore = sample-aware"),
        ("dac", {"mixture": 0.7, "mixture_control": 1.0}, "one of them"),
        ("dac", {"mixture": 1.0}, "mixture"),
        ("dac", {"explore": "entropy"}, "explore"),
        ("xql", {"beta": 0.0}, "beta"),
        ("xtd3", {"gumbel_clip": -1.0}, "gumbel_clip"),
        ("iql", {"weight_bound": 0.0}, "weight_bound"),
        ("obac", {"cloning": -1.0}, "cloning"),
        ("obac", {"v_entropy": True}, "in-sample critic alone"),
        ("obac", {"mixture": 0.7}, "explore = sample-aware, which is no choice here"),
        ("xql", {"mixture_lr": 0.1}, "explore = sample-aware, which is no choice here"),
        ("bee-xql", {"mixture": 0.7}, "explore = sample-aware, which is no choice here"),
        ("sac", {"mixture_lr": 0.1}, "belongs to explore = sample-aware, not to entropy"),
        ("bac", {"mixture": 0.7, "explore": "none"}, "belongs to explore = sample-aware, not to none"),
        ("td3", {"smoothing_noise": 0.1, "explore": "none"}, "belongs to explore = smoothing or pink, not to none"),
        ("bee-rrs", {"smoothing_clip": 0.1, "explore": "none"}, "belongs to explore = smoothing or pink, not to none"),
        ("bac", {"expectile": 0.8, "exploit": "sparse"}, "belongs to exploit = expectile, not to sparse"),
        ("bac", {"expectile": 0.8, "exploit": lambda q, v, strength: v}, "belongs to exploit = expectile, not to object:"),
        ("iql", {"exploit_alpha": 2.0}, "belongs to exploit = sparse or exponential or an object, not to expectile"),
        ("obac", {"expectile": 0.8, "exploit": "exponential"}, "belongs to exploit = expectile, not to exponential"),
        ("ppo", {"lam": 0.5}, "ppo has no Q to blend"),
        ("trpo", {"lam": 0.5}, "trpo has no Q to blend"),
        ("trpo", {"radius": 0.0}, "radius"),
        ("trpo", {"slack": 0.5}, "slack"),
        ("trpo", {"search_tries": 0}, "search_tries"),
        ("td3", {"explore": "sample-aware"}, "smoothing, pink, none"),
        ("grac", {"tau": 0.1}, "no target networks"),
        ("grac", {"explore": "pink"}, "explore"),
    ],
)
def test_what_does_not_apply_is_refused_with_the_reason(algo: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        get(algo).config.make(options)


def test_what_a_chosen_part_reads_is_taken() -> None:
    for algo, options in (
        ("td3", {"smoothing_noise": 0.1, "explore": "pink"}),
        ("bac", {"exploit_alpha": 2.0, "exploit": lambda q, v, strength: v}),
        ("obac", {"exploit_alpha": 2.0, "exploit": "sparse"}),
        ("sac", {"atoms": 51, "value_head": "hl_gauss"}),
    ):
        config = get(algo).config.make(options)
        assert all(getattr(config, name) == value for name, value in options.items())



@pytest.mark.parametrize("algo", ["xql", "bee-xql", "bee-xtd3", "obac", "iql", "td3"])
def test_options_that_can_never_apply_are_none(algo: str) -> None:
    names = get(algo).config.names()
    assert not {"mixture", "mixture_control", "mixture_lr"} & set(names)
    assert ({"lam", "blend"} & set(names) == set()) == (algo in ("obac", "iql"))
    assert not {"mixture", "v_entropy"} & get("obac").config().to_dict().keys()
