"""The conformance test: our own algorithms keep every promise, and an agent that breaks one is told which."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from whole_runs import imagining

from beeline import agents, rng
from beeline.agents import Entry
from beeline.agents.base import Defaults, Task
from beeline.agents.options import MethodConfig
from beeline.config import option
from beeline.errors import BeelineError
from beeline.feeds import Uniform
from beeline.memory import Clock, Data, MemorySpec
from beeline.testing import BrokenPromiseError, check_agent


@dataclasses.dataclass(frozen=True)
class TinyConfig(MethodConfig):
    """A linear policy that leans to what was rewarded."""

    rate: float = option(0.01, "how far a step goes", above=0.0)


class Tiny(Defaults):
    """Keeps every promise: a linear policy, a mean on the host, a carry that remembers the last action, one extra column."""

    metric_names = ("w/norm", "reward")
    parts = ("policy",)

    def __init__(self, config: TinyConfig, task: Task) -> None:
        self.config, self.task = config, task
        self.memories = {"replay": MemorySpec({"tried": ()})}
        self._act, self._update = jax.jit(self._act_impl), jax.jit(self._update_impl, donate_argnums=0)

    def fresh(self, seed: int, at: int) -> Any:
        size = self.task.spaces.obs_dim, self.task.spaces.action_dim
        return jnp.asarray(rng.stream(seed, f"tiny@{at}").normal(size=size).astype(np.float32))

    def init(self, seed: int) -> Any:
        return {"w": self.fresh(seed, 0), "mean": np.zeros(self.task.spaces.obs_dim)}

    def begin(self, lanes: int) -> Any:
        return jnp.zeros((lanes, self.task.spaces.action_dim))

    def _act_impl(self, w: Any, carry: Any, obs: Any, first: Any, key: Any, scale: Any) -> Any:
        carry = jnp.where(first[:, None], 0.0, carry)
        noise = scale * jax.random.normal(jax.random.wrap_key_data(key), carry.shape)
        return jnp.tanh(obs @ w + 0.1 * carry + noise)

    def act(self, policy: Any, carry: Any, obs: Any, first: Any, clock: Clock, mode: str) -> Any:
        key = np.array([clock.seed, clock.decisions], np.uint32)
        action = self._act(policy["w"], carry, obs, first, key, np.float32(0.0 if mode == "greedy" else 0.3))
        return action, {"tried": np.full(len(obs), clock.step, np.float32)}, action

    def draw(self, state: Any, memories: Any, clock: Clock) -> Data | None:
        return Uniform(8, 0.9)(memories, clock, 1) if len(memories["replay"]) > 8 else None

    def _update_impl(self, w: Any, batch: Any) -> Any:
        w = w + self.config.rate * jnp.einsum("ubi,ubj,ub->ij", batch.obs, batch.action, batch.reward)
        return w, {"w/norm": jnp.linalg.norm(w), "reward": jnp.mean(batch.reward)}

    def update(self, state: Any, data: Data) -> Any:
        w, metrics = self._update(state["w"], data.train)
        return state | {"w": w}, metrics

    def notice(self, state: Any, memories: Any, steps: Any, obs: Any, clock: Clock) -> Any:
        return state | {"mean": 0.9 * state["mean"] + 0.1 * obs.mean(axis=0)}

    def renew(self, state: Any, parts: Any, clock: Clock) -> Any:
        return state | {"w": self.fresh(clock.seed, clock.step)} if "policy" in parts else state

    def policy(self, state: Any) -> Any:
        return {"w": state["w"]}

    def blank_policy(self) -> Any:
        return self.policy(self.init(0))

    def with_policy(self, state: Any, policy: Any) -> Any:
        return state | {"w": jnp.array(policy["w"])}


def entry(build: Any) -> Entry:
    return Entry("tiny", "a linear policy", TinyConfig, build)


def test_an_agent_that_keeps_every_promise_passes() -> None:
    check_agent(entry(Tiny))


# --- broken ones ------------------------------------------------------------------------------------------------------


class Wide(Tiny):
    def begin(self, lanes: int) -> Any:
        return jnp.zeros((lanes, self.task.spaces.action_dim + 1))

    def act(self, policy: Any, carry: Any, obs: Any, first: Any, clock: Clock, mode: str) -> Any:
        action, extras, _ = super().act(policy, carry[:, :-1], obs, first, clock, mode)
        return jnp.repeat(action[:1], 2, axis=0), extras, carry


class Column(Tiny):
    def act(self, *given: Any) -> Any:
        action, extras, carry = super().act(*given)
        return action, extras | {"more": extras["tried"]}, carry


class Silent(Tiny):
    metric_names = ("w/norm", "reward", "loss")


class Talkative(Tiny):
    metric_names = ("w/norm",)


class Homeless(Tiny):
    def notice(self, state: Any, memories: Any, steps: Any, obs: Any, clock: Clock) -> Any:
        return super().notice(state, memories, steps, obs, clock) | {"mean": jnp.zeros(2)}


class Gambler(Tiny):
    def draw(self, state: Any, memories: Any, clock: Clock) -> Data | None:
        lucky = int(np.random.default_rng().integers(1 << 30))
        return super().draw(state, memories, clock._replace(seed=lucky))


class Glutton(Tiny):
    def update(self, state: Any, data: Data) -> Any:
        found = super().update(state, data)
        data.train.reward[:] = 0.0
        return found


class Cannibal(Tiny):
    def prepare(self, state: Any, memories: Any, clock: Clock, stop: Any) -> Any:
        state["mean"] += 1.0
        return state, {}


class Spender(Tiny):
    def __init__(self, config: TinyConfig, task: Task) -> None:
        super().__init__(config, task)
        self._act = jax.jit(self._act_impl, donate_argnums=1)


class Brooder(Tiny):
    last = 0.0

    def act(self, policy: Any, carry: Any, obs: Any, first: Any, clock: Clock, mode: str) -> Any:
        action, extras, carry = super().act(policy, carry, obs, first, clock, mode)
        self.last = 0.5 * self.last + 0.5 * float(np.mean(action))
        return action * np.float32(1.0 - 0.5 * abs(self.last)), extras, carry


class Nostalgic(Tiny):
    def renew(self, state: Any, parts: Any, clock: Clock) -> Any:
        return super().renew(state, parts, clock._replace(step=0))


class Stubborn(Tiny):
    def with_policy(self, state: Any, policy: Any) -> Any:
        return dict(state)


class Moody(Tiny):
    def init(self, seed: int) -> Any:
        return super().init(int(np.random.default_rng().integers(1 << 30)))


class Forgetful(Tiny):
    calls = 0

    def update(self, state: Any, data: Data) -> Any:
        self.calls += 1
        state, metrics = super().update(state, data)
        return state | {"w": state["w"] * np.float32(1.0 - 0.001 * self.calls)}, metrics


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Wide, r"must have the agreed sizes: 1 lanes want actions \[1, 2\], but collect gave \[2, 2\]"),
        (Column, r"must have the agreed sizes: the replay keeps the columns .*'tried'.*, but act gave the extras .*'more'"),
        (Silent, "every metric of metric_names must be reported, and no other: loss was never reported within 120 steps"),
        (Talkative, "every metric of metric_names must be reported, and no other: reward is reported and not among them"),
        (Homeless, r"on the host where they were NumPy: \['mean'\] was NumPy float64\[2\] and became JAX float32\[2\]"),
        (Gambler, r"drawn twice it must be the same, and draw must change nothing: two draws differ"),
        (Glutton, "update may consume the state alone, and no other call anything: the data was changed"),
        (Cannibal, r"update may consume the state alone, .* the state given to prepare was changed \(\['mean'\]\)"),
        (Spender, "update may consume the state alone, and no other call anything: the carry given to act was consumed"),
        (Brooder, "what acting remembers must be in the carry"),
        (Nostalgic, "renewed parts must be fresh, .*: the same networks are drawn at another step"),
        (Stubborn, r"come back from its file as it was, and into another state: with_policy leaves \['w'\] as it was"),
        (Moody, "the same seed must give the same bytes"),
        (Forgetful, "a run that was killed and resumed must equal one that was not, so what matters must be in the state"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(broken: type[Tiny], sentence: str) -> None:
    with pytest.raises(BrokenPromiseError, match=sentence):
        check_agent(entry(broken))


def test_a_broken_promise_fails_a_test_and_is_an_error_of_ours() -> None:
    assert issubclass(BrokenPromiseError, AssertionError) and issubclass(BrokenPromiseError, BeelineError)


def test_an_agent_that_learns_nothing_cannot_be_checked() -> None:
    with pytest.raises(BrokenPromiseError, match="give options with which 120 steps do"):
        check_agent(agents.get("sac"), learn_after=500)


# --- ours -------------------------------------------------------------------------------------------------------------


OPTIONS: dict[str, dict[str, Any]] = {
    "sac": {"normalize_obs": True}, "bac": {"blend": "ada"}, "td3": {"acting_noise": "pink"}, "bee-td3": {"grad_clip": 1.0},
    "ppo": {"rollout": 16, "epochs": 2}, "trpo": {"rollout": 16, "epochs": 2},
    **{algo: imagining(algo) for algo, entry in agents.OWN.items() if entry.group == "model-based"},
}  # fmt: skip


@pytest.mark.parametrize("algo", agents.OWN)
def test_our_algorithms_keep_every_promise(algo: str) -> None:
    check_agent(agents.get(algo), **OPTIONS.get(algo, {}))
