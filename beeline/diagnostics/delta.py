"""Δ(μ, π) = E_s[max_{a∼μ} Q^μ(s, a) − E_π Q^π(s, a)]: how much better the buffer's actions are than the policy's own.

Two estimates. The proxy looks at the agent's own critics, with a V fitted to Q_min(s, a) of the buffer's actions: cheap
enough for every diagnosis. The fitted estimate trains critics of its own from nothing, IQL's for Q^μ and fitted Q
evaluation for Q^π, both without entropy. With an expectile below 1 both lean to the small side of the maximum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from beeline import operators, rng
from beeline.networks import Ensemble, Mlp, Params

Sample = Callable[[Array, Array], Array]  # (key, obs [n, …]) -> actions [n, …] of the policy


@dataclasses.dataclass(frozen=True)
class Fit:
    """The budget and the networks of a fit."""

    steps: int = 5_000
    batch: int = 256
    hidden: tuple[int, ...] = (256, 256)
    rate: float = 3e-4
    tau: float = 0.005  # share of the critics that enters their targets at each step
    samples: int = 10  # actions per state in E_π

    @property
    def optimiser(self) -> Any:
        """Adam."""
        return optax.adam(self.rate)


TURN = 100  # steps of a fit before Ctrl-C is heard
PASSIVE = Fit(steps=400, rate=1e-3)
PASSIVE_EXPECTILE = 0.7  # what BAC's own V has


class Transitions(NamedTuple):
    """Transitions of the buffer, `[n, …]`; `discount` is γ, or 0 at a true end. `replay.Batch` begins with the same."""

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any


class _Drawn(list[np.random.Generator]):
    """Generators as a network's `init` asks for them."""

    def member(self, number: int) -> np.random.Generator:
        return self[number]

    def of(self, number: int) -> _Drawn:
        return _Drawn([self[number]])


def _value(params: Params, obs: Array) -> Array:
    return Mlp(()).apply(params, obs)[..., 0]


def _q(critic: Params, obs: Array, action: Array) -> Array:
    return Ensemble(Mlp(()), (2,)).apply(critic, jnp.concatenate([obs, action], axis=-1))[..., 0]


def _init_value(key: Array, number: int, obs_dim: int, fit: Fit) -> Params:
    draw = _Drawn([rng.generator(rng.fold(key, "diagnose/init", number))])
    return Mlp(fit.hidden).init(draw, obs_dim, 1)


def _init_critic(key: Array, number: int, data: Transitions, fit: Fit) -> Params:
    draw = _Drawn(rng.generator(rng.fold(key, "diagnose/init", number)).spawn(2))
    inputs = data.obs.shape[-1] + data.action.shape[-1]
    return Ensemble(Mlp(fit.hidden), (2,)).init(draw, inputs, 1)


def _descend(fit: Fit, loss: Callable[[Any], Array], params: Any, opt: Any) -> tuple[Any, Any]:
    updates, opt = fit.optimiser.update(jax.grad(loss)(params), opt, params)
    return optax.apply_updates(params, updates), opt


def _train(fit: Fit, key: Array, count: int, state: Any, step: Callable[[Any, Array, Array], Any], span: Any) -> Any:
    """Run `step(state, rows, key)` over batches drawn uniformly with replacement, for the steps of a span [first, last)."""

    def one(number: Array, state: Any) -> Any:
        rows = jax.random.randint(rng.fold(key, "diagnose/rows", number), (fit.batch,), 0, count)
        return step(state, rows, rng.fold(key, "diagnose/step", number))

    return jax.lax.fori_loop(span[0], span[1], one, state)


def _by_turns(fit: Fit, state: Any, train: Callable[[Any, Any], Any]) -> Any:
    """Run `train(state, span)` over all steps in turns, each waited for: a signal is heard only between compiled calls."""
    for first in range(0, fit.steps, TURN):
        state = jax.block_until_ready(train(state, (np.int32(first), np.int32(min(first + TURN, fit.steps)))))
    return state


# --- the proxy --------------------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="fit")
def _fit_value(key: Array, state: Any, obs: Array, q: Array, expectile: Array, fit: Fit, span: Any) -> Any:
    def step(state: Any, rows: Array, key: Array) -> Any:
        def loss(params: Params) -> Array:
            return jnp.mean(operators.expectile_value_loss(q[rows], _value(params, obs[rows]), expectile))

        return _descend(fit, loss, *state)

    return _train(fit, key, obs.shape[0], state, step, span)


def fit_value(key: Array, obs: Any, q: Any, expectile: float = PASSIVE_EXPECTILE, fit: Fit = PASSIVE) -> np.ndarray:
    """V(s) at `obs`, fitted passively to Q(s, a) of the buffer's actions by the expectile loss.

    Q is brought to mean 0 and deviation 1 for the fit, which changes no expectile and makes the budget serve any scale.
    """
    q = np.asarray(q, np.float32)
    centre, scale = float(np.mean(q)), max(float(np.std(q)), 1e-6)
    params = _init_value(key, 0, np.shape(obs)[-1], fit)
    aim = (q - centre) / scale
    start = (params, fit.optimiser.init(params))
    params, _ = _by_turns(fit, start, lambda state, span: _fit_value(key, state, obs, aim, jnp.float32(expectile), fit, span))
    return np.asarray(_value(params, obs)) * scale + centre


