"""The bodies `ln` and `simba`: numbers of parameters, forward passes by hand, initial weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline import agents
from beeline.agents.base import Spaces, Task
from beeline.networks import Draw, Ln, Simba, layer_norm, parameter_count

WALKER = Task(Spaces(24, (-1.0,) * 6, (1.0,) * 6))


def built(preset: str, **options: object) -> dict[str, int]:
    agent = agents.get("bac").build(agents.make_config("bac", "dmc/walker-run", preset, options), WALKER)
    return {
        "critic": parameter_count(agent.critic.learnable.draw(Draw(0, "critic"))),
        "policy": parameter_count(agent.actor.learnable.draw(Draw(0, "policy"))),
        "value": parameter_count(agent.backup.value.draw(Draw(0, "value"))),
    }


def test_sizes_are_those_of_the_specification() -> None:
    one = {"double_q": "off"}
    assert built("best", **one) == {"critic": 75_009, "policy": 21_772, "value": 73_473}
    wide = built("wide", **one)
    assert (wide["critic"], wide["policy"]) == (1_060_865, 136_972)
    assert built("wide", hidden=(512, 512), **one)["critic"] == 4_218_881
    assert built("wide", hidden=(128, 128), **one)["critic"] == 268_289


def test_layer_norm_by_hand() -> None:
    normed = layer_norm(jnp.array([1.0, 3.0]), jnp.ones(2), jnp.zeros(2), 1e-6)
    np.testing.assert_allclose(normed, [-1.0, 1.0], atol=1e-6)


def test_ln_network_by_hand() -> None:
    net = Ln((2,))
    hidden = {"w": np.array([[1.0, -1.0], [2.0, 0.5]]), "b": np.array([0.5, 0.0])}
    hidden |= {"scale": np.array([2.0, 3.0]), "shift": np.array([0.25, 0.5])}
    params = (hidden, {"w": np.array([[1.0], [-2.0]]), "b": np.array([0.125])})
    x = np.array([1.0, 2.0])  # W x + b = (1 + 4 + .5, −1 + 1) = (5.5, 0), normalised (1, −1), then (2.25, −2.5), ReLU (2.25, 0)
    np.testing.assert_allclose(net.apply(params, jnp.array(x)), [2.25 + 0.125], rtol=1e-5)
    gradient = jax.grad(lambda p: net.apply(p, jnp.array(x))[0])(params)[0]
    np.testing.assert_allclose(gradient["scale"], [1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(gradient["shift"], [1.0, 0.0], atol=1e-5)


def test_simba_against_plain_numpy() -> None:
    draw = np.random.default_rng(0)
    net = Simba((6, 6))
    params = jax.tree.map(lambda leaf: leaf + 0.2 * draw.standard_normal(leaf.shape), net.init(Draw(0, "net"), 3, 2))
    x = draw.standard_normal((5, 3))

    def normed(block: dict, x: np.ndarray) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * block["scale"] + block["shift"]

    first, *blocks, last = params
    y = x @ first["w"] + first["b"]
    for block in blocks:
        y = y + np.maximum(normed(block, y) @ block["w1"] + block["b1"], 0.0) @ block["w2"] + block["b2"]
    assert len(blocks) == 2 and blocks[0]["w1"].shape == (6, 24)
    np.testing.assert_allclose(net.apply(params, jnp.array(x)), normed(last, y) @ last["w"] + last["b"], rtol=1e-4, atol=1e-5)


def test_simbas_initial_weights() -> None:
    first, block, last = Simba((256,)).init(Draw(0, "net"), 24, 4)
    np.testing.assert_allclose(first["w"] @ first["w"].T, np.eye(24), atol=1e-5)
    np.testing.assert_allclose(last["w"].T @ last["w"], np.eye(4), atol=1e-5)
    for name, fan_in in (("w1", 256), ("w2", 1024)):
        assert block[name].std() == pytest.approx(np.sqrt(2.0 / fan_in), rel=0.01)
        assert abs(block[name].mean()) < 1e-3
    assert not first["b"].any() and not block["b1"].any() and not block["b2"].any()


def test_a_policy_reads_mu_and_rho_from_one_layer_of_simba() -> None:
    *_, last = Simba((16,)).init(Draw(0, "net"), 5, 3, 3)
    assert last["w"].shape == (16, 6)
    for part in (last["w"][:, :3], last["w"][:, 3:]):
        np.testing.assert_allclose(part.T @ part, np.eye(3), atol=1e-5)
