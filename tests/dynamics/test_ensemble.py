"""The ensemble against mbrl-lib's GaussianMLP (a golden case), a plain NumPy form, and what must not change."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline.dynamics.ensemble import GaussianEnsemble, bounded_log_var, gaussian_nll, truncated_normal
from beeline.networks import Draw


def fill(shape: tuple[int, ...], a: float) -> np.ndarray:
    """.3 sin(a + Σ_j (j+1) i_j): numbers that anyone can write down again."""
    grid = np.indices(shape)
    return (0.3 * np.sin(a + sum((j + 1) * each for j, each in enumerate(grid)))).astype(np.float32)


@pytest.fixture(scope="module")
def golden():
    widths = (3, 4, 4, 4)  # out 2, twice
    layers = tuple(
        {"w": fill((2, *pair), 1 + number), "b": fill((2, 1, pair[1]), 5 + number)}
        for number, pair in enumerate(zip(widths, widths[1:]))
    )
    model = GaussianEnsemble(1, 2, members=2, elites=1, hidden=(4, 4), decay=(0.0,))
    params = {"layers": layers, "max": np.full(2, 0.5, np.float32), "min": np.full(2, -10.0, np.float32)}
    x, y = 4 * fill((2, 3, 3), 9), 3 * fill((2, 3, 2), 12)
    return model, jax.tree.map(jnp.asarray, params), x, y


def test_the_loss_and_its_gradients_are_those_of_mbrl_lib(golden):
    model, params, x, y = golden
    thirds = np.full(3, 1 / 3, np.float32)
    assert float(model.loss(params, x, y, thirds)) == pytest.approx(0.684691, abs=1e-6)
    frozen = dataclasses.replace(model, bounds=False)
    assert float(frozen.loss(params, x, y, thirds)) == pytest.approx(0.474691, abs=1e-6)
    mean, log_var = model.forward(params, x)
    np.testing.assert_allclose(mean[0, 0], (0.178749, -0.147686), atol=1e-6)
    np.testing.assert_allclose(log_var[1, 2], (-0.282166, -0.688529), atol=1e-6)
    gradients = jax.grad(model.loss)(params, x, y, thirds)
    assert float(jnp.abs(gradients["layers"][0]["w"]).sum()) == pytest.approx(0.738211, abs=1e-5)
    np.testing.assert_allclose(gradients["layers"][2]["b"][1, 0], (0.358227, -0.549758, 0.094689, 0.010213), atol=1e-6)
    np.testing.assert_allclose(gradients["max"], (0.171734, 0.080861), atol=1e-6)


def test_members_learn_nothing_of_each_other(golden):
    model, params, x, y = golden
    other = np.array(x)
    other[1] += 1.0
    thirds = np.full(3, 1 / 3, np.float32)
    first, second = (jax.grad(model.loss)(params, each, y, thirds)["layers"] for each in (x, other))
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a["w"][0], b["w"][0])
        assert np.abs(np.asarray(a["w"][1] - b["w"][1])).max() > 0


def test_decay_is_half_the_squared_weights_of_each_layer_and_leaves_biases_alone(golden):
    model, params, x, y = golden
    decayed = dataclasses.replace(model, decay=(0.1, 0.2, 0.3))
    thirds = np.full(3, 1 / 3, np.float32)
    more = sum(c / 2 * float(np.square(layer["w"]).sum()) for c, layer in zip((0.1, 0.2, 0.3), params["layers"]))
    assert float(decayed.loss(params, x, y, thirds)) == pytest.approx(0.684691 + more, rel=1e-6)
    plain, with_decay = (jax.grad(each.loss)(params, x, y, thirds) for each in (model, decayed))
    np.testing.assert_array_equal(plain["layers"][1]["b"], with_decay["layers"][1]["b"])
    np.testing.assert_allclose(
        with_decay["layers"][1]["w"], np.asarray(plain["layers"][1]["w"]) + 0.2 * params["layers"][1]["w"], rtol=1e-5, atol=1e-7
    )


def test_a_short_batch_counts_the_mean_of_its_own_rows(golden):
    model, params, x, y = golden
    short = model.loss(params, x[:, :2], y[:, :2], np.full(2, 0.5, np.float32))
    padded = model.loss(params, x, y, np.array([0.5, 0.5, 0.0], np.float32))
    assert float(short) == pytest.approx(float(padded), rel=1e-6)


def test_the_log_variance_never_leaves_its_bounds():
    raw = jnp.linspace(-1e4, 1e4, 2001)
    bent = np.asarray(bounded_log_var(raw, jnp.float32(-10.0), jnp.float32(0.5)))
    assert bent.min() >= -10.0 and bent.max() < 0.5001
    assert (np.diff(bent) >= 0).all()
    assert float(bounded_log_var(jnp.float32(-4.0), jnp.float32(-10.0), jnp.float32(0.5))) == pytest.approx(-4.0086, abs=1e-3)


def test_nll_by_hand():
    # (1 − 3)² e^{−ln 2} + ln 2
    assert float(gaussian_nll(jnp.float32(1.0), jnp.log(2.0), jnp.float32(3.0))) == pytest.approx(2.0 + np.log(2.0))


def test_adam_moves_as_a_plain_form_does():
    model = GaussianEnsemble(2, 1, members=2, elites=1, hidden=(4,), decay=(0.01,), rate=0.01)
    slot = model.init(Draw(0, "init/model")).slot
    draw = np.random.default_rng(0)
    weight = np.full(5, 0.2, np.float32)
    plain = jax.tree.map(lambda leaf: np.array(leaf, np.float64), slot.live)
    first, second = (jax.tree.map(np.zeros_like, plain) for _ in range(2))
    for t in range(1, 5):
        x, y = draw.normal(size=(2, 5, 3)).astype(np.float32), draw.normal(size=(2, 5, 3)).astype(np.float32)
        gradient = jax.tree.map(np.asarray, jax.grad(model.loss)(jax.tree.map(jnp.float32, plain), x, y, weight))
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        scale = 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        plain = jax.tree.map(lambda p, m, v, s=scale: p - s * m / (np.sqrt(v) + 1e-8), plain, first, second)
        slot = model.step(slot, x, y, weight)
    for a, b in zip(jax.tree.leaves(slot.live), jax.tree.leaves(plain)):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_fixed_bounds_do_not_move():
    model = GaussianEnsemble(2, 1, members=2, elites=1, hidden=(4,), decay=(0.0,), bounds=False)
    slot = model.init(Draw(0, "init/model")).slot
    x = np.ones((2, 5, 3), np.float32)
    after = model.step(slot, x, x, np.full(5, 0.2, np.float32))
    np.testing.assert_array_equal(after.live["max"], slot.live["max"])
    assert np.abs(np.asarray(after.live["layers"][0]["w"] - slot.live["layers"][0]["w"])).max() > 0


def test_a_sample_is_the_state_plus_a_draw_of_the_difference():
    """A member whose mean is a linear map of the scaled inputs, and whose deviation is known."""
    model = GaussianEnsemble(2, 1, members=3, elites=2, hidden=(), decay=(0.0,))
    state = model.init(Draw(0, "init/model"))
    w = np.zeros((3, 3, 6), np.float32)
    w[:, 0, 0], w[:, 1, 1], w[:, 2, 2] = 0.1, 0.2, 0.3
    w[2] *= 2
    b = np.zeros((3, 1, 6), np.float32)
    b[..., 3:] = -4.0
    params = state.slot.live | {"layers": ({"w": jnp.asarray(w), "b": jnp.asarray(b)},)}
    state = state._replace(
        slot=state.slot._replace(live=params), mean=jnp.array([1.0, 0.0, 0.0]), deviation=jnp.array([2.0, 1.0, 1.0]),
        unit=jnp.array([1.0, 1.0, 10.0]),
    )  # fmt: skip
    chosen = model.members_of(state, np.array([2, 0]))
    obs, action = np.array([[[3.0, 1.0]]] * 2, np.float32), np.array([[[0.5]]] * 2, np.float32)
    log_var = float(bounded_log_var(jnp.float32(-4.0), jnp.float32(-10.0), jnp.float32(0.5)))
    for noise in (0.0, 1.0):
        next_obs, reward = model.sample(chosen, obs, action, np.full((2, 1, 3), noise, np.float32))
        spread = noise * np.exp(log_var / 2)
        # scaled inputs: (3 − 1)/2 = 1, 1, .5
        np.testing.assert_allclose(next_obs[1, 0], [3.1 + spread, 1.2 + spread], rtol=1e-5)
        np.testing.assert_allclose(next_obs[0, 0], [3.2 + spread, 1.4 + spread], rtol=1e-5)
        np.testing.assert_allclose(reward[:, 0], [10 * (0.3 + spread), 10 * (0.15 + spread)], rtol=1e-5)


def test_weights_begin_small_cut_at_two_deviations_and_differ_between_members():
    drawn = truncated_normal(np.random.default_rng(0), 20_000)
    assert np.abs(drawn).max() <= 2.0
    assert np.std(drawn) == pytest.approx(0.8796, abs=0.01)  # of a normal that is cut at ±2
    model = GaussianEnsemble(3, 1, members=2, hidden=(50,), decay=(0.0,))
    (first, _) = model.init(Draw(0, "init/model")).slot.live["layers"]
    assert np.abs(first["w"]).max() <= 2 / (2 * np.sqrt(4)) + 1e-6
    assert np.abs(np.asarray(first["w"][0] - first["w"][1])).max() > 0.1
    assert not np.asarray(first["b"]).any()
