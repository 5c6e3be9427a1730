from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from beeline.networks import Draw, Ensemble, body, elu, init_statistics, normalise, observe


def net(name: str, hidden: tuple[int, ...] = (), initialiser: str = "xavier") -> Any:
    return body(name, hidden, initialiser)


def pair(name: str, members: int = 2, hidden: tuple[int, ...] = (), initialiser: str = "xavier") -> Ensemble:
    return Ensemble(net(name, hidden, initialiser), (members,))


def test_relu_network_by_hand() -> None:
    params = (
        {"w": jnp.array([[1.0, -1.0], [2.0, 0.5]]), "b": jnp.array([0.0, 1.0])},
        {"w": jnp.array([[3.0], [-2.0]]), "b": jnp.array([0.5])},
    )
    # x = [1, 1]: hidden = relu([3, 0.5]) = [3, 0.5]; out = 9 − 1 + 0.5
    np.testing.assert_allclose(net("mlp").apply(params, jnp.ones((1, 2))), [[8.5]])
    np.testing.assert_allclose(net("mlp").apply(params, jnp.array([[-1.0, 0.0]])), [[0.0 * 3 - 2 * 2 + 0.5]])


def test_bac_network_by_hand() -> None:
    params = (
        {"w": jnp.eye(2), "b": jnp.zeros(2), "scale": jnp.array([1.0, 2.0]), "shift": jnp.array([0.0, 0.5])},
        {"w": jnp.eye(2), "b": jnp.array([0.0, -2.0])},
        {"w": jnp.ones((2, 1)), "b": jnp.zeros(1)},
    )
    normed = np.array([-1.0, 1.0]) * 2 / np.sqrt(4 + 1e-5)  # x = [1, 5]: mean 3, deviation 2
    first = np.tanh(normed * [1.0, 2.0] + [0.0, 0.5])
    second = first + np.array([0.0, -2.0])
    second = np.where(second > 0, second, np.exp(second) - 1)
    np.testing.assert_allclose(net("bac").apply(params, jnp.array([[1.0, 5.0]])), [[second.sum()]], rtol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "bac", "ln"])
def test_an_ensemble_is_its_members(name: str) -> None:
    params = pair(name, 3, (8, 8)).init(Draw(0, "members"), 4, 1)
    x = jax.random.normal(jax.random.key(1), (5, 4))
    together = pair(name).apply(params, x)
    assert together.shape == (3, 5, 1)
    for member in range(3):
        own = jax.tree.map(lambda leaf, member=member: leaf[member], params)
        np.testing.assert_allclose(together[member], net(name).apply(own, x), rtol=1e-5, atol=1e-6)
    assert not np.allclose(together[0], together[1])


def test_initial_weights_have_the_sources_bounds() -> None:
    xavier = net("mlp", (50,)).init(Draw(0, "one"), 30, 1)
    bound = np.sqrt(6 / 80)
    assert np.abs(xavier[0]["w"]).max() <= bound and np.abs(xavier[0]["w"]).max() > 0.95 * bound
    assert not xavier[0]["b"].any()
    torch = net("mlp", (50,), "torch").init(Draw(0, "one"), 25, 1)
    assert 0.19 < np.abs(torch[0]["w"]).max() <= 0.2 and 0.1 < np.abs(torch[0]["b"]).max() <= 0.2


@pytest.mark.parametrize("name", ["mlp", "bac", "ln"])
def test_gradients_equal_finite_differences(name: str) -> None:
    with jax.enable_x64(True):
        params = pair(name, 2, (6, 6), "torch").init(Draw(0, "members"), 3, 1)
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
        x = jax.random.normal(jax.random.key(1), (4, 3), jnp.float64)

        def loss(p: object, inputs: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(pair(name).apply(p, inputs)))

        check_grads(loss, (params, x), order=1, modes=["rev"], rtol=1e-5)


def test_statistics_of_observations() -> None:
    data = np.random.default_rng(0).normal(5.0, 3.0, (60, 2)).astype(np.float32)
    statistics = init_statistics(2)
    np.testing.assert_array_equal(normalise(statistics, jnp.ones((1, 2))), jnp.ones((1, 2)) / np.sqrt(1 + 1e-8))
    for chunk in np.split(data, [1, 7, 30]):
        statistics = observe(statistics, chunk)
    np.testing.assert_allclose(statistics["mean"], data.mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics["variance"], data.var(0), rtol=1e-4)
    assert float(jnp.abs(normalise(statistics, jnp.full((1, 2), 1e6))).max()) == 10.0
    assert normalise(None, data) is data


@pytest.mark.parametrize("seen", [10, 2**24, 10**9])
def test_statistics_are_right_however_many_observations_were_met(seen: int) -> None:
    """The counter jumps to `seen` observations of N(2, 9); a thousand more of N(2, 9) must leave both as they are."""
    more = np.random.default_rng(0).normal(2.0, 3.0, (1000, 1)).astype(np.float32).astype(np.float64)
    statistics = {"count": np.float64(seen), "mean": np.array([2.0]), "variance": np.array([9.0])}
    for row in more:
        statistics = observe(statistics, row[None].astype(np.float32))
    total = seen + 1000
    mean = (seen * 2.0 + more.sum()) / total
    variance = (seen * (9.0 + (2.0 - mean) ** 2) + np.square(more - mean).sum()) / total
    assert statistics["count"] == total and statistics["mean"].dtype == np.float64
    np.testing.assert_allclose(statistics["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(statistics["variance"], variance, rtol=1e-9)


def test_elu_and_its_gradient() -> None:
    x = np.array([-30.0, -2.0, -1e-3, -1e-6, 0.0, 1e-6, 0.5, 40.0], np.float32)
    value, gradient = jax.vmap(jax.value_and_grad(elu))(jnp.asarray(x))
    np.testing.assert_allclose(value, np.where(x > 0, x, np.expm1(x.astype(np.float64))), rtol=1e-6, atol=1.2e-7)
    np.testing.assert_allclose(gradient, np.where(x > 0, 1.0, np.exp(x.astype(np.float64))), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2,), (7, 2)])
def test_ensembles_of_any_shape_are_their_members(shape: tuple[int, ...]) -> None:
    many = Ensemble(net("bac", (8, 8)), shape)
    params = many.init(Draw(0, "members"), 4, 1)
    x = jax.random.normal(jax.random.key(1), (5, 4))
    together = many.apply(params, x)
    assert together.shape == (*shape, 5, 1)
    for number, place in enumerate(np.ndindex(*shape)):
        alone = net("bac", (8, 8)).init(Draw(0, "members").of(number), 4, 1)
        np.testing.assert_allclose(together[place], net("bac").apply(alone, x), rtol=1e-5, atol=1e-6)


def test_a_network_made_anew_differs_from_the_first_and_from_every_other() -> None:
    made = [net("mlp", (8,)).init(Draw(0, "init/actor", at), 4, 1)[0]["w"] for at in (0, 100, 200)]
    assert all(not np.allclose(made[i], made[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    np.testing.assert_array_equal(made[1], net("mlp", (8,)).init(Draw(0, "init/actor", 100), 4, 1)[0]["w"])
