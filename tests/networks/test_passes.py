"""Gradients that are written out against those that JAX derives of the plain form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline.networks import Draw, Ensemble, Ln
from beeline.networks.passes import linear, ln_relu

HIDDEN = (24, 9)  # wider than the input and then narrower: weight gradients have a form for each


def plain(params: Any, x: Any) -> Any:
    """The body `ln` as MODERN describes it, in JAX's own operations."""
    *hidden, last = params
    for each in hidden:
        z = x @ each["w"] + each["b"]
        normal = (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-6)
        x = jnp.maximum(normal * each["scale"] + each["shift"], 0.0)
    return x @ last["w"] + last["b"]


def moved(params: Any, seed: int = 0) -> Any:
    """Parameters of which none is what it began as, so that no gradient is by accident that of another."""
    r = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + r.normal(0.0, 0.3, leaf.shape).astype(np.float32), params)


def close(got: Any, wanted: Any) -> None:
    """Equal to 1e-6 of the largest number of each array."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-6 * np.abs(y).max()), got, wanted)


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("members", [(), (1,), (2,), (3, 2)])
def test_values_and_every_gradient_are_those_of_the_plain_form(members: tuple[int, ...], outputs: int) -> None:
    net: Any = Ensemble(Ln(HIDDEN), members) if members else Ln(HIDDEN)
    params = moved(net.init(Draw(0, "passes"), 5, outputs))
    r = np.random.default_rng(1)
    x, pull = r.normal(size=(32, 5)).astype(np.float32), r.normal(size=(*members, 32, outputs)).astype(np.float32)

    def by_members(params: Any, x: Any) -> Any:
        apply = plain
        for _ in members:
            apply = jax.vmap(apply, in_axes=(0, None))
        return apply(params, x)

    got, back = jax.vjp(jax.jit(net.apply), params, x)
    wanted, plain_back = jax.vjp(by_members, params, x)
    close(got, wanted)
    close(back(pull), plain_back(pull))
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(plain_back(pull)))


def test_no_gradient_passes_where_the_output_is_zero() -> None:
    params = {"w": jnp.eye(2), "b": jnp.zeros(2), "scale": jnp.zeros(2), "shift": jnp.zeros(2)}
    _, back = jax.vjp(ln_relu, params, jnp.array([[1.0, -1.0]]))  # γ n + β is zero in both columns
    assert not any(leaf.any() for leaf in jax.tree.leaves(back(jnp.ones((1, 2)))))


def test_a_linear_layer_by_hand() -> None:
    params = {"w": jnp.array([[1.0, -1.0], [2.0, 0.5]]), "b": jnp.array([0.0, 1.0])}
    x, pull = jnp.array([[1.0, 3.0], [2.0, 0.0]]), jnp.array([[1.0, 0.0], [2.0, 10.0]])
    z, back = jax.vjp(linear, params, x)
    np.testing.assert_array_equal(z, [[7.0, 1.5], [2.0, -1.0]])
    own, dx = back(pull)
    np.testing.assert_array_equal(own["w"], [[5.0, 20.0], [3.0, 0.0]])  # Σ_rows x_i g_j
    np.testing.assert_array_equal(own["b"], [3.0, 10.0])
    np.testing.assert_array_equal(dx, [[1.0, 2.0], [-8.0, 9.0]])


def test_inputs_may_have_any_leading_axes() -> None:
    params = moved(Ln(HIDDEN).init(Draw(0, "passes"), 5, 2))
    x = np.random.default_rng(2).normal(size=(3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(Ln(HIDDEN).apply(params, x), plain(params, x), rtol=1e-4, atol=1e-5)
    assert Ln(HIDDEN).apply(params, x[0, 0]).shape == (2,)


def test_curvature_can_be_taken_along_a_direction() -> None:
    params = moved(Ln(HIDDEN).init(Draw(0, "passes"), 5, 2))
    along, x = moved(jax.tree.map(np.zeros_like, params), 3), np.random.default_rng(2).normal(size=(16, 5)).astype(np.float32)

    def bend(apply: Any) -> Any:
        slope = jax.grad(lambda params: jnp.sum(jnp.square(apply(params, x))))
        return jax.jvp(slope, (params,), (along,))[1]

    got, wanted = bend(Ln(HIDDEN).apply), bend(plain)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=2e-5 * np.abs(y).max()), got, wanted)
