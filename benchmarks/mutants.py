"""Do the tests bite? Changes of the code that each break one line of a method, and the tests that must notice.

    python benchmarks/mutants.py                # all of them, in a temporary copy of the package
    python benchmarks/mutants.py ada loop       # those whose names contain one of these words

Each change is made alone, the named tests run, and the change counts as killed if one of them fails in an assertion.
The exit status is 1 if a change survives, and 2 if it could not be tried: the text it replaces is not there (once), a
named test does not pass on the code as it is, or the changed code does not even run. To extend it, add to MUTANTS.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTICED = r"^E +(AssertionError|assert |Failed: DID NOT RAISE)"  # in what pytest prints


@dataclass(frozen=True)
class Edit:
    """Replace the one place in a file where `old` stands."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The changed text; an error where the old text is not there exactly once."""
        found = text.count(self.old)
        if found != 1:
            raise LookupError(f"{self.file} has this {found} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """A change of the code, and the tests of which one must fail under it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


READINGS = "beeline/agents/readings.py"
SHIFTED, TAKEN, BACKUP = "beeline/agents/shifted.py", "beeline/agents/taken.py", "beeline/agents/backup.py"
UPDATE, OBJECTIVE, BLENDS, MAKE = (f"beeline/agents/{name}.py" for name in ("off_policy", "objective", "blends", "make"))
OWNED, MIXTURE, CLONING, WEIGHTED, IMPROVED, NATURAL, TRUST = (
    f"beeline/agents/{name}.py" for name in ("owned", "mixture", "cloning", "weighted", "improved", "natural", "trust")
)
NETWORKS, FEEDS, LOOP = "beeline/networks/base.py", "beeline/feeds.py", "beeline/loop.py"
PASSES = "beeline/networks/passes.py"
_GRADIENTS = "tests/networks/test_passes.py::test_values_and_every_gradient_are_those_of_the_plain_form"
_NOISE = "tests/agents/test_off_policy.py::test_noise_is_that_of_each_update_drawn_alone_however_updates_are_spread_over_calls"
_COMPILED = "tests/test_loop.py::test_the_first_update_finds_everything_compiled"
_UPDATES = "tests/agents/test_off_policy.py::test_consecutive_updates_equal_the_specification_in_every_number"
_BATCHES = "tests/test_loop.py::test_the_agent_learns_from_as_many_steps_and_under_the_discount_it_was_given"


_WORLD, _WORLD_TESTS = "beeline/envs/dkitty/world.py", "tests/envs/test_dkitty.py"
_PPO, _PPO_TESTS = "beeline/agents/on_policy.py", "tests/agents/test_ppo.py"
_PPO_UPDATES = f"{_PPO_TESTS}::test_consecutive_updates_equal_the_specification_in_every_number[tight]"
_PPO_RATIO = f"{_PPO_TESTS}::test_a_rollout_is_the_current_policys_own"
_RRS, _MAXQ = "tests/agents/test_rrs.py", "tests/agents/test_maxq.py"
_OWNED, _GRAC, _TRPO = (f"tests/agents/test_{name}.py" for name in ("owned", "grac", "trpo"))
_PINK = "tests/agents/test_pink.py::test_consecutive_updates_equal_the_specification_across_the_end_of_a_sequence"


def _under(*cases: str) -> tuple[str, ...]:
    return tuple(f"{_UPDATES}[{case}]" for case in cases)


def _of(file: str, *cases: str) -> tuple[str, ...]:
    return tuple(f"{file}::test_consecutive_updates_equal_the_specification_in_every_number[{case}]" for case in cases)


def _owned(*cases: str) -> tuple[str, ...]:
    return tuple(f"{_OWNED}::test_three_updates_equal_the_specification_in_every_number[{case}]" for case in cases)


MUTANTS = (
    Mutant(
        "td3: target from the first target critic alone",
        (Edit(BACKUP, "        value = self.critic.worst(answers[0])\n        reward",
              "        value = answers[0][0]\n        reward"),),
        _under("td3-mlp"),
    ),
    Mutant(
        "td3: policy loss on the minimum of both critics",
        (Edit(OBJECTIVE, "self.critic.q(self.judge(critic, state), batch.obs, action)[0]",
              "self.critic.worst(self.critic.q(critic, batch.obs, action))"),),
        _under("td3-mlp"),
    ),
    Mutant(
        "td3: target action from the live policy",
        (Edit(BACKUP, "self.actor.output(state.actor.target, batch.next_obs)",
              "self.actor.output(state.actor.live, batch.next_obs)"),),
        _under("td3-mlp"),
    ),
    Mutant(
        "all: T_explore from live instead of target critics",
        (Edit(UPDATE, "answers = self.ask(state.critic.target, pairs)", "answers = self.ask(state.critic.live, pairs)"),),
        _under("sac-mlp", "bac-bac"),
    ),
    Mutant(
        "all: policy judged by the critics of before the step",
        (Edit(UPDATE, "self._policy_step(now, seen, batch, noise)", "self._policy_step(now, state, batch, noise)"),),
        _under("sac-mlp"),
    ),
    Mutant(
        "td3: target policy never following",
        (Edit(UPDATE, "critic, actor = follow(critic, self.config.tau), follow(actor, self.config.tau)",
              "critic = follow(critic, self.config.tau)"),),
        _under("td3-mlp"),
    ),
    Mutant(
        "all: Adam's moments not kept",
        (Edit(NETWORKS, "updates, opt = optimiser.update(gradients, slot.opt, slot.live)",
              "updates, opt = optimiser.update(gradients, slot.opt, slot.live)[0], slot.opt"),),
        _under("sac-mlp"),
    ),
    Mutant(
        "sac: alpha_beta1 ignored",
        (Edit(MAKE, "adam(config.alpha_lr, beta1=config.alpha_beta1, clip=config.grad_clip)",
              "adam(config.alpha_lr, clip=config.grad_clip)"),),
        _under("sac-mlp"),
    ),
    Mutant(
        "bee: ada never storing its δ",
        (Edit(BLENDS, 'lam, {"delta": delta}', "lam, state"),),
        _under("bac-mlp"),
    ),
    Mutant(
        "bac: V's regression without its entropy",
        (Edit(BACKUP, "aim = q - self.entropy.bonus(state.objective, log_prob)", "aim = q"),),
        _under("bac-bac"),
    ),
    Mutant(
        "bac: V's entropy from the noise of T_explore",
        (Edit(BACKUP, 'self.actor.sample(noise["exploit"],', 'self.actor.sample(noise["explore"],'),),
        _under("bac-bac"),
    ),
    Mutant(
        "bee: T_exploit from the target critics",
        (Edit(BACKUP, 'next_v = self.v(state.backup["value"].live, batch.next_obs)', "next_v = self.critic.worst(answers[0])"),),
        _under("bee-td3-bac"),
    ),
    Mutant(
        "bee: V fitted to the live critics",
        (Edit(BACKUP, "obs, q = batch.obs, terms.here\n",
              "obs, q = batch.obs, self.critic.worst(self.critic.q(state.critic.live, batch.obs, batch.action))\n"),),
        _under("bee-td3-bac"),
    ),
    Mutant(
        "sac: the second policy step under the temperature of the first",
        (Edit(UPDATE, "objective: Any = objective) -> tuple", "objective: Any = state.objective) -> tuple"),),
        _under("sac-bac"),
    ),
    Mutant(
        "all: targets follow at every update",
        (Edit(UPDATE, "        if target:\n", "        if True:\n"),),
        _under("sac-bac"),
    ),
    Mutant(
        "all: grad_clip ignored",
        (Edit(NETWORKS, "return plain if clip is None else", "return plain if True else"),),
        _under("td3-bac"),
    ),
    Mutant(
        "all: reward_scale ignored",
        (Edit(READINGS, "scaled = self.config.reward_scale * reward", "scaled = reward"),),
        _under("td3-bac"),
    ),
    Mutant(
        "ln: gradients pass where the output is zero",
        (Edit(PASSES, "da = jnp.where(y > 0.0, dy, 0.0)", "da = dy"),),
        (_GRADIENTS,),
    ),
    Mutant(
        "ln: the deviation taken for a constant",
        (Edit(PASSES, " - mean - normal * tilt)", " - mean)"),),
        (_GRADIENTS,),
    ),
    Mutant(
        "all: noise of the policy's steps by the first update of its call",
        (Edit(UPDATE, "state.updates + jnp.arange(first, count, step)", "state.updates + jnp.arange(0, count - first, step)"),),
        (_NOISE,),
    ),
    Mutant(
        "all: noise of the policy's steps given to the update before",
        (Edit(UPDATE, "[(first, last, every - 1),", "[(first - 1, last + 1, every - 1),"),),
        (_NOISE,),
    ),
    Mutant(
        "loop: nothing compiled ahead",
        (Edit(LOOP, "        self.agent.warm(self.memories, self.clock)\n", ""),),
        (f"{_COMPILED}[bac-options0]",),
    ),
    Mutant(
        "all: one phase of the delays compiled ahead",
        (Edit(UPDATE, "% self._period for call in range(self._period)", "% self._period for call in range(1)"),),
        (f"{_COMPILED}[td3-options1]",),
    ),
    Mutant(
        "feed: n_step ignored",
        (Edit(FEEDS, "gamma=self.gamma, n_step=self.n_step,", "gamma=self.gamma,"),),
        (_BATCHES,),
    ),
    Mutant(
        "feed: gamma ignored",
        (Edit(FEEDS, "gamma=self.gamma, n_step=self.n_step,", "n_step=self.n_step,"),),
        (_BATCHES,),
    ),
    Mutant(
        "ppo: the better instead of the worse of both ratios",
        (Edit(_PPO, "jnp.maximum(-advantage * ratio,", "jnp.minimum(-advantage * ratio,"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: GAE's λ ignored",
        (Edit(_PPO, "trace = self.config.gamma * self.config.gae", "trace = self.config.gamma"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: V without its bound",
        (Edit(_PPO, "if config.value_clip is not None:", "if False:"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: advantages not centred and scaled",
        (Edit(_PPO, "advantage = centred / (jnp.std(rows[\"advantage\"], ddof=1) + 1e-8)", "advantage = rows[\"advantage\"]"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: log σ not trained",
        (Edit(_PPO, "self.net.log_prob(params[0], rows",
              "self.net.log_prob(params[0] | {\"log_std\": jax.lax.stop_gradient(params[0][\"log_std\"])}, rows"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: the gradients' bound on each network alone",
        (Edit(_PPO, "gradients, _ = bound.update(gradients, bound.init(gradients))",
              "gradients = tuple(bound.update(each, bound.init(each))[0] for each in gradients)"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: the rate never falls",
        (Edit(_PPO, "move(each.optimiser, slot, gradient, rate)", "move(each.optimiser, slot, gradient)"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: a time limit always has a value",
        (Edit(_PPO, "rollout.discount if config.bootstrap_limits else rollout.discount * ~truncated", "rollout.discount"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: V's advantage flows over the end of an episode",
        (Edit(_PPO, "np.float32(~(terminated | truncated))", "np.float32(~terminated)"),),
        (_PPO_UPDATES,),
    ),
    Mutant(
        "ppo: statistics of observations move within a rollout",
        (Edit(_PPO, "{\"since\": since, \"running\": running, \"returns\": returns}",
              "{\"since\": since, \"running\": running, \"returns\": returns,\n"
              "            \"statistics\": observe(state.host[\"statistics\"], obs)}"),),
        (_PPO_RATIO,),
    ),
    Mutant(
        "ppo: the old policy acts while the new one is learnt",
        (Edit(LOOP, "if self.agent.on_policy:", "if False:"),),
        (_PPO_RATIO,),
    ),
    Mutant(
        "rrs: shift missing on terminal transitions",
        (Edit(SHIFTED, "jnp.array(self.shifts, batch.reward.dtype)[:, None]",
              "jnp.array(self.shifts, batch.reward.dtype)[:, None] * (batch.discount > 0)"),),
        (f"{_RRS}::test_each_pair_has_its_own_target_and_the_shift_is_there_at_the_end_too",),
    ),
    Mutant(
        "rrs: policy always judged by the first pair",
        (Edit(SHIFTED, 'selected = state.host["selected"]', "selected = 0"),),
        _of(_RRS, "rrs-mlp"),
    ),
    Mutant(
        "rrs: policy judged by the second critic of the pair",
        (Edit(SHIFTED, "dynamic_index_in_dim(leaf, selected)[:, :1]", "dynamic_index_in_dim(leaf, selected)[:, 1:]"),),
        _of(_RRS, "rrs-mlp"),
    ),
    Mutant(
        "rrs: minimum over the critics of all shifts",
        (Edit(BACKUP, "value = self.critic.worst(answers[0])\n        reward",
              "value = jnp.zeros_like(self.critic.worst(answers[0])) + jnp.min(answers[0], axis=(0, 1))\n        reward"),),
        _of(_RRS, "rrs-mlp"),
    ),
    Mutant(
        "rrs: loss summed over shifts",
        (Edit("beeline/agents/critic.py", "return each if groups == 1 else each / groups", "return each"),),
        _of(_RRS, "rrs-mlp"),
    ),
    Mutant(
        "rrs: pair drawn in the middle of an episode",
        (Edit(SHIFTED, "not (ended and long_enough)", "not long_enough"),),
        (f"{_RRS}::test_a_pair_is_drawn_at_the_start_and_at_the_end_of_an_episode_after_enough_steps",),
    ),
    Mutant(
        "rrs: pair drawn at every episode's end",
        (Edit(SHIFTED, "not (ended and long_enough)", "not ended"),),
        (f"{_RRS}::test_a_pair_is_drawn_at_the_start_and_at_the_end_of_an_episode_after_enough_steps",),
    ),
    Mutant(
        "rrs: the same pair at every draw",
        (Edit(SHIFTED, '"select shift", clock.step)', '"select shift")'),),
        (f"{_RRS}::test_pairs_are_drawn_uniformly_and_as_functions_of_seed_and_step",),
    ),
    Mutant(
        "rrs: the last pair never drawn",
        (Edit(SHIFTED, ".integers(len(self.config.shifts))", ".integers(len(self.config.shifts) - 1)"),),
        (f"{_RRS}::test_pairs_are_drawn_uniformly_and_as_functions_of_seed_and_step",),
    ),
    Mutant(
        "bee-rrs: T_exploit without the shift",
        (Edit(BACKUP, "reward = self.inner.reward(batch)\n        next_v",
              "reward = jnp.broadcast_to(batch.reward, inner.target.shape)\n        next_v"),),
        _of(_RRS, "bee-rrs-mlp"),
    ),
    Mutant(
        "maxq: next action used where there is none",
        (Edit(TAKEN, '_extra(batch, "next_action_valid") & (taken > inner.value)', "taken > inner.value"),),
        _of(_MAXQ, "maxq-mlp"),
    ),
    Mutant(
        "maxq: the worse of both actions",
        (Edit(TAKEN, "(taken > inner.value)", "(taken < inner.value)"),),
        _of(_MAXQ, "maxq-td3-mlp"),
    ),
    Mutant(
        "maxq: the taken action judged by the first critic alone",
        (Edit(TAKEN, "taken = self.critic.worst(answers[-1])", "taken = answers[-1][0]"),),
        _of(_MAXQ, "maxq-td3-mlp"),
    ),
    Mutant(
        "maxq: the entropy of the sample given to the taken action too",
        (Edit(TAKEN, "taken = self.critic.worst(answers[-1])",
              "taken = self.critic.worst(answers[-1]) + inner.value - self.critic.worst(answers[0])"),),
        _of(_MAXQ, "maxq-mlp"),
    ),
    Mutant(
        "bee-maxq: the blend looks at the value before the maximum",
        (Edit(TAKEN, "target=target, value=value, told", "target=target, told"),),
        _of(_MAXQ, "bee-maxq-h2o"),
    ),
    Mutant(
        "maxq: the action at s for the one at s'",
        (Edit("beeline/memory.py", "self._action_at(following)", "self._action_at(index)"),),
        (f"{_MAXQ}::test_the_feed_brings_the_action_that_was_taken_next",),
    ),
    Mutant(
        "dac: V without the buffer's part of the entropy",
        (Edit(MIXTURE, "return alpha * own + (1.0 - alpha) * jnp.clip(other, -self.dims, self.dims)", "return alpha * own"),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "dac: the buffer's part without its bound",
        (Edit(MIXTURE, "jnp.clip(other, -self.dims, self.dims)", "other"),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "dac: policy judged by the smaller critic",
        (Edit(MIXTURE, "self.critic.q(jax.tree.map(lambda leaf: leaf[:1], critic), batch.obs, action)[0]",
              "self.critic.worst(self.critic.q(critic, batch.obs, action))"),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "dac: policy without the ratio",
        (Edit(MIXTURE, "(self.density(log_prob) - log_r)", "self.density(log_prob)"),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "dac: steps from what the others left",
        (Edit("beeline/agents/sac.py", "fresh=fresh and not diverse", "fresh=fresh"),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "mixture: the share's weights are free",
        (Edit(MIXTURE, "jnp.mean(less) + 0.5 * L2 * size", "jnp.mean(less)"),),
        _owned("dac"),
    ),
    Mutant(
        "mixture: the share never steered",
        (Edit(MIXTURE, "mixture.entropy(free, log_r, log_pi) + free * mixture.control * mixture.dims",
              "mixture.entropy(free, log_r, log_pi)"),),
        _owned("dac"),
    ),
    Mutant(
        "mixture: the ratio weighs both kinds of action alike",
        (Edit(MIXTURE, "apart = (1.0 - alpha) * (", "apart = alpha * ("),),
        _owned("dac-fixed"),
    ),
    Mutant(
        "sample-aware: V without the temperature",
        (Edit(MIXTURE, "aim = q + self.entropy.temperature(state.objective) * diverse", "aim = q + diverse"),),
        _owned("sample-aware"),
    ),
    Mutant(
        "sample-aware: policy without the temperature",
        (Edit(MIXTURE, "stop_gradient(self.temperature(own) * self.mixture.alpha(mine, batch.obs))",
              "stop_gradient(self.mixture.alpha(mine, batch.obs))"),),
        _owned("sample-aware"),
    ),
    Mutant(
        "xql: V from the first critic alone",
        (Edit(OWNED, "q = self.critic.worst(self.critic.q(state.critic.live, batch.obs, action))",
              "q = self.critic.q(state.critic.live, batch.obs, action)[0]"),),
        _owned("xql"),
    ),
    Mutant(
        "xql: the live V is bootstrapped",
        (Edit(OWNED, "self.v(slot.live if slot.target is None else slot.target, batch.next_obs)",
              "self.v(slot.live, batch.next_obs)"),),
        _owned("xql"),
    ),
    Mutant(
        "xql: the Gumbel loss without its bound",
        (Edit(OWNED, "z = jnp.clip((stop_gradient(aim) - pred) / beta, -clip, clip)", "z = (stop_gradient(aim) - pred) / beta"),),
        (f"{_OWNED}::test_gumbel_loss_by_hand",),
    ),
    Mutant(
        "xql: the Gumbel loss not rescaled",
        (Edit(OWNED, "return jnp.exp(z - shift) - z * jnp.exp(-shift) - jnp.exp(-shift)", "return jnp.exp(z) - z - 1.0"),),
        _owned("xql"),
    ),
    Mutant(
        "xtd3: one rescaling for both critics",
        (Edit(OWNED, "jnp.max(z, axis=-1, keepdims=True)", "jnp.max(z)"),),
        _owned("xtd3"),
    ),
    Mutant(
        "xtd3: squared error instead of the Gumbel loss",
        (Edit(MAKE, "read or head(config)", "head(config)"),),
        _owned("xtd3"),
    ),
    Mutant(
        "xtd3: beta ignored",
        (Edit(OWNED, "return gumbel_loss(y, self.value(out), self.beta, self.clip)",
              "return gumbel_loss(y, self.value(out), 1.0, self.clip)"),),
        _owned("xtd3"),
    ),
    Mutant(
        "iql: the order of BAC",
        (Edit("beeline/agents/iql.py", 'order=("value", "policy", "critic")', 'order=("critic", "value", "policy")'),),
        _owned("iql"),
    ),
    Mutant(
        "iql: critics on the V of before its step",
        (Edit(UPDATE, "if seen.backup is not state.backup:", "if False:"),),
        _owned("iql"),
    ),
    Mutant(
        "iql: weights without their bound",
        (Edit(WEIGHTED, "stop_gradient(jnp.minimum(free, self.bound))", "stop_gradient(free)"),),
        _owned("iql"),
    ),
    Mutant(
        "iql: advantages under the live critics",
        (Edit(WEIGHTED, "self.critic.q(state.critic.target, batch.obs, batch.action)",
              "self.critic.q(critic, batch.obs, batch.action)"),),
        _owned("iql"),
    ),
    Mutant(
        "obac: the buffer cloned always",
        (Edit(CLONING, "behind = (policy < jnp.mean(behaviour)).astype(q.dtype)", "behind = jnp.ones_like(policy)"),),
        (f"{_OWNED}::test_obac_clones_where_the_buffers_critic_is_ahead_and_nowhere_else[False]",),
    ),
    Mutant(
        "obac: V fitted to the buffer's live critics",
        (Edit(CLONING, 'self.critic.q(own["critic"].target, obs, action)', 'self.critic.q(own["critic"].live, obs, action)'),),
        _owned("obac"),
    ),
    Mutant(
        "obac: the copies of the buffer's critics never follow",
        (Edit(CLONING, 'return own | {"critic": follow(own["critic"], tau)}', "return own"),),
        _owned("obac"),
    ),
    Mutant(
        "obac: policy judged by the critics of after their step",
        (Edit("beeline/agents/obac.py", "fresh=False", "fresh=True"),),
        _owned("obac"),
    ),
    Mutant(
        "grac: the worse of both actions",
        (Edit(IMPROVED, "value = jnp.maximum(first, second)", "value = jnp.minimum(first, second)"),),
        _of(_GRAC, "bee-grac"),
    ),
    Mutant(
        "grac: searched and judged by the same critic",
        (Edit(IMPROVED, "improve(self.critic, state.critic.live, 1, self.search, batch.next_obs",
              "improve(self.critic, state.critic.live, 0, self.search, batch.next_obs"),),
        _of(_GRAC, "bee-grac"),
    ),
    Mutant(
        "grac: one step on the regularised loss",
        (Edit(IMPROVED, "(carry[1] < config.repeat_most) & (carry[2] >= enough)", "(carry[1] < 0) & (carry[2] >= enough)"),),
        _of(_GRAC, "bee-grac"),
    ),
    Mutant(
        "grac: the policy's rate as it is",
        (Edit(IMPROVED, 'rate = 1.0 / (1.0 + metrics["loss/critic"]) if self.config.adaptive_rate else jnp.float32(1.0)',
              "rate = jnp.float32(1.0)"),),
        _of(_GRAC, "bee-grac"),
    ),
    Mutant(
        "trpo: no damping",
        (Edit(NATURAL, " + region.damping * x", ""),),
        tuple(f"{_TRPO}::test_consecutive_updates_equal_the_specification[{case}]" for case in ("source",)),
    ),
    Mutant(
        "trpo: a step of any divergence is taken",
        (Edit(NATURAL, "(kl <= region.slack * region.radius) & (value >= before)", "(value >= before)"),),
        (f"{_TRPO}::test_the_line_search_halves_until_both_conditions_hold_or_gives_up",),
    ),
    Mutant(
        "trpo: a step that lowers the surrogate is taken",
        (Edit(NATURAL, "(kl <= region.slack * region.radius) & (value >= before)", "(kl <= region.slack * region.radius)"),),
        (f"{_TRPO}::test_the_line_search_halves_until_both_conditions_hold_or_gives_up",),
    ),
    Mutant(
        "trpo: advantages not scaled",
        (Edit(TRUST, "advantage = advantage / jnp.maximum(jnp.std(advantage), 1e-8)", "advantage = 1.0 * advantage"),),
        tuple(f"{_TRPO}::test_consecutive_updates_equal_the_specification[{case}]" for case in ("source",)),
    ),
    Mutant(
        "td3: pink noise begins anew at no update",
        (Edit(BACKUP, "state.updates // PINK_LENGTH", "0"),),
        (f"{_PINK}[td3-more0]",),
    ),
    Mutant(
        "td3: the same pink noise at every update",
        (Edit(BACKUP, "[state.updates % PINK_LENGTH]", "[0]"),),
        (f"{_PINK}[td3-more0]",),
    ),
    Mutant(
        "dkitty: inertia is not scaled with the mass",
        (Edit(_WORLD, "for masses in (model.body_mass, model.body_inertia,", "for masses in (model.body_mass,"),),
        (f"{_WORLD_TESTS}::test_the_mass_is_scaled_as_the_engine_scales_it",),
    ),
    Mutant(
        "dkitty: the ground is drawn before the dynamics",
        (Edit(_WORLD, "            self._draw_dynamics(draw)\n            self._draw_ground(draw)\n",
              "            self._draw_ground(draw)\n            self._draw_dynamics(draw)\n"),),
        (f"{_WORLD_TESTS}::test_draws_are_made_in_the_order_of_the_original",),
    ),
    Mutant(
        "deploy: what was measured long ago is acted on",
        (Edit("beeline/deploy/controller.py", "if age > self.limits.max_age:", "if age > 10 * self.limits.max_age:"),),
        ("tests/deploy/test_controller.py::test_a_stale_observation",),
    ),
    Mutant(
        "deploy: the way to the safe pose has no speed limit",
        (Edit("beeline/deploy/controller.py", "self._command + np.clip(goal - self._command, -reach, reach)", "goal.copy()"),),
        ("tests/deploy/test_controller.py::test_a_tick_that_comes_far_too_late",),
    ),
)  # fmt: skip


class CannotTry(Exception):
    """A mutant, or a test of one, is not what this script takes it for."""


# --- the preset `best`, and what goes with it

_BEST, _HEADS, _BODIES = "tests/agents/test_best.py", "tests/networks/test_heads.py", "tests/networks/test_bodies.py"
_SMALL = "beeline/networks"


def _line(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A change of one line."""
    return Mutant(name, (Edit(file, old, new),), tests)


MUTANTS += (
    _line("simba: no norm before a block", f"{_SMALL}/simba.py", "jax.nn.relu(_norm(block, x) @", "jax.nn.relu(x @",
          f"{_BODIES}::test_simba_against_plain_numpy"),
    _line("simba: no residual", f"{_SMALL}/simba.py", "x = x + inside @", "x = inside @",
          f"{_BODIES}::test_simba_against_plain_numpy"),
    _line("simba: blocks drawn with half the variance", f"{_SMALL}/simba.py", "math.sqrt(2.0 / fan_in)",
          "math.sqrt(1.0 / fan_in)", f"{_BODIES}::test_simbas_initial_weights"),
    _line("best: a policy as wide as the critics", "beeline/agents/presets.py", '"policy_hidden": (128, 128)',
          '"policy_hidden": (256, 256)', f"{_BODIES}::test_sizes_are_those_of_the_specification"),
    _line("heads: targets not clipped", f"{_SMALL}/heads.py", "(jnp.clip(y, self.low, self.high) - self.low)", "(y - self.low)",
          f"{_HEADS}::test_two_hot_by_hand"),
    _line("heads: twice the spread", f"{_SMALL}/heads.py", "SPREAD = 0.75", "SPREAD = 1.5", f"{_HEADS}::test_hl_gauss_by_hand"),
    _line("heads: not renormalised", f"{_SMALL}/heads.py", "return mass / jnp.sum(mass, axis=-1, keepdims=True)", "return mass",
          f"{_HEADS}::test_hl_gauss_by_hand"),
    _line("heads: the wrong sign", f"{_SMALL}/heads.py", "return -jnp.sum(self.project", "return jnp.sum(self.project",
          f"{_HEADS}::test_the_loss_is_least_where_the_distribution_is_the_target"),
    _line("scale: returns that go on after an episode's end", f"{_SMALL}/rewards.py",
          "if step.terminated or step.truncated]] = 0.0", "if step.terminated]] = 0.0",
          f"{_BEST}::test_the_scale_of_rewards_by_hand"),
    _line("scale: the largest return left out", f"{_SMALL}/rewards.py", 'scale["largest"] / bound)', "0.0)",
          f"{_BEST}::test_the_scale_of_rewards_by_hand"),
    _line("scale: rewards as they are", "beeline/agents/readings.py", 'scaled / divisor(host["scale"], BOUND)', "scaled",
          f"{_BEST}::test_rewards_are_divided_by_the_scale_of_now"),
    _line("decay: of the critics alone", MAKE, "optimiser(config, config.actor_lr), outputs", "adam(config.actor_lr), outputs",
          f"{_BEST}::test_decay_of_weights_is_decoupled"),
    _line("recency: the floor half as high", "beeline/memory.py", "recency.floor * (closed - near)",
          "0.5 * recency.floor * (closed - near)", f"{_BEST}::test_ages_are_drawn_by_their_weights"),
    _line("recency: ages one too high", "beeline/memory.py", "(newest[lane] - age) % self", "(newest[lane] - age - 1) % self",
          f"{_BEST}::test_small_rings_and_lanes_row_by_row"),
    _line("best: updates in the warm-up", "beeline/agents/presets.py", '"random_steps": 2_500, "learn_after": 2_500',
          '"random_steps": 2_500', "tests/agents/test_presets.py::test_the_default_preset_is_best"),
    _line("best: two critics where one is asked", MAKE, 'two = task.ends if config.double_q == "auto"',
          'two = True if config.double_q == "auto"', f"{_BEST}::test_one_critic_where_episodes_cannot_end"),
    _line("gamma: ten times the horizon", MAKE, "1.0 - 5.0 / decisions", "1.0 - 0.5 / decisions",
          f"{_BEST}::test_gamma_by_the_length_of_an_episode"),
)  # fmt: skip


_DYNAMICS = "beeline/dynamics"
_TRIGGERS, _ROLLOUT, _TRAINING = (f"tests/dynamics/test_{name}.py" for name in ("triggers", "rollout", "training"))
MUTANTS += (
    _line("cmlo: what was summed is not forgotten at a training", f"{_DYNAMICS}/triggers.py",
          "own |= fresh_start | {", "own |= {",
          f"{_TRIGGERS}::test_cmlo_trains_at_steps_reckoned_by_hand"),
    _line("mbpo: k rounded up", f"{_DYNAMICS}/triggers.py",
          "int(np.clip(length, k0, k1))", "int(np.ceil(np.clip(length, k0, k1)))",
          f"{_TRIGGERS}::test_rollouts_grow_with_the_epochs"),
    _line("mbpo: rows after the end of a branch", f"{_DYNAMICS}/rollout.py",
          "told[3], kept & ~columns[-1]", "told[3], kept",
          f"{_ROLLOUT}::test_nothing_follows_the_end_of_a_branch"),
    _line("mbpo: rows not shuffled between steps", f"{_DYNAMICS}/rollout.py",
          "        if not depth:\n", "        if True:\n",
          f"{_ROLLOUT}::test_every_elite_gets_its_share_of_the_rows_and_no_other_member_any"),
    _line("model: patience never counted anew", f"{_DYNAMICS}/training.py",
          "self.since = 0 if improved.any() else self.since + 1",
          "self.since = self.since + 1", f"{_TRAINING}::test_patience_is_counted_anew_after_every_improvement"),
)  # fmt: skip

# --- planning and learning in a model

MUTANTS += (
    _line("pets: the variance of a sample", "beeline/cem.py", "best.var(0)", "best.var(0, ddof=1)",
          "tests/dynamics/test_planning.py::test_refit_by_hand"),
    _line("pets: particles are paid after their end", "beeline/dynamics/planning.py", "jnp.where(alive, reward, 0.0)", "reward",
          "tests/dynamics/test_planning.py::test_worth_of_a_certain_model_by_hand"),
    _line("slbo: paths go on through the end of an episode", "beeline/dynamics/deterministic.py",
          "now = jnp.where(paths.follows[i + 1][:, None], after, paths.obs[i + 1])", "now = after",
          "tests/dynamics/test_deterministic.py::test_the_loss_of_two_steps_by_hand"),
)  # fmt: skip

# --- what each model-free method rests on, beside the above

_METHODS = "beeline/agents"
_SEARCH, _ACTORS = "beeline/cem.py", "beeline/agents/actors.py"
_CLONES = f"{_OWNED}::test_obac_clones_where_the_buffers_critic_is_ahead_and_nowhere_else"
_TRPO_UPDATES = f"{_TRPO}::test_consecutive_updates_equal_the_specification"
_RANGE = f"{_GRAC}::test_the_range_by_hand"
_FORGOTTEN = f"{_GRAC}::test_small_rewards_and_short_episodes_are_forgotten_large_ones_are_not"
MUTANTS += (
    _line("dac: the ratio takes the buffer's actions for the policy's", MIXTURE, "(jax.nn.log_sigmoid(-theirs)",
          "(jax.nn.log_sigmoid(theirs)", *_owned("dac-fixed")),
    _line("dac: the ratio in the policy's loss taken for a constant", MIXTURE,
          'self.mixture.odds(mine["ratio"].live, batch.obs, action))',
          'self.mixture.odds(mine["ratio"].live, batch.obs, stop_gradient(action)))', *_owned("dac-fixed")),
    _line("dac: the share's own gradient through the policy", MIXTURE,
          "weight = stop_gradient(self.temperature(own) * self.mixture.alpha(mine, batch.obs))",
          "weight = stop_gradient(self.temperature(own)) * 0.5", *_owned("dac")),
    _line("dac: a share of up to one", MIXTURE, "return 0.5 + 0.49 * jax.nn.sigmoid(out)",
          "return 0.5 + 0.5 * jax.nn.sigmoid(out)", f"{_OWNED}::test_a_learnt_share_stays_between_a_half_and_99"),
    _line("dac: the share's logarithm taken for a constant", MIXTURE,
          "own, other = (r - jnp.log(alpha) - p for r, p in zip(log_r, log_pi))",
          "own, other = (r - stop_gradient(jnp.log(alpha)) - p for r, p in zip(log_r, log_pi))", *_owned("dac")),
    _line("dac: actions of the buffer not moved inwards", MIXTURE, "jnp.arctanh(action - jnp.sign(action) * INSIDE)",
          "jnp.arctanh(action)", f"{_OWNED}::test_density_of_a_buffer_action_is_that_of_the_squashed_gaussian"),
    _line("dac: V from the first critic alone", MIXTURE, "q = self.critic.worst(self.critic.q(state.critic.live, obs, action))",
          "q = self.critic.q(state.critic.live, obs, action)[0]", *_owned("dac-fixed")),
    _line("dac: the live V is bootstrapped", OWNED, "slot.live if slot.target is None else slot.target", "slot.live",
          *_owned("dac-fixed")),
    _line("bee-dac: the inner backup learns nothing", BACKUP,
          'inner, told = self.inner.learn(own["inner"], self._inside(state), batch, fit, terms, noise)',
          'inner, told = own["inner"], {}', *_owned("bee-dac")),
    _line("xql: the Gumbel loss rescaled by the largest error alone", OWNED,
          "stop_gradient(jnp.maximum(jnp.max(z, axis=-1, keepdims=True), -1.0))",
          "stop_gradient(jnp.max(z, axis=-1, keepdims=True))", f"{_OWNED}::test_gumbel_loss_by_hand"),
    _line("xql: the rescaling has a gradient", OWNED,
          "shift = stop_gradient(jnp.maximum(jnp.max(z, axis=-1, keepdims=True), -1.0))",
          "shift = jnp.maximum(jnp.max(z, axis=-1, keepdims=True), -1.0)",
          f"{_OWNED}::test_the_rescaled_gumbel_gradient_is_proportional_to_the_plain_one"),
    _line("xql: V at the buffer's actions", OWNED, "self.critic.q(state.critic.live, batch.obs, action))",
          "self.critic.q(state.critic.live, batch.obs, batch.action))", *_owned("xql")),
    _line("xql: bounded on one side", OWNED, "/ beta, -clip, clip)", "/ beta, -1e9, clip)",
          f"{_OWNED}::test_gumbel_loss_by_hand"),
    _line("iql: V fitted to the live critics", OWNED, 'here=self.critic.worst(answers[0]))',
          "here=self.critic.worst(self.critic.q(state.critic.live, batch.obs, batch.action)))", *_owned("iql")),
    _line("iql: advantages without their temperature", WEIGHTED, "jnp.exp(self.beta * (q - ", "jnp.exp(1.0 * (q - ",
          *_owned("iql")),
    _line("iql: the weights have a gradient", WEIGHTED, "weight = stop_gradient(jnp.minimum(free, self.bound))",
          "weight = jnp.minimum(jnp.exp(self.actor.log_prob(self.actor.output(params, batch.obs), batch.action)), self.bound)",
          *_owned("iql")),
    _line("iql: the policy's mean not squashed", WEIGHTED, "mean = jnp.tanh(self.learnable.net.apply(params, obs))",
          "mean = self.learnable.net.apply(params, obs)", *_owned("iql")),
    _line("iql: log σ without its bounds", WEIGHTED, 'jnp.clip(params["log_std"], LOW, HIGH)', 'params["log_std"]',
          f"{_OWNED}::test_the_policy_of_iql_by_hand"),
    _line("iql: samples not clipped", WEIGHTED, "return jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0),",
          "return mean + jnp.exp(log_std) * noise,", f"{_OWNED}::test_the_policy_of_iql_by_hand"),
    _line("obac: the buffer cloned where the policy is ahead", CLONING, "(policy < jnp.mean(behaviour))",
          "(policy > jnp.mean(behaviour))", f"{_CLONES}[True]", f"{_CLONES}[False]"),
    _line("obac: cloned density without its bounds", CLONING,
          "jnp.clip(-0.5 * jnp.square(z) - log_std - 0.5 * math.log(2 * math.pi), LOW, HIGH)",
          "-0.5 * jnp.square(z) - log_std - 0.5 * math.log(2 * math.pi)",
          f"{_OWNED}::test_what_is_cloned_is_bounded_for_each_dimension"),
    _line("obac: the buffer's critics on the policy's value", CLONING, 'self.v(own["value"].live, batch.next_obs))',
          "terms.value)", *_owned("obac")),
    _line("obac: the buffer's critics begin elsewhere", CLONING, 'Draw(seed, "init/critic", at))\n        return {"critic"',
          'Draw(seed, "init/behaviour", at))\n        return {"critic"',
          f"{_OWNED}::test_obac_begins_with_twice_the_same_critics"),
    _line("grac: values without their range", IMPROVED, 'return jnp.clip(q, state.host["bounds"][0], state.host["bounds"][1])',
          "return q", *_of(_GRAC, "bee-grac")),
    _line("grac: held to the value of the sampled action", IMPROVED,
          "jnp.where(better[:, None], seen[1], seen[0]), jnp.where(better, answers[1], answers[0])", "seen[0], answers[0]",
          *_of(_GRAC, "bee-grac")),
    _line("grac: critics not held", IMPROVED, "aim = jnp.concatenate([jnp.broadcast_to(y, held.shape), held], axis=-1)",
          "aim = jnp.concatenate([jnp.broadcast_to(y, held.shape), stop_gradient(self.critic.q(critic.live, "
          "batch.next_obs, chosen))], axis=-1)", *_of(_GRAC, "bee-grac")),
    _line("grac: the share of the start to the end", IMPROVED,
          "config.repeat_until + progress * (config.repeat_until_end - config.repeat_until)", "config.repeat_until",
          *_of(_GRAC, "grac-until")),
    _line("grac: steps without an end", IMPROVED, "(carry[1] < config.repeat_most) & (carry[2] >= enough)", "carry[2] >= enough",
          *_of(_GRAC, "grac-capped")),
    _line("grac: the policy by the second critic's search", IMPROVED, "found = improve(self.critic, critic, 0, self.search",
          "found = improve(self.critic, critic, 1, self.search", *_of(_GRAC, "grac-until")),
    _line("grac: advantages without their bound", IMPROVED, "jnp.clip(found.score - found.before, 0.0, self.most)",
          "jnp.maximum(found.score - found.before, 0.0)", *_of(_GRAC, "bee-grac")),
    _line("grac: the searched action counts for each dimension", IMPROVED,
          "self.actor.log_prob(output, found.best) / action.shape[-1]", "self.actor.log_prob(output, found.best)",
          *_of(_GRAC, "grac-until")),
    _line("grac: the policy under the critics of the start", IMPROVED,
          "self.objective.loss(params, objective, state, critic.live, batch,",
          "self.objective.loss(params, objective, state, state.critic.live, batch,", *_of(_GRAC, "grac-until")),
    _line("grac: the largest reward is forgotten", IMPROVED, 'met["largest"] = np.maximum(met["largest"], step.reward)',
          'met["largest"] = np.float64(step.reward)', _RANGE, _FORGOTTEN),
    _line("grac: the smallest reward never forgotten", IMPROVED, 'met["rewards"][met["count"] % REWARDS] = step.reward',
          'met["rewards"][met["count"] % REWARDS] = min(met["rewards"][met["count"] % REWARDS], step.reward)', _FORGOTTEN),
    _line("grac: rewards below zero over the shortest episode", IMPROVED,
          'float(met["lengths"].min()) if smallest >= 0.0 else longest', 'float(met["lengths"].min())', _RANGE),
    _line("grac: acting takes what is worse", IMPROVED, "jnp.where((chosen & (after >= before))[:, None], better, action)",
          "jnp.where(chosen[:, None], better, action)", f"{_GRAC}::test_collecting_searches_less_and_less_and_evaluation_never"),
    _line("search: noise without its bound", _SEARCH, "jnp.clip(drawn[number] * jnp.sqrt(variance), -self.reach, self.reach)",
          "drawn[number] * jnp.sqrt(variance)", *_of(_GRAC, "grac-until")),
    _line("search: the best one is not kept", _SEARCH, "(mean + spread).at[-1].set(elite)", "(mean + spread)",
          *_of(_GRAC, "grac-until")),
    _line("search: parents of one weight", _SEARCH, "raw = [math.log((self.parents + 1) / rank)", "raw = [1.0",
          f"{_GRAC}::test_the_weights_by_hand"),
    _line("search: the spread about the new mean", _SEARCH, "jnp.square(parents - mean), axes=1)",
          "jnp.square(parents - parents.mean(0)), axes=1)", *_of(_GRAC, "grac-until")),
    _line("search: what is worse than the beginning", _SEARCH, "worse = best < before", "worse = best < best",
          f"{_GRAC}::test_a_search_that_finds_nothing_better_stays_where_it_began"),
    _line("trpo: a step half as far", NATURAL, "jnp.sqrt(2.0 * region.radius /", "jnp.sqrt(0.5 * region.radius /",
          f"{_TRPO}::test_the_full_step_on_a_linear_surrogate_and_a_quadratic_divergence"),
    _line("trpo: the divergence the other way round", _PPO,
          'jnp.sum(params["log_std"] - log_std + 0.5 * spread * jnp.exp(-2.0 * params["log_std"]) - 0.5, axis=-1)',
          'jnp.sum(log_std - params["log_std"] + 0.5 * (jnp.exp(2.0 * params["log_std"]) + spread - jnp.exp(2.0 * '
          'log_std)) * jnp.exp(-2.0 * log_std) - 0.5, axis=-1)', f"{_TRPO}::test_the_divergence_by_hand"),
    _line("trpo: steepest descent", NATURAL, "residual + (after / squared) * along", "residual",
          f"{_TRPO}::test_conjugate_gradients_solve_ten_equations_in_ten_steps"),
    _line("trpo: no entropy bonus", TRUST, "+ self.config.entropy_weight * self.net.entropy(params)\n", "\n",
          f"{_TRPO_UPDATES}[short]"),
    _line("trpo: slack ignored", TRUST, "slack=config.slack, ", "", f"{_TRPO_UPDATES}[short]"),
    _line("trpo: a step that is no good is taken", NATURAL, "moved = jnp.where(good, flat + share * full, flat)",
          "moved = flat + share * full", f"{_TRPO}::test_the_line_search_halves_until_both_conditions_hold_or_gives_up"),
    _line("trpo: V fitted once", TRUST, "jax.lax.scan(fit, value, extras[\"order\"])",
          "jax.lax.scan(fit, value, extras[\"order\"][:1])", f"{_TRPO_UPDATES}[source]"),
)  # fmt: skip

# --- models of the world: the ensemble, its training, what is imagined, when, and what learns from it

_ENSEMBLE, _ENSEMBLE_TESTS = f"{_DYNAMICS}/ensemble.py", "tests/dynamics/test_ensemble.py"
_FIT, _ROLL, _WHEN, _AUTO = (f"{_DYNAMICS}/{name}.py" for name in ("training", "rollout", "triggers", "controlled"))
_PLAN, _PLAN_TESTS = f"{_DYNAMICS}/planning.py", "tests/dynamics/test_planning.py"
_WITHIN, _MB, _APART = "beeline/agents/model_based.py", "tests/agents/test_model_based.py", "tests/agents/test_apart.py"
_AUTO_TESTS, _CONTROLLER_TESTS = "tests/dynamics/test_controlled.py", "tests/dynamics/test_mbpo_controller.py"
_PETS_TESTS, _PETS, _SLBO, _SLBO_TESTS = (
    "tests/agents/test_pets.py", "beeline/agents/planner.py", "beeline/agents/stages.py", "tests/agents/test_slbo.py",
)  # fmt: skip
_DRIFT, _DRIFT_TESTS = f"{_DYNAMICS}/deterministic.py", "tests/dynamics/test_deterministic.py"
_GOLDEN = f"{_ENSEMBLE_TESTS}::test_the_loss_and_its_gradients_are_those_of_mbrl_lib"
_EVENTS = f"{_TRIGGERS}::test_cmlo_trains_at_steps_reckoned_by_hand"
_ORDER = f"{_MB}::test_training_rollouts_and_updates_come_where_mbpo_has_them"
MUTANTS += (
    _line("model: no upper bound of the log-variance", _ENSEMBLE, "below = high - jax.nn.softplus(high - raw)", "below = raw",
          f"{_ENSEMBLE_TESTS}::test_the_log_variance_never_leaves_its_bounds"),
    _line("model: no lower bound of the log-variance", _ENSEMBLE, "return low + jax.nn.softplus(below - low)", "return below",
          f"{_ENSEMBLE_TESTS}::test_the_log_variance_never_leaves_its_bounds"),
    _line("model: bounds drawn apart", _ENSEMBLE, '0.01 * (jnp.sum(params["max"]) - jnp.sum(params["min"]))',
          '-0.01 * (jnp.sum(params["max"]) - jnp.sum(params["min"]))', _GOLDEN),
    _line("model: bounds that are to stay move", _ENSEMBLE, "if not self.bounds:", "if False:",
          f"{_ENSEMBLE_TESTS}::test_fixed_bounds_do_not_move"),
    _line("model: squared error without its variance", _ENSEMBLE, "jnp.square(mean - target) * jnp.exp(-log_var) + log_var",
          "jnp.square(mean - target) + log_var", _GOLDEN, f"{_ENSEMBLE_TESTS}::test_nll_by_hand"),
    _line("model: the mean of the members' losses", _ENSEMBLE, "return jnp.sum(each @ weight)", "return jnp.mean(each @ weight)",
          _GOLDEN),
    _line("model: decay twice as strong", _ENSEMBLE, "0.5 * c * jnp.sum(jnp.square(layer", "c * jnp.sum(jnp.square(layer",
          f"{_ENSEMBLE_TESTS}::test_decay_is_half_the_squared_weights_of_each_layer_and_leaves_biases_alone"),
    _line("model: the variance for the deviation", _ENSEMBLE, "jnp.exp(0.5 * log_var) * state.unit",
          "jnp.exp(log_var) * state.unit", f"{_ENSEMBLE_TESTS}::test_a_sample_is_the_state_plus_a_draw_of_the_difference"),
    _line("model: a sample that is the change alone", _ENSEMBLE, "return obs + drawn[..., :-1], drawn[..., -1]",
          "return drawn[..., :-1], drawn[..., -1]",
          f"{_ENSEMBLE_TESTS}::test_a_sample_is_the_state_plus_a_draw_of_the_difference"),
    _line("model: one bootstrap set for all members", _FIT,
          "own = generator.integers(0, count, (members, count), dtype=np.int32)",
          "own = np.tile(generator.integers(0, count, (1, count), dtype=np.int32), (members, 1))",
          f"{_TRAINING}::test_every_member_has_its_own_rows_drawn_with_replacement_in_another_order_every_epoch"),
    _line("model: fitted on what is held out", _FIT, "return order[aside:], order[:aside] if aside",
          "return order, order[:aside] if aside", f"{_TRAINING}::test_a_fifth_is_held_out_and_never_fitted_on_up_to_a_bound"),
    _line("model: the scaler of all rows", _FIT, "np.concatenate([rows.obs[fit], rows.action[fit]], axis=-1).astype(np.float64)",
          "np.concatenate([rows.obs, rows.action], axis=-1).astype(np.float64)",
          f"{_TRAINING}::test_a_training_learns_and_its_elites_have_the_least_error"),
    _line("model: a short batch as a whole one", _FIT, "weight = (members < count) / count.astype(jnp.float32)",
          "weight = (members < count) / members.size", f"{_TRAINING}::test_an_epoch_is_a_plain_pass_over_the_rows"),
    _line("model: any improvement counts", _FIT, "THRESHOLD = 0.01", "THRESHOLD = 0.0",
          f"{_TRAINING}::test_the_original_rule_on_scripted_errors"),
    _line("model: patience of one epoch more", _FIT, "self.since > self.training.patience - (rule == \"mbrl\")",
          "self.since > self.training.patience + 1 - (rule == \"mbrl\")",
          f"{_TRAINING}::test_the_original_rule_on_scripted_errors", f"{_TRAINING}::test_mbrl_libs_rule_on_scripted_errors"),
    _line("model: both rules alike patient", _FIT, "self.since > self.training.patience - (rule == \"mbrl\")",
          "self.since > self.training.patience", f"{_TRAINING}::test_mbrl_libs_rule_on_scripted_errors"),
    _line("model: the last weights stay", _FIT,
          "live = self.slot.live if self.snapshot is None else self.slot.live | self.snapshot", "live = self.slot.live",
          f"{_TRAINING}::test_the_original_rule_on_scripted_errors"),
    _line("model: all members go back together", _FIT, "chosen(improved, live[\"layers\"], before)",
          "chosen(np.ones_like(improved), live[\"layers\"], before)", f"{_TRAINING}::test_the_original_rule_on_scripted_errors"),
    _line("model: mbrl-lib's best errors of one epoch", _FIT, "self.best = np.minimum(self.best, error)", "self.best = error",
          f"{_TRAINING}::test_mbrl_libs_rule_on_scripted_errors"),
    _line("model: mbrl-lib's rule knows nothing of before", _FIT, '        if self.rule == "mbrl":\n            progress.best',
          '        if False:\n            progress.best',
          f"{_TRAINING}::test_under_mbrl_libs_rule_a_training_begins_with_the_error_of_before"),
    _line("model: elites of the largest error", _FIT, 'np.argsort(error, kind="stable")', 'np.argsort(-error, kind="stable")',
          f"{_TRAINING}::test_a_training_learns_and_its_elites_have_the_least_error"),
    _line("model: a training that diverges goes on", _FIT, "            sane(error, hopeless, epoch)\n", "",
          f"{_TRAINING}::test_a_model_that_diverges_is_an_error"),
    _line("model: Adam begins anew", _FIT, "progress = _Progress(self, model, state.slot)",
          "progress = _Progress(self, model, state.slot._replace(opt=jax.tree.map(jnp.zeros_like, state.slot.opt)))",
          f"{_TRAINING}::test_a_second_training_goes_on_from_the_weights_and_moments_of_the_first"),
    _line("mbpo: ends of branches not stored", _ROLL,
          "ended = jnp.broadcast_to(self.terminated(obs, action, next_obs), kept.shape)", "ended = jnp.zeros(kept.shape, bool)",
          f"{_ROLLOUT}::test_nothing_follows_the_end_of_a_branch"),
    _line("mbpo: the first members predict", _ROLL, "best = self.chosen(state, np.asarray(state.elites))",
          "best = self.chosen(state, np.arange(len(state.elites)))",
          f"{_ROLLOUT}::test_every_elite_gets_its_share_of_the_rows_and_no_other_member_any"),
    _line("mbpo: rows that are no numbers", _ROLL, "alive & jnp.isfinite(next_obs).all(-1) & jnp.isfinite(reward)", "alive",
          f"{_ROLLOUT}::test_what_is_not_finite_is_left_out_and_a_rollout_can_be_given_up"),
    _line("mbpo: every rollout with the same noise", _ROLL, '"rollout", counter)', '"rollout", 0)',
          f"{_ROLLOUT}::test_a_rollout_is_a_function_of_seed_and_counter"),
    _line("mbpo: an imagined end is bootstrapped", "beeline/imagined.py",
          "discount=np.float32(gamma) * (flags & TERMINATED == 0)",
          "discount=np.float32(gamma) * np.ones(flags.shape, np.float32)",
          f"{_ROLLOUT}::test_the_newest_rows_count_and_none_comes_back"),
    _line("mbpo: as many real rows as imagined ones", FEEDS, 'parts = [("replay", self.real), ("model", imagined)]',
          'parts = [("replay", imagined), ("model", self.real)]',
          f"{_ROLLOUT}::test_batches_are_mixed_and_v_is_fitted_on_real_rows_alone"),
    _line("mbpo: trained a step later", _WHEN, "return since // every > (since - decision) // every",
          "return (since - 1) // every > (since - 1 - decision) // every",
          f"{_TRIGGERS}::test_every_trains_right_after_the_warm_up_and_at_multiples"),
    _line("mbpo: trained twice at a step", _WITHIN, 'if since < 0 or clock.step == int(host["asked"]):', "if since < 0:",
          f"{_MB}::test_asked_again_at_the_same_step_nothing_is_trained_twice"),
    _line("mbpo: the memory of k = 1", _WITHIN,
          "rows = length * self.branches(length) * config.epoch_steps * config.retain_epochs",
          "rows = self.branches(length) * config.epoch_steps * config.retain_epochs", _ORDER,
          f"{_MB}::test_how_much_is_imagined_and_held_by_hand"),
    _line("mbpo: more branches than the memory holds", _WITHIN, "max(1, min(config.branches, config.imagined_rows // ",
          "max(1, max(config.branches, config.imagined_rows // ", f"{_MB}::test_how_much_is_imagined_and_held_by_hand"),
    _line("mbpo: the first training as all others", _WITHIN, "training = self.training if trainings else self.first_training",
          "training = self.training", f"{_MB}::test_the_first_training_has_a_budget_of_its_own"),
    _line("mb-bac: V fitted on what is trained on", BACKUP,
          "        if fit is not None:\n            obs, q = fit.obs, "
          "self.critic.worst(self.critic.q(state.critic.target, fit.obs, fit.action))\n        aim = q", "        aim = q",
          f"{_APART}::test_updates_equal_the_plain_form[blend-False]"),
    _line("mb-bac: V fitted on imagined transitions", FEEDS, 'fit = self.fit.batch(memories["replay"], clock',
          'fit = self.fit.batch(memories["model"], clock', f"{_MB}::test_batches_are_mixed_and_v_sees_real_rows_alone"),
    _line("mb-bac: no rows of V's own", _WITHIN, "return Beside(mixed, uniform) if self.inner.has_value else mixed",
          "return mixed", f"{_MB}::test_batches_are_mixed_and_v_sees_real_rows_alone"),
    _line("mb-bac split: both losses on imagined transitions", f"{_METHODS}/apart.py", "met, lam, exploit = fit, now.",
          "met, lam, exploit = batch, now.", f"{_APART}::test_updates_equal_the_plain_form[split-False]"),
    _line("mb-bac split: the losses' weights exchanged", f"{_METHODS}/apart.py",
          "lam * on_met + (1.0 - lam) * self.critic.loss(out", "(1.0 - lam) * on_met + lam * self.critic.loss(out",
          f"{_APART}::test_updates_equal_the_plain_form[split-False]"),
    _line("cmlo: growth the other way round", _WHEN, 'grown = now / own["volume"] if own["volume"] > 0',
          'grown = own["volume"] / now if own["volume"] > 0', f"{_TRIGGERS}::test_cmlo_counts_what_has_grown"),
    _line("cmlo: the sum of errors for their mean", _WHEN, 'np.log(grown * own["error"] / own["counted"] + 1.0)',
          'np.log(grown * own["error"] + 1.0)', _EVENTS),
    _line("cmlo: trained as soon as the sum is high", _WHEN, "bool(passed >= self.least and", "bool(True and", _EVENTS),
    _line("cmlo: never after the most steps", _WHEN, "due = passed >= self.most", "due = False",
          f"{_TRIGGERS}::test_cmlo_trains_after_500_steps_in_any_case_and_not_only_at_events"),
    _line("cmlo: the volume of the run's beginning", _WHEN, '            own["volume"] = np.asarray(now)\n',
          '            own["volume"] = np.asarray(own["volume"] or now)\n', f"{_TRIGGERS}::test_cmlo_counts_what_has_grown"),
    _line("cmlo: one event is enough", _WHEN, 'own["events"] >= 2 and ', "",
          f"{_TRIGGERS}::test_cmlo_waits_for_a_second_event_once"),
    _line("cmlo: the first axes for the principal ones", _WHEN, "projected = centred @ axes.T",
          "projected = centred[:, : len(axes)]", f"{_TRIGGERS}::test_hull_volumes_by_hand"),
    _line("autombpo: eighths of whole steps", _AUTO, "return self.epoch_steps / DECISIONS",
          "return self.epoch_steps // DECISIONS",
          f"{_AUTO_TESTS}::test_epochs_that_are_no_multiple_of_eight_steps_have_eight_decisions_too"),
    _line("autombpo: k changes at every decision", f"{_DYNAMICS}/controller.py", "if epoch_begins else settings.length",
          "if True else settings.length", f"{_CONTROLLER_TESTS}::test_what_a_decision_changes"),
    _line("autombpo: training is rewarded", f"{_DYNAMICS}/controller.py", "found = 0.1 * (np.asarray(model, np.float64) - 0.5)",
          "found = 0.1 * (0.5 - np.asarray(model, np.float64))", f"{_CONTROLLER_TESTS}::test_rewards_and_what_is_still_to_come"),
    _line("autombpo: returns a decision late", f"{_DYNAMICS}/controller.py", "found[(epoch + 1) * per_epoch - 1]",
          "found[min((epoch + 1) * per_epoch, len(found) - 1)]", f"{_CONTROLLER_TESTS}::test_rewards_and_what_is_still_to_come"),
    _line("autombpo: a state that is not clipped", f"{_DYNAMICS}/controller.py", "-1.0, 1.0).astype(np.float32)",
          "-1e9, 1e9).astype(np.float32)", f"{_CONTROLLER_TESTS}::test_a_state_is_clipped_after_everything_else"),
    _line("pets: particles never dealt out anew", _PLAN, 'if self.propagation == "ts1":', "if False:",
          f"{_PLAN_TESTS}::test_a_particle_keeps_its_member_or_changes_it"),
    _line("pets: particles always dealt out anew", _PLAN, 'if self.propagation == "ts1":', "if True:",
          f"{_PLAN_TESTS}::test_a_particle_keeps_its_member_or_changes_it"),
    _line("pets: particles dealt out among all sequences", _PLAN,
          "order = jnp.argsort(jax.random.uniform(key, (members * particles, *groups)), axis=0)",
          "order = jnp.broadcast_to(jax.random.permutation(key, members * particles).reshape(-1, 1, 1), (members * "
          "particles, *groups))", f"{_PLAN_TESTS}::test_dealing_moves_particles_among_the_members_of_their_own_sequence"),
    _line("pets: the best particle counts", _PLAN, ".mean(axis=0)", ".max(axis=0)",
          f"{_PLAN_TESTS}::test_worth_of_a_certain_model_by_hand"),
    _line("pets: a sum that is no number", _PLAN, "total = jnp.where(jnp.isfinite(total), total, WORST)\n", "pass\n",
          f"{_PLAN_TESTS}::test_worth_is_finite_whatever_the_model_says"),
    _line("pets: the elite's mean alone", _SEARCH, "return kept * mean + (1.0 - kept) * best.mean(0)", "return best.mean(0)",
          f"{_PLAN_TESTS}::test_refit_by_hand"),
    _line("pets: candidates outside the box", _SEARCH, "deviation = jnp.sqrt(jnp.minimum(jnp.square(room), variance))",
          "deviation = jnp.sqrt(variance)",
          f"{_PLAN_TESTS}::test_candidates_stay_within_two_deviations_and_half_the_way_to_the_bound"),
    _line("pets: a search that does not end early", _SEARCH, "return jnp.max(variance, axis=-1, keepdims=True) > self.least",
          "return jnp.max(variance, axis=-1, keepdims=True) > -1.0",
          f"{_PLAN_TESTS}::test_the_search_is_that_of_the_plain_form_and_ends_early"),
    _line("pets: the plan goes on over an episode's end", _PETS, "start = jnp.where(first[:, None, None], 0.0, carry)",
          "start = carry", f"{_PETS_TESTS}::test_one_decision_against_its_plain_form"),
    _line("pets: the plan is not shifted", _PETS, "jnp.concatenate([plan[:, 1:], jnp.zeros_like(plan[:, :1])], axis=1)", "plan",
          f"{_PETS_TESTS}::test_one_decision_against_its_plain_form"),
    _line("pets: trained at every decision", _PETS, 'return clock.episodes > int(state.host["episodes"])',
          "return clock.episodes > 0", f"{_PETS_TESTS}::test_the_model_is_trained_after_every_episode_and_once"),
    _line("slbo: the squared norm", _DRIFT, "jnp.sqrt(jnp.mean(jnp.square(error), axis=-1) + TINY)",
          "jnp.mean(jnp.square(error), axis=-1)", f"{_DRIFT_TESTS}::test_the_loss_of_two_steps_by_hand"),
    _line("slbo: errors in units of the state", _DRIFT, "error = (after - now - paths.change[i]) / scale.change[1]",
          "error = (after - now - paths.change[i]) / scale.obs[1]", f"{_DRIFT_TESTS}::test_the_loss_of_two_steps_by_hand"),
    _line("slbo: predictions without their bound", _DRIFT, "jnp.clip((moved - mean) / deviation, -REACH, REACH)",
          "((moved - mean) / deviation)", f"{_DRIFT_TESTS}::test_a_prediction_stays_within_a_hundred_deviations"),
    _line("slbo: noise that does not last", _SLBO, "carry = (1.0 - config.noise_decay) * carry + config.noise_scale * noise",
          "carry = config.noise_scale * noise", f"{_SLBO_TESTS}::test_noise_is_added_while_collecting_alone_and_is_never_reset"),
    _line("slbo: virtual ends are bootstrapped", _SLBO, 'discount = config.gamma * (1.0 - rows["ended"])',
          "discount = config.gamma * jnp.ones_like(rows[\"ended\"])",
          f"{_SLBO_TESTS}::test_an_update_is_trpo_on_the_advantages_of_the_virtual_rollout"),
    _line("slbo: advantages over a virtual time limit", _SLBO, 'goes_on = 1.0 - jnp.maximum(rows["ended"], rows["cut"])',
          'goes_on = 1.0 - rows["ended"]', f"{_SLBO_TESTS}::test_an_update_is_trpo_on_the_advantages_of_the_virtual_rollout"),
)  # fmt: skip


def changed(mutant: Mutant, root: Path) -> dict[str, str]:
    """The text of each file that the mutant changes."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        texts[edit.file] = edit.applied(texts.get(edit.file) or (root / edit.file).read_text())
    return texts


def run_tests(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Pytest's exit status for these tests on the copy, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short", *tests]
    done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def verdict(copy: Path, mutant: Mutant) -> str:
    """Make the change in the copy, run its tests, undo it; the failed test's name, or nothing if none fails."""
    texts = changed(mutant, copy)
    before = {file: (copy / file).read_text() for file in texts}
    try:
        for file, text in texts.items():
            (copy / file).write_text(text)
        status, output = run_tests(copy, mutant.tests)
    finally:
        for file, text in before.items():
            (copy / file).write_text(text)
    if status == 0:
        return ""
    # A change that only breaks the code says nothing of the tests: one of them must fail in an assertion.
    failed = re.search(r"^FAILED (\S+)(?: - (.*))?", output, re.MULTILINE)
    if status != 1 or failed is None or not re.search(NOTICED, output, re.MULTILINE):
        raise CannotTry(f"the changed code does not run:\n{output}")
    noticed = re.search(r"^E +(\S+ after update \d.*)$", output, re.MULTILINE)
    return failed[1].rpartition("::")[2] + (f": {noticed[1]}" if noticed else "")


def main(words: Sequence[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not chosen:
        print(f"no mutant's name contains {' or '.join(words)}; the names are:", *(m.name for m in MUTANTS), sep="\n  ")
        return 2
    survived, untried = 0, 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in ("beeline", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        status, output = run_tests(copy, sorted({test for mutant in chosen for test in mutant.tests}))
        if status != 0:
            print(f"the tests do not pass on the code as it is:\n{output}")
            return 2
        for mutant in chosen:
            began = time.perf_counter()
            try:
                noticed = verdict(copy, mutant)
            except (LookupError, CannotTry) as error:
                untried += 1
                print(f"NOT TRIED  {mutant.name}: {error}", flush=True)
                continue
            survived += not noticed
            seconds = f"{time.perf_counter() - began:.0f} s"
            print(f"{'killed   ' if noticed else 'SURVIVED '}  {mutant.name} ({seconds}) {noticed}", flush=True)
    print(f"{len(chosen) - survived - untried} killed, {survived} survived, {untried} not tried")
    return 2 if untried else int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
