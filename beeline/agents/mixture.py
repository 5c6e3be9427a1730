"""The parts of DAC: the mixture of what policy and buffer do, the backup and the objective that make it diverse.

    q(a|s) = α(s) π(a|s) + (1 − α(s)) μ(a|s)              μ: the buffer's actions
    R(s, a) = α π / (α π + (1 − α) μ)                     learnt by telling the policy's actions from the buffer's
    −log q(a|s) = log R(s, a) − log α(s) − log π(a|s)     so that μ itself is never modelled
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline import operators
from beeline.agents.actors import GaussianActor
from beeline.agents.backup import Noise, Terms
from beeline.agents.critic import Critic
from beeline.agents.objective import Entropy, Metrics
from beeline.agents.owned import Owned
from beeline.memory import Batch
from beeline.networks import Draw, Learnable, Net, Params

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.sac import SACConfig

L2 = 1e-3  # on the weights of the share's network
INSIDE = 1e-3  # how far actions of the buffer are moved inwards before atanh


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The networks of the ratio R and of the share α; a fixed share has none."""

    ratio: Learnable
    share: Learnable | None
    fixed: float
    control: float  # c = −control · |A|
    dims: int

    def draw(self, seed: int, at: int) -> Any:
        """Their initial parameters."""
        drawn = {"ratio": self.ratio.draw(Draw(seed, "init/ratio", at))}
        return drawn if self.share is None else drawn | {"share": self.share.draw(Draw(seed, "init/share", at))}

    def init(self, drawn: Any) -> Any:
        """Both in slots."""
        slots = {"ratio": self.ratio.slot(drawn["ratio"])}
        return slots if self.share is None else slots | {"share": self.share.slot(drawn["share"])}

    def odds(self, params: Params, obs: Array, action: Array) -> Array:
        """log R/(1 − R): log R is its log-sigmoid, log(1 − R) that of its negative."""
        return self.ratio.net.apply(params, jnp.concatenate([obs, action], axis=-1))[..., 0]

    def alpha(self, own: Any, obs: Array, params: Params | None = None) -> Array:
        """α(s), `[B]`: .5 + .49 σ(·) of a network, or the fixed one."""
        if self.share is None:
            return jnp.full(obs.shape[:-1], self.fixed)
        out = self.share.net.apply(own["share"].live if params is None else params, obs)[..., 0]
        return 0.5 + 0.49 * jax.nn.sigmoid(out)

    def entropy(self, alpha: Array, log_r: tuple[Array, Array], log_pi: tuple[Array, Array]) -> Array:
        """α (−log q(ã|s)) + (1 − α) clip(−log q(a|s), ±|A|): H(q) of one action of each, ã the policy's and a the buffer's."""
        own, other = (r - jnp.log(alpha) - p for r, p in zip(log_r, log_pi))
        return alpha * own + (1.0 - alpha) * jnp.clip(other, -self.dims, self.dims)


def buffer_log_prob(output: Any, action: Array) -> Array:
    """log π(a|s) of an action that was taken, in [-1, 1] units; moved inwards, as atanh of ±1 is not finite."""
    return operators.tanh_gaussian_log_prob(jnp.arctanh(action - jnp.sign(action) * INSIDE), *output)


@dataclasses.dataclass(frozen=True)
class SampleAware(Entropy):
    """L_π = mean[ T α(s) (log π(ã|s) − log R(s, ã)) − Q_1(s, ã) ] (DAC); T is the temperature, 1 in DAC."""

    mixture: Any = None  # a Mixture

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """The first critic, and the policy's part in the mixture's entropy; `learn` looks at log π."""
        mine = state.backup.get("inner", state.backup)
        action, log_prob = self.actor.sample(noise, self.actor.output(params, batch.obs))
        q = self.critic.q(jax.tree.map(lambda leaf: leaf[:1], critic), batch.obs, action)[0]
        log_r = jax.nn.log_sigmoid(self.mixture.odds(mine["ratio"].live, batch.obs, action))
        weight = stop_gradient(self.temperature(own) * self.mixture.alpha(mine, batch.obs))
        return jnp.mean(weight * (self.density(log_prob) - log_r) - q), log_prob