# --- the fitted estimate ----------------------------------------------------------------------------------------------


class FittedDelta(NamedTuple):
    """Δ̂ = mean V^μ − mean E_π Q^π, both sides, and Δ̂ / |mean E_π Q^π|."""

    delta: float
    normalised: float
    buffer_value: float
    policy_value: float


def fit_in_sample(key: Array, data: Transitions, expectile: float, fit: Fit) -> tuple[Params, Params]:
    """IQL without an actor: V towards the expectile of Q̄_min(s, a), then Q_i towards r + γ m V(s'). Returns (Q, V)."""
    critic, value = _init_critic(key, 0, data, fit), _init_value(key, 1, data.obs.shape[-1], fit)
    start = (critic, fit.optimiser.init(critic), critic, value, fit.optimiser.init(value))
    aim = jnp.float32(expectile)
    critic, _, _, value, _ = _by_turns(fit, start, lambda state, span: _fit_in_sample(key, state, data, aim, fit, span))
    return critic, value


@functools.partial(jax.jit, static_argnames="fit")
def _fit_in_sample(key: Array, state: Any, data: Transitions, expectile: Array, fit: Fit, span: Any) -> Any:
    def step(state: Any, rows: Array, key: Array) -> Any:
        critic, critic_opt, target, value, value_opt = state
        batch = jax.tree.map(lambda x: x[rows], data)
        aim = jnp.min(_q(target, batch.obs, batch.action), axis=0)

        def value_loss(params: Params) -> Array:
            return jnp.mean(operators.expectile_value_loss(aim, _value(params, batch.obs), expectile))

        value, value_opt = _descend(fit, value_loss, value, value_opt)
        y = operators.bellman_target(batch.reward, batch.discount, _value(value, batch.next_obs))

        def critic_loss(params: Params) -> Array:
            return jnp.sum(jnp.mean(jnp.square(_q(params, batch.obs, batch.action) - y), axis=-1))

        critic, critic_opt = _descend(fit, critic_loss, critic, critic_opt)
        return critic, critic_opt, operators.polyak(target, critic, fit.tau), value, value_opt

    return _train(fit, key, data.obs.shape[0], state, step, span)


def fit_policy_q(key: Array, data: Transitions, policy: Sample, fit: Fit) -> Params:
    """Fitted Q evaluation: Q_i towards r + γ m Q̄_min(s', a'), a' ~ π, without entropy."""

    @jax.jit
    def run(key: Array, state: Any, data: Transitions, span: Any) -> Any:
        def step(state: Any, rows: Array, key: Array) -> Any:
            critic, opt, target = state
            batch = jax.tree.map(lambda x: x[rows], data)
            following = jnp.min(_q(target, batch.next_obs, policy(key, batch.next_obs)), axis=0)
            y = operators.bellman_target(batch.reward, batch.discount, following)

            def loss(params: Params) -> Array:
                return jnp.sum(jnp.mean(jnp.square(_q(params, batch.obs, batch.action) - y), axis=-1))

            critic, opt = _descend(fit, loss, critic, opt)
            return critic, opt, operators.polyak(target, critic, fit.tau)

        return _train(fit, key, data.obs.shape[0], state, step, span)

    critic = _init_critic(key, 2, data, fit)
    start = (critic, fit.optimiser.init(critic), critic)
    return _by_turns(fit, start, lambda state, span: run(key, state, data, span))[0]


def policy_value(key: Array, critic: Params, obs: Array, policy: Sample, samples: int) -> float:
    """mean over states of E_π Q_min(s, a), the expectation over `samples` actions."""

    def one(key: Array) -> Array:
        return jnp.mean(jnp.min(_q(critic, obs, policy(key, obs)), axis=0))

    keys = jax.vmap(lambda n: rng.fold(key, "diagnose/policy", n))(jnp.arange(samples))
    return float(jnp.mean(jax.lax.map(one, keys)))


def fitted_delta(
    key: Array, data: Transitions, policy: Sample, expectiles: tuple[float, ...], fit: Fit, states: Any = None
) -> dict[float, FittedDelta]:
    """Δ̂ for each expectile, over `states` (those of the data where none are given).

    Rewards are divided by their deviation for the fits and the values multiplied back: no fit depends on the task's units.
    """
    scale = max(float(np.std(data.reward)), 1e-6)
    scaled = Transitions(*map(jnp.asarray, data[:5]))._replace(reward=jnp.asarray(data.reward) / scale)
    obs = scaled.obs if states is None else jnp.asarray(states)
    critic = fit_policy_q(key, scaled, policy, fit)
    own = scale * policy_value(key, critic, obs, policy, fit.samples)
    found = {}
    for expectile in expectiles:
        _, value = fit_in_sample(key, scaled, expectile, fit)
        best = scale * float(jnp.mean(_value(value, obs)))
        found[expectile] = FittedDelta(best - own, (best - own) / max(abs(own), 1e-6), best, own)
    return found
