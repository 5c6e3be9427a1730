"""One actor-critic update with exchangeable parts: SAC, BAC, TD3 and BEE-TD3 are choices of these parts.

One update, in the order of the BAC release (Ji et al. 2024; ALGORITHMS: SAC, TD3, BAC, BEE-TD3):
  1. y = λ T_exploit + (1 − λ) T_explore from the parameters of the start, and a step of the critics on Σ_i mean(Q_i − y)²
  2. a step of the exploit estimator on the target critics' Q̄_min(s, a)
  3. every `policy_interval` updates: a step of the policy under the new critics, then one of the explore term (α)
  4. every `target_interval` updates: φ̄ ← τφ + (1 − τ)φ̄
"""

from __future__ import annotations

import dataclasses
import math
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.lax import stop_gradient

from beeline import operators, rng, trees
from beeline.agents.actors import Actor, DeterministicActor, GaussianActor, PinkNoise, WhiteNoise
from beeline.agents.base import Batches, Spaces
from beeline.agents.options import ActorCriticConfig, ExploitOptions, SACConfig, TD3Config
from beeline.agents.parts import (
    Blend,
    Entropy,
    ExploreTerm,
    InSampleMaximum,
    Metrics,
    Signals,
    Smoothing,
    gradient_step,
    make_blend,
)
from beeline.networks import Params, apply_ensemble, init_ensemble, init_normaliser, normalise, observe
from beeline.replay import Batch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Everything that learns or counts. Absent parts are empty: `()` or None."""

    key: Array
    updates: Array
    actor: Params
    actor_target: Params | None
    actor_opt: Any
    critic: Params
    critic_target: Params
    critic_opt: Any
    explore: Any
    exploit: Any
    blend: Any
    normaliser: dict[str, np.ndarray] | None  # on the host, in double precision


class ActorCritic:
    """The agent: a config, the parts built from it, and compiled `act` and `update`."""

    def __init__(self, config: ActorCriticConfig, spaces: Spaces) -> None:
        self.config = config
        self.spaces = spaces
        self.actor: Actor = self._build_actor()
        self.explore: ExploreTerm = self._build_explore()
        self.exploit: InSampleMaximum | None = self._build_exploit()
        self.blend: Blend | None = None
        if self.exploit is not None and isinstance(config, ExploitOptions):
            self.blend = make_blend(config.blend, config.lam)
        self.noise = PinkNoise() if config.acting_noise == "pink" else WhiteNoise()
        self.actor_optimiser = self._optimiser(config.actor_lr)
        self.critic_optimiser = self._optimiser(config.critic_lr)
        self.metric_names = (
            "loss/critic",
            "loss/actor",
            "q/mean",
            "q/target",
            *(("lambda", "q/exploit_target", "q/explore_target") if self.exploit else ()),
            *(self.exploit.metric_names if self.exploit else ()),
            *self.explore.metric_names,
        )
        # What `act` reads. Updated in place, it would make the update wait for the action that is chosen before it. With a policy
        # that changes at every update the gain is lost again: its new parameters then want other memory each time.
        # Statistics stay on the host: the compiled update reads them and gives none back.
        self._kept = ("key", "actor", "normaliser") if config.policy_interval > 1 else ("normaliser",)
        # Compiled for the sake of its outputs: they are buffers of their own, also where two of them are equal (networks and
        # their targets), so that the state can be donated.
        self._init = jax.jit(self._init_impl)
        self._act = jax.jit(self._act_impl, static_argnames="mode")
        self._update = jax.jit(self._split_update, static_argnames="phase", donate_argnums=1)

    # --- building ---------------------------------------------------------------------------------------------------

    def _optimiser(self, rate: float, beta1: float = 0.9) -> Any:
        adam = optax.adam(rate, b1=beta1)
        clip = self.config.grad_clip
        return adam if clip is None else optax.chain(optax.clip_by_global_norm(clip), adam)

    def _build_actor(self) -> Actor:
        c = self.config
        if isinstance(c, TD3Config):
            return DeterministicActor(self.spaces.action_dim, c.hidden, c.network, c.initialiser, c.exploration_noise)
        return GaussianActor(self.spaces.action_dim, c.hidden, c.network, c.initialiser)

    def _build_explore(self) -> ExploreTerm:
        c = self.config
        if isinstance(c, TD3Config):
            return Smoothing(0.0 if c.explore == "none" else c.smoothing_noise, c.smoothing_clip)
        assert isinstance(c, SACConfig)
        present = c.explore == "entropy"
        return Entropy(
            alpha=c.alpha if present else 0.0,
            tuned=c.tune_alpha and present,
            target_entropy=-float(self.spaces.action_dim) if c.target_entropy is None else c.target_entropy,
            scale=self.spaces.action_scale if c.entropy_units == "env" else None,
            optimiser=self._optimiser(c.alpha_lr, c.alpha_beta1),
        )

    def _build_exploit(self) -> InSampleMaximum | None:
        c = self.config
        if not isinstance(c, ExploitOptions) or (c.blend == "fixed" and c.lam == 0.0):
            return None
        return InSampleMaximum(
            loss_name=c.exploit,
            strength=c.expectile if c.exploit == "expectile" else c.exploit_alpha,
            entropy=getattr(c, "v_entropy", False),
            hidden=c.hidden,
            body=c.network,
            initialiser=c.initialiser,
            optimiser=self._optimiser(c.value_lr),
        )

    def init(self, seed: int) -> State:
        """The state before the first step; each part draws from a stream of its own name."""
        c, spaces = self.config, self.spaces
        sizes = (spaces.obs_dim + spaces.action_dim, *c.hidden, 1)
        members = [rng.stream(seed, "init/critic", member) for member in range(1 + c.double_q)]
        state = self._init(
            jax.random.key_data(jax.random.key(seed)),
            self.actor.init(rng.stream(seed, "init/actor"), spaces.obs_dim),
            init_ensemble(members, sizes, c.network, c.initialiser),
            self.exploit.draw(rng.stream(seed, "init/exploit"), spaces.obs_dim) if self.exploit else None,
        )
        return dataclasses.replace(state, normaliser=init_normaliser(spaces.obs_dim)) if c.normalize_obs else state

    def _init_impl(self, key: Array, actor: Params, critic: Params, exploit: Params | None) -> State:
        c = self.config
        return State(
            key=key,
            updates=jnp.int32(0),
            actor=actor,
            actor_target=actor if self.explore.target_actor else None,
            actor_opt=self.actor_optimiser.init(actor),
            critic=critic,
            critic_target=critic,
            critic_opt=self.critic_optimiser.init(critic),
            explore=self.explore.init(),
            exploit=self.exploit.init(exploit) if self.exploit and exploit is not None else (),
            blend=self.blend.init(c.batch_size) if self.blend else (),
            normaliser=None,
        )

    # --- acting -----------------------------------------------------------------------------------------------------

    def init_actor_state(self, lanes: int) -> Any:
        """The acting noise's state."""
        return self.noise.init(lanes, self.spaces.action_dim)

    def act(
        self, state: State, actor_state: Any, obs: np.ndarray, first: np.ndarray, counter: int, mode: str
    ) -> tuple[Array, dict[str, Any], Any]:
        """Actions for observations `[n, obs_dim]`; see the protocol."""
        action, actor_state = self._act(
            state.actor, state.normaliser, state.key, actor_state, obs, first, np.int32(counter), mode=mode
        )
        return action, {}, actor_state

    def _act_impl(
        self, params: Params, statistics: Any, key: Array, actor_state: Any, obs: Array, first: Array, counter: Array, mode: str
    ) -> tuple[Array, Any]:
        obs = normalise(statistics, obs)
        if mode == "greedy":
            return self.actor.greedy(params, obs), actor_state
        key = rng.fold(jax.random.wrap_key_data(key), "act", counter)
        noise, actor_state = self.noise(key, actor_state, first, (obs.shape[0], self.spaces.action_dim))
        return self.actor.explore(params, obs, noise), actor_state

    def observe(self, state: State, obs: np.ndarray) -> State:
        """Take new observations into the normaliser, where there is one."""
        if state.normaliser is None:
            return state
        return dataclasses.replace(state, normaliser=observe(state.normaliser, obs))

    def policy(self, state: State) -> dict[str, np.ndarray]:
        """The deterministic policy's arrays."""
        return trees.to_arrays({"actor": state.actor, "normaliser": state.normaliser})

    def with_policy(self, state: State, arrays: dict[str, np.ndarray]) -> State:
        """The state with policy, target policy and normaliser replaced."""
        own = trees.from_arrays({"actor": state.actor, "normaliser": state.normaliser}, arrays)
        target = None if state.actor_target is None else jax.tree.map(jnp.array, own["actor"])
        return dataclasses.replace(state, actor=own["actor"], actor_target=target, normaliser=own["normaliser"])

    # --- learning ---------------------------------------------------------------------------------------------------

    def update(self, state: State, batches: Batches) -> tuple[State, Metrics]:
        """All updates of the batches in one compiled call; the given state is consumed."""
        kept, rest = self._split(state)
        phase = batches.first % self._period
        changed, rest, metrics = self._update(kept, rest, batches.train, batches.exploit, phase=phase)
        return dataclasses.replace(rest, **(kept | changed)), metrics

    def _split(self, state: State) -> tuple[dict[str, Any], State]:
        """What is not updated in place, and the state without it."""
        nothing: dict[str, Any] = dict.fromkeys(self._kept)
        return {name: getattr(state, name) for name in nothing}, dataclasses.replace(state, **nothing)

    def _split_update(
        self, kept: dict[str, Any], rest: State, train: Batch, exploit: Batch | None, phase: int
    ) -> tuple[dict[str, Any], State, Metrics]:
        """The update with what is not updated in place apart; of that, only what has changed is returned."""
        state, metrics = self._update_impl(dataclasses.replace(rest, **kept), train, exploit, phase)
        after, rest = self._split(state)
        return {name: value for name, value in after.items() if value is not kept[name]}, rest, metrics

    @property
    def _period(self) -> int:
        return math.lcm(self.config.policy_interval, self.config.target_interval)

    def _update_impl(self, state: State, train: Batch, exploit: Batch | None, phase: int) -> tuple[State, Metrics]:
        """Run the updates in scans: over whole periods of the delays, and inside one over equal neighbours.

        Which updates touch the policy and the targets is static, so no branch is computed in vain and compile time does
        not grow with the number of updates.
        """
        count = train.reward.shape[0]
        due = [
            (number % self.config.policy_interval == 0, number % self.config.target_interval == 0)
            for number in range(phase + 1, phase + count + 1)
        ]

        def run(state: State, first: int, stop: int, data: Any) -> tuple[State, Metrics]:
            metrics: Metrics = {}
            offset = 0
            for (policy, target), group in groupby(due[first:stop]):
                length = len(list(group))

                def one(state: State, batch: Any, policy: bool = policy, target: bool = target) -> tuple[State, Metrics]:
                    return self._one_update(state, *batch, policy=policy, target=target)

                part = jax.tree.map(lambda x, o=offset, n=length: x[o : o + n], data)
                if length == 1:
                    state, latest = one(state, jax.tree.map(lambda x: x[0], part))
                else:
                    state, stacked = jax.lax.scan(one, state, part)
                    latest = jax.tree.map(lambda x: x[-1], stacked)
                metrics |= latest
                offset += length
            return state, metrics

        data = (train, exploit)
        periods = count // self._period
        if self._period == 1 or periods < 2:
            return run(state, 0, count, data)
        whole = periods * self._period
        stacked = jax.tree.map(lambda x: x[:whole].reshape(periods, self._period, *x.shape[1:]), data)
        state, metrics = jax.lax.scan(lambda state, part: run(state, 0, self._period, part), state, stacked)
        metrics = jax.tree.map(lambda x: x[-1], metrics)
        if whole < count:
            state, rest = run(state, whole, count, jax.tree.map(lambda x: x[whole:], data))
            metrics |= rest
        return state, metrics

    def q(self, critic: Params, obs: Array, action: Array) -> Array:
        """Every critic's Q(s, a), `[E, B]`."""
        return apply_ensemble(critic, jnp.concatenate([obs, action], axis=-1), self.config.network)[..., 0]

    def _draw_noise(self, state: State, shape: tuple[int, ...], policy: bool, fit: Any) -> dict[str, Array]:
        """The standard normal noise of one update, by the name of its stream; only what will be looked at is drawn.

        All streams are drawn in one call, which gives the numbers of one call each for less than their time.
        """
        root = jax.random.wrap_key_data(state.key)
        keys = {"explore": rng.fold(root, "explore", state.updates)}
        drawn = {}
        if self.actor.stochastic:
            if self.exploit is not None and self.exploit.entropy:
                key = rng.fold(root, "exploit", state.updates)
                if fit is None:
                    keys["exploit"] = key
                else:  # a batch of its own, maybe of another size
                    drawn["exploit"] = jax.random.normal(key, fit.action.shape)
            for turn in range(self.config.policy_rounds if policy else 0):
                keys[f"policy/{turn}"] = jax.random.fold_in(rng.fold(root, "policy", state.updates), turn)
        together = jax.vmap(lambda key: jax.random.normal(key, shape))(jnp.stack(list(keys.values())))
        return drawn | dict(zip(keys, together))

    def _one_update(
        self, state: State, batch: Any, fit: Any, *, policy: bool, target: bool
    ) -> tuple[State, Metrics]:
        noise = self._draw_noise(state, batch.action.shape, policy, fit)
        reward = self.config.reward_scale * batch.reward
        obs, next_obs = normalise(state.normaliser, batch.obs), normalise(state.normaliser, batch.next_obs)

        # T_explore = r + γ m (Q̄(s', a') − ω)
        acting = state.actor if state.actor_target is None else state.actor_target
        next_output = self.actor.output(acting, next_obs)
        next_action, next_log_prob = self.explore.next_action(noise["explore"], self.actor, next_output)
        if self.exploit:  # one product over both batches takes less time than two
            both = self.q(state.critic_target, jnp.concatenate([next_obs, obs]), jnp.concatenate([next_action, batch.action]))
            next_q, here_q = jnp.split(both, 2, axis=-1)
        else:
            next_q = self.q(state.critic_target, next_obs, next_action)
        explore_value = self.explore.value(state.explore, next_q, next_log_prob)
        explore_target = operators.bellman_target(reward, batch.discount, explore_value)
        exploit_target = target_q = explore_target
        if self.exploit:  # T_exploit = r + γ m V(s'), with V as it was before this update
            next_v = self.exploit.value(state.exploit["params"], next_obs)
            exploit_target = operators.bellman_target(reward, batch.discount, next_v)
            target_q = jnp.min(here_q, axis=0)

        def critic_loss(critic: Params) -> tuple[Array, tuple[Any, Metrics]]:
            q = self.q(critic, obs, batch.action)
            y, blend_state, metrics = explore_target, state.blend, {}
            if self.blend:
                worst = stop_gradient(jnp.min(q, axis=0))
                signals = Signals(exploit_target, explore_target, stop_gradient(explore_value), worst, target_q)
                y, lam, blend_state = self.blend(state.blend, signals)
                metrics = {
                    "lambda": jnp.mean(lam),
                    "q/exploit_target": jnp.mean(exploit_target),
                    "q/explore_target": jnp.mean(explore_target),
                }
            loss = jnp.sum(jnp.mean(jnp.square(q - y), axis=-1))
            return loss, (blend_state, metrics | {"loss/critic": loss, "q/mean": jnp.mean(q), "q/target": jnp.mean(y)})

        gradients, (blend_state, metrics) = jax.grad(critic_loss, has_aux=True)(state.critic)
        critic, critic_opt = gradient_step(self.critic_optimiser, gradients, state.critic_opt, state.critic)

        exploit_state = state.exploit
        if self.exploit:
            fit_obs, fit_q = obs, target_q
            if fit is not None:
                fit_obs = normalise(state.normaliser, fit.obs)
                fit_q = jnp.min(self.q(state.critic_target, fit_obs, fit.action), axis=0)
            bonus = None
            if self.exploit.entropy:
                _, log_prob = self.actor.sample(noise["exploit"], self.actor.output(state.actor, fit_obs))
                bonus = self.explore.bonus(state.explore, log_prob)
            exploit_state, exploit_metrics = self.exploit.update(state.exploit, fit_obs, fit_q, bonus)
            metrics |= exploit_metrics

        actor, actor_opt, explore_state = state.actor, state.actor_opt, state.explore
        judges = jax.tree.map(lambda x: x[: self.explore.policy_critics], critic)
        for turn in range(self.config.policy_rounds if policy else 0):

            def policy_loss(params: Params, turn: int = turn, explore_state: Any = explore_state) -> tuple[Array, Array]:
                action, log_prob = self.actor.sample(noise.get(f"policy/{turn}"), self.actor.output(params, obs))
                return self.explore.policy_loss(explore_state, self.q(judges, obs, action), log_prob), log_prob

            (loss, log_prob), gradients = jax.value_and_grad(policy_loss, has_aux=True)(actor)
            actor, actor_opt = gradient_step(self.actor_optimiser, gradients, actor_opt, actor)
            explore_state, explore_metrics = self.explore.update(explore_state, log_prob)
            metrics |= {"loss/actor": loss} | explore_metrics

        critic_target, actor_target = state.critic_target, state.actor_target
        if target:
            critic_target = operators.polyak(critic_target, critic, self.config.tau)
            if actor_target is not None:
                actor_target = operators.polyak(actor_target, actor, self.config.tau)

        return State(
            key=state.key,
            updates=state.updates + 1,
            actor=actor,
            actor_target=actor_target,
            actor_opt=actor_opt,
            critic=critic,
            critic_target=critic_target,
            critic_opt=critic_opt,
            explore=explore_state,
            exploit=exploit_state,
            blend=blend_state,
            normaliser=state.normaliser,
        ), metrics