@dataclasses.dataclass(frozen=True)
class Diverse(Owned):
    """y = r + γ m V̄(s'), V on min_i Q_i(s, ã) + T H(q(·|s)): the entropy of what policy and buffer do together (DAC)."""

    actor: GaussianActor
    critic: Critic
    entropy: SampleAware
    mixture: Mixture
    streams: tuple[str, ...] = dataclasses.field(default=("value",), init=False)

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """V's, the ratio's and the share's."""
        learnt = () if self.mixture.share is None else ("loss/mixture",)
        return ("loss/value", "value/mean", "loss/ratio", "mixture/entropy", "mixture/share", *learnt)

    def draw(self, seed: int, at: int) -> Any:
        """V, ratio and share."""
        return super().draw(seed, at) | self.mixture.draw(seed, at)

    def init(self, drawn: Any) -> Any:
        """All in slots."""
        return super().init(drawn) | self.mixture.init(drawn)

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """Steps of V, R and α, all from the parameters of the start, on one ã ~ π(·|s)."""
        mixture, obs = self.mixture, batch.obs
        output = self.actor.output(state.actor.live, obs)
        action, log_prob = self.actor.sample(noise["value"], output)
        log_pi = (self.entropy.density(log_prob), self.entropy.density(buffer_log_prob(output, batch.action)))
        odds = tuple(mixture.odds(own["ratio"].live, obs, each) for each in (action, batch.action))
        log_r = (jax.nn.log_sigmoid(odds[0]), jax.nn.log_sigmoid(odds[1]))
        alpha = mixture.alpha(own, obs)
        diverse = mixture.entropy(alpha, log_r, log_pi)
        q = self.critic.worst(self.critic.q(state.critic.live, obs, action))
        aim = q + self.entropy.temperature(state.objective) * diverse
        after, metrics, _ = self.regressed(own, obs, aim, lambda aim, v: jnp.square(aim - v))

        def ratio_loss(params: Params) -> tuple[Array, Array]:
            ours, theirs = (mixture.odds(params, obs, stop_gradient(each)) for each in (action, batch.action))
            told = alpha * (jax.nn.log_sigmoid(ours) - jnp.log(alpha))
            apart = (1.0 - alpha) * (jax.nn.log_sigmoid(-theirs) - jnp.log(1.0 - alpha))
            loss = -jnp.mean(told + apart)
            return loss, loss

        ratio, metrics["loss/ratio"] = mixture.ratio.step(own["ratio"], ratio_loss)
        metrics |= {"mixture/entropy": jnp.mean(diverse), "mixture/share": jnp.mean(alpha)}
        after = after | {"ratio": ratio}
        if mixture.share is None:
            return after, metrics

        def share_loss(params: Params) -> tuple[Array, Array]:
            free = mixture.alpha(own, obs, params)
            size = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
            less = mixture.entropy(free, log_r, log_pi) + free * mixture.control * mixture.dims
            loss = jnp.mean(less) + 0.5 * L2 * size
            return loss, loss

        share, metrics["loss/mixture"] = mixture.share.step(own["share"], share_loss)
        return after | {"share": share}, metrics


def of(config: SACConfig, task: Task, net: Net, optimiser: Any) -> Mixture:
    """The mixture of these options, with networks of the critics' body."""
    spaces = task.spaces
    ratio = Learnable(net, spaces.obs_dim + spaces.action_dim, optimiser)
    share = Learnable(net, spaces.obs_dim, optimiser) if config.mixture is None else None
    return Mixture(ratio, share, 0.0 if config.mixture is None else config.mixture, config.mixture_control, spaces.action_dim)
