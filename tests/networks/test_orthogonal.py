"""Orthogonal initial weights with gains, and the tanh body that PPO puts them into."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from beeline.networks import Draw, body
from beeline.networks.mlp import orthogonal


@pytest.mark.parametrize(("fan_in", "fan_out"), [(64, 64), (17, 5), (3, 64), (64, 1)])
def test_orthogonal_weights_are_orthogonal(fan_in: int, fan_out: int) -> None:
    w = orthogonal(np.random.default_rng(0), fan_in, fan_out, 3.0)
    assert w.shape == (fan_in, fan_out)
    gram = w.T @ w if fan_in >= fan_out else w @ w.T
    np.testing.assert_allclose(gram, 9.0 * np.eye(min(fan_in, fan_out)), atol=1e-5)


def test_they_are_uniform_over_orientations() -> None:
    """Without the correction of signs, the diagonal of Q would lean to one side."""
    draw = np.random.default_rng(1)
    diagonals = np.array([np.diag(orthogonal(draw, 3, 3, 1.0)) for _ in range(2_000)])
    assert np.abs(diagonals.mean(axis=0)).max() < 0.05  # the deviation of each mean is √(1/3) / √2000 = 0.013


@pytest.mark.parametrize("name", ["tanh", "mlp", "bac"])
def test_gains_are_root_two_inside_and_as_asked_at_the_end(name: str) -> None:
    first, second, last = body(name, (32, 16), "orthogonal", head_gain=0.01).init(Draw(0, "init/policy"), 8, 2)
    np.testing.assert_allclose(first["w"] @ first["w"].T, 2.0 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(second["w"].T @ second["w"], 2.0 * np.eye(16), atol=1e-5)
    np.testing.assert_allclose(last["w"].T @ last["w"], 1e-4 * np.eye(2), atol=1e-9)
    assert not any(each["b"].any() for each in (first, second, last))
    value = body(name, (32, 16), "orthogonal").init(Draw(0, "init/value"), 8, 1)
    np.testing.assert_allclose(value[-1]["w"].T @ value[-1]["w"], np.eye(1), atol=1e-6)


def test_the_gain_is_that_of_orthogonal_weights_alone() -> None:
    for initialiser in ("xavier", "torch"):
        plain, gained = (body("tanh", (8,), initialiser, gain).init(Draw(0, "x"), 3, 1) for gain in (1.0, 0.01))
        for left, right in zip(plain, gained):
            np.testing.assert_array_equal(left["w"], right["w"])


def test_tanh_network_by_hand() -> None:
    params = (
        {"w": jnp.array([[1.0, -1.0], [2.0, 0.5]]), "b": jnp.array([0.0, 1.0])},
        {"w": jnp.array([[3.0], [-2.0]]), "b": jnp.array([0.5])},
    )
    out = body("tanh", (2,), "orthogonal").apply(params, jnp.ones((1, 2)))
    np.testing.assert_allclose(out, [[3 * np.tanh(3.0) - 2 * np.tanh(0.5) + 0.5]], rtol=1e-6)
