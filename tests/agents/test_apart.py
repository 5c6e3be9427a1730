"""MB-BAC's two batches: both readings of the paper against the plain form, and what each batch moves."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
import states
from toys import Walk
from whole_runs import small

import beeline
from beeline.agents import make_config
from beeline.agents.apart import Apart
from beeline.errors import ConfigError
from beeline.memory import Batch, Data

OPTIONS: dict[str, Any] = {
    "network": "mlp", "actor_lr": 0.01, "critic_lr": 0.02, "value_lr": 0.04, "alpha_lr": 0.03, "tau": 0.1, "expectile": 0.8,
}  # fmt: skip


def agent(targets: str, lam: float = 0.3, **more: Any) -> Any:
    """The inner agent."""
    return states.agent("mb-bac", targets=targets, lam=lam, **OPTIONS, **more).inner


def learn(a: Any, state: Any, train: Batch, fit: Batch) -> tuple[Any, Any]:
    bare = [each._replace(extras=None) for each in (train, fit)]
    return a.update(state, Data(bare[0], int(state.updates), bare[1]))


@pytest.mark.parametrize("v_entropy", [True, False])
@pytest.mark.parametrize("targets", ["blend", "split"])
def test_updates_equal_the_plain_form(targets: str, v_entropy: bool) -> None:
    a = agent(targets, v_entropy=v_entropy)
    s = plain.Settings(
        "bac", action_scale=(2.0, 0.4), entropy_units="unit", targets=targets, v_entropy=v_entropy, **OPTIONS
    )  # fmt: skip
    state = states.elsewhere(a.init(0), 3)
    expected = states.read(state)
    for number in range(4):
        train, fit = states.batch(seed=number), states.batch(seed=100 + number)
        expected, numbers = plain.update(expected, states.one(train), states.noise_of(state, 1), s, states.one(fit))
        state, metrics = learn(a, state, train, fit)
        states.assert_same(states.read(state), expected, f"update {number + 1}, {targets}")
        for name in numbers.keys() & metrics.keys():
            np.testing.assert_allclose(metrics[name], numbers[name], rtol=1e-5, atol=5e-6, err_msg=name)
        assert float(metrics["lambda"]) == pytest.approx(float(expected["blend/lam"]))


def test_on_one_batch_both_readings_are_the_same_update() -> None:
    found = []
    for targets in ("blend", "split"):
        a = agent(targets)
        state, metrics = learn(a, states.elsewhere(a.init(0), 5), states.batch(), states.batch())
        found.append((states.read(state), metrics))
    for name, array in found[0][0].items():
        np.testing.assert_allclose(found[1][0][name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    assert float(found[0][1]["q/target"]) == pytest.approx(float(found[1][1]["q/target"]), rel=1e-5)
    assert float(found[0][1]["loss/critic"]) < float(found[1][1]["loss/critic"])  # by λ (1 − λ) mean of their distance squared


@pytest.mark.parametrize(("lam", "moves"), [(0.0, "train"), (0.3, "both"), (1.0, "fit")])
def test_each_target_is_of_its_own_batch(lam: float, moves: str) -> None:
    """Other rewards in a batch move the critics only where its target has a weight, and never V in the same update."""
    a = agent("split")

    def after(**other: float) -> Any:
        start = a.init(0)
        state = dataclasses.replace(start, backup=start.backup | {"blend": {"lam": jnp.float32(lam)}})
        batches = {"train": states.batch(seed=1), "fit": states.batch(seed=2)}
        for name, reward in other.items():
            batches[name] = batches[name]._replace(reward=batches[name].reward + np.float32(reward))
        return learn(a, state, batches["train"], batches["fit"])[0]

    base = after()
    for name in ("train", "fit"):
        other = after(**{name: 3.0})
        assert states.leaves_equal(base.critic.live, other.critic.live) == (moves not in (name, "both"))
        assert states.leaves_equal(base.backup, other.backup)


def test_it_is_refused_where_lambda_is_chosen_for_every_sample() -> None:
    with pytest.raises(ConfigError, match=re.escape("targets = split weighs two losses by one λ, and blend = ada")):
        make_config("mb-bac", "gym/any", None, {"targets": "split", "blend": "ada"})


def test_a_run_learns_by_either_and_without_lambda_by_none() -> None:
    def learned(**changes: Any) -> Any:
        model = beeline.model("mb-bac")(Walk, verbose=0, **small("mb-bac", eval_episodes=0, **changes))
        model.learn(50)
        return model.trainer

    split, blend = learned(targets="split"), learned()
    assert isinstance(split.agent.inner, Apart) and not isinstance(blend.agent.inner, Apart)
    assert split.progress.updates == blend.progress.updates > 0
    assert not states.leaves_equal(split.state.inner.critic.live, blend.state.inner.critic.live)
    assert all(np.isfinite(each).all() for each in jax.tree.leaves(split.state.inner.critic.live))
    zero = [learned(lam=0.0, targets=targets).state.inner for targets in ("split", "blend")]
    assert states.leaves_equal(*zero)


def test_what_is_compiled_ahead_is_what_is_called() -> None:
    """The rehearsal has the batches of the updates to come: V's beside those to train on."""
    model = beeline.model("mb-bac")(Walk, verbose=0, **small("mb-bac", eval_episodes=0))
    model.learn(30)
    assert model.trainer.agent.inner._update._cache_size() == 1
