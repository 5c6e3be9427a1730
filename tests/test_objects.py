"""Networks, blends and exploit losses of one's own, handed over as objects."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from toys import Walk
from whole_runs import same_run, small

import beeline
from beeline import agents, operators, trees
from beeline.agents.blends import Signals
from beeline.agents.options import OffPolicyConfig
from beeline.errors import BeelineError, CheckpointError, ConfigError


@dataclasses.dataclass(frozen=True)
class Sine:
    """One hidden layer of sines."""

    width: int = 6

    def init(self, draw: Any, inputs: int, *outputs: int) -> Any:
        generator = draw.member(0)
        sizes = (inputs, self.width), (self.width, sum(outputs))
        first, last = (generator.normal(size=size).astype(np.float32) for size in sizes)
        return {"first": first, "last": 0.1 * last}

    def apply(self, params: Any, x: Any) -> Any:
        return jnp.sin(x @ params["first"]) @ params["last"]


class Third:
    """λ = 1/3, by an object with a memory of its own."""

    def init(self, shape: tuple[int, ...]) -> Any:
        return {"calls": jnp.int32(0)}

    def __call__(self, state: Any, signals: Signals) -> Any:
        lam = jnp.full_like(signals.exploit, 1 / 3)
        return operators.blend(signals.exploit, signals.explore, lam), lam, {"calls": state["calls"] + 1}


def upper(q: Any, v: Any, strength: Any) -> Any:
    """A loss of our own: the expectile .9, whatever the strength."""
    return operators.expectile_value_loss(q, v, 0.9)


OBJECTS: dict[str, Any] = {"network": Sine(), "blend": Third(), "exploit": upper}
NAMES = {"network": "object:Sine", "blend": "object:Third", "exploit": "object:upper"}


def refuse(message: str) -> None:
    raise AssertionError(message)


def test_objects_are_used_as_they_are_and_recorded_by_name() -> None:
    model = beeline.BAC(Walk, **small(**OBJECTS, eval_episodes=0)).learn(60)
    agent = model.trainer.agent
    assert agent.backup.loss.form is upper and agent.backup.blend is OBJECTS["blend"]
    assert agent.backup.value.net is OBJECTS["network"]
    assert agent.critic.learnable.net.net is OBJECTS["network"] and agent.actor.learnable.net is OBJECTS["network"]
    assert model.trainer.metrics["lambda"] == pytest.approx(1 / 3)
    assert {name: model.plan.to_dict()["agent"][name] for name in NAMES} == NAMES


def test_a_loss_of_the_same_form_gives_the_bytes_of_its_name() -> None:
    def same(q: Any, v: Any, strength: Any) -> Any:
        return operators.expectile_value_loss(q, v, strength)

    by_name = beeline.BAC(Walk, **small(expectile=0.8, eval_episodes=0)).learn(60)
    by_object = beeline.BAC(Walk, **small(exploit=same, exploit_alpha=0.8, eval_episodes=0)).learn(60)
    assert by_name.trainer.metrics["loss/exploit"] == by_object.trainer.metrics["loss/exploit"]


def test_a_run_with_objects_resumes_to_the_same_bytes_when_they_are_given_again(tmp_path: Path) -> None:
    whole = beeline.train("bac", Walk, out=tmp_path / "whole", **small(**OBJECTS)).path
    part = beeline.train("bac", Walk, out=tmp_path / "part", **small(**OBJECTS, steps=70)).path
    assert {name: json.loads((part / "config.json").read_text())["agent"][name] for name in NAMES} == NAMES
    with pytest.raises(ConfigError, match=r"network = 'object:Sine' .* give it again with network=…"):
        beeline.resume(part, steps=120, env=Walk)
    with pytest.raises(ConfigError, match=r"exploit=…"):
        beeline.resume(part, steps=120, env=Walk, network=Sine(), blend=Third())
    with pytest.raises(ConfigError, match="made with network = 'object:Sine', not with 'object:Third'"):
        beeline.resume(part, steps=120, env=Walk, **OBJECTS | {"network": Third()})
    beeline.resume(part, steps=120, env=Walk, report=refuse, **OBJECTS)
    same_run(whole, part)


def test_a_model_and_a_policy_with_objects_load_when_they_are_given_again(tmp_path: Path) -> None:
    model = beeline.SAC(Walk, **small("sac", network=Sine(), eval_episodes=0)).learn(40)
    saved = model.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="network=…"):
        beeline.load(saved, env=Walk)
    with pytest.raises(CheckpointError, match="network=…"):
        beeline.load(saved / "policy.npz")
    obs = np.array([0.1, 0.2], np.float32)
    loaded = beeline.load(saved, env=Walk, network=Sine())
    assert np.array_equal(loaded.predict(obs)[0], model.predict(obs)[0])
    assert np.array_equal(beeline.load(saved / "policy.npz", network=Sine()).predict(obs)[0], model.predict(obs)[0])
    ours, theirs = (trees.to_arrays(each.learn(20).trainer.state) for each in (model, loaded))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        ("network", Sine, "network = <class .* is not a word; allowed: one of mlp, bac.*, or an object of beeline.networks.Net"),
        ("network", upper, "or an object of beeline.networks.Net"),
        ("blend", Sine(), "or an object of beeline.agents.blends.Blend"),
        ("exploit", Sine(), "or an object of beeline.operators.ExploitLoss"),
        ("hidden", Sine(), "hidden = Sine.* is not whole numbers separated by commas"),
        ("network", "object:Sine", "give it again with network=…"),
    ],
)
def test_what_is_no_such_object_is_refused(option: str, value: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        OffPolicyConfig.make({option: value})


def test_what_was_recorded_by_name_cannot_become_an_object(tmp_path: Path) -> None:
    config = agents.make_config("sac", "", "light", {"hidden": (8, 8)})
    with pytest.raises(BeelineError, match="network = 'mlp' is kept"):
        type(config).recorded(config.to_dict(), {"network": Sine()})
    with pytest.raises(BeelineError, match="it has no colour"):
        type(config).recorded(config.to_dict(), {"colour": Sine()})
