"""Every part of the operator against numbers worked out by hand, its stationary points and its gradients."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from beeline import operators as ops

FINITE = st.floats(-50.0, 50.0, width=32, allow_subnormal=False)  # XLA takes subnormals for zero
PAIRS = st.lists(st.tuples(FINITE, FINITE), min_size=8, max_size=8)  # one size: one compilation
quick = settings(max_examples=50, deadline=None)


def columns(pairs: list[tuple[float, float]]) -> tuple[jax.Array, jax.Array]:
    array = jnp.asarray(pairs, jnp.float32)
    return array[:, 0], array[:, 1]


def minimiser(name: str, strength: float, q: np.ndarray) -> float:
    """Return the V of least mean loss: the zero of its gradient, which grows with V in all three losses."""
    samples = jnp.asarray(q, jnp.float32)
    mean_loss = lambda v: jnp.mean(ops.EXPLOIT[name](samples, jnp.full_like(samples, v), strength))  # noqa: E731
    gradient = jax.jit(jax.grad(mean_loss))
    return float(optimize.brentq(lambda v: float(gradient(v)), float(q.min()) - 3.0, float(q.max()) + 3.0, xtol=1e-5))


def normal_quantiles(count: int = 20_000) -> np.ndarray:
    return stats.norm.ppf((np.arange(count) + 0.5) / count)


# --- targets and blends -----------------------------------------------------------------------------------------------


def test_bellman_target_bootstraps_unless_the_discount_is_zero() -> None:
    reward, value = jnp.array([1.0, 1.0]), jnp.array([10.0, 10.0])
    discount = jnp.array([0.99, 0.0])  # a time limit keeps γ, a terminal state does not
    np.testing.assert_allclose(ops.bellman_target(reward, discount, value), [10.9, 1.0], rtol=1e-6)


def test_targets_carry_no_gradient() -> None:
    total = lambda v: jnp.sum(ops.bellman_target(jnp.ones(2), jnp.ones(2), v))  # noqa: E731
    np.testing.assert_array_equal(jax.grad(total)(jnp.array([3.0, 4.0])), 0.0)


def test_blend_fixed_by_hand() -> None:
    y, lam = ops.blend_fixed(jnp.array([4.0, 0.0]), jnp.array([2.0, 8.0]), 0.25)
    np.testing.assert_allclose(y, [2.5, 6.0])
    np.testing.assert_allclose(lam, [0.25, 0.25])


@pytest.mark.parametrize(("lam", "chosen"), [(0.0, "explore"), (1.0, "exploit")])
def test_the_ends_of_lambda_are_the_two_targets_to_the_bit(lam: float, chosen: str) -> None:
    targets = {"exploit": jnp.array([0.1, -7.3]), "explore": jnp.array([5.7, 1e-3])}
    y, _ = ops.blend_fixed(targets["exploit"], targets["explore"], lam)
    np.testing.assert_array_equal(y, targets[chosen])


@quick
@given(PAIRS)
def test_min_and_max_choose_per_sample_and_lambda_says_which(pairs: list[tuple[float, float]]) -> None:
    exploit, explore = columns(pairs)
    for chosen, reduce in ((ops.blend_min, np.minimum), (ops.blend_max, np.maximum)):
        y, lam = chosen(exploit, explore)
        np.testing.assert_array_equal(y, reduce(exploit, explore))
        assert set(np.asarray(lam).tolist()) <= {0.0, 1.0}
        np.testing.assert_array_equal(ops.blend(exploit, explore, lam), y)


@quick
@given(PAIRS, st.floats(0.0, 1.0))
def test_a_blend_lies_between_its_targets(pairs: list[tuple[float, float]], lam: float) -> None:
    exploit, explore = columns(pairs)
    y = np.asarray(ops.blend(exploit, explore, lam))
    assert np.all(y <= np.maximum(exploit, explore) + 1e-4)
    assert np.all(y >= np.minimum(exploit, explore) - 1e-4)


def test_ada_ratio_by_hand_is_signed_clipped_and_finite_at_zero() -> None:
    delta = jnp.array([1.0, -1.0, 3.0, -1.0, 0.5e-7, 0.0])
    previous = jnp.array([4.0, 4.0, 2.0, -2.0, 0.0, 0.0])
    np.testing.assert_allclose(ops.ada_ratio(delta, previous), [0.25, 0.0, 1.0, 0.5, 0.5, 0.0], rtol=1e-6)


def test_ada_ratio_of_unrelated_errors_has_the_mean_of_the_specification() -> None:
    now, before = jax.random.normal(jax.random.key(0), (2, 200_000))
    assert float(ops.ada_ratio(now, before).mean()) == pytest.approx(0.36, abs=0.01)
    assert float(ops.ada_ratio(now + 1.0, before + 1.0).mean()) == pytest.approx(0.55, abs=0.01)


def test_ada_ratios_carry_no_gradient() -> None:
    delta = jnp.array([0.5, 0.2])
    np.testing.assert_array_equal(jax.grad(lambda d: ops.ada_ratio(d, jnp.ones(2)).sum())(delta), 0.0)
    np.testing.assert_array_equal(jax.grad(lambda d: ops.ada_batch_ratio(d, jnp.ones(()))[0].sum())(delta), 0.0)


def test_ada_batch_ratio_by_hand() -> None:
    lam, mean = ops.ada_batch_ratio(jnp.array([1.0, -3.0]), jnp.asarray(8.0))
    np.testing.assert_allclose(lam, [0.25, 0.25])
    assert float(mean) == 2.0
    np.testing.assert_allclose(ops.ada_batch_ratio(jnp.array([1.0, -3.0]), jnp.asarray(1.0))[0], [1.0, 1.0])


# --- exploit losses ---------------------------------------------------------------------------------------------------


def test_expectile_loss_by_hand() -> None:
    np.testing.assert_allclose(ops.expectile_loss(jnp.array([2.0, -2.0, 0.0]), 0.7), [2.8, 1.2, 0.0], rtol=1e-6)


def test_sparse_loss_by_hand() -> None:
    # α = ½: x = 1 + q − v = 3 and −1; 9 + 2·0 and 0 + 2·2
    np.testing.assert_allclose(ops.sparse_loss(jnp.array([2.0, 0.0]), jnp.array([0.0, 2.0]), 0.5), [9.0, 4.0])


def test_exponential_loss_by_hand_within_and_beyond_the_cap() -> None:
    q, v = jnp.array([2.0, 100.0]), jnp.array([0.0, 1.0])  # x = 2 and min(99, 5), so M = 5
    expected = [math.exp(-3.0), 1.0 + math.exp(-5.0)]
    np.testing.assert_allclose(ops.exponential_loss(q, v, 1.0), expected, rtol=1e-6)
    low = ops.exponential_loss(jnp.array([-8.0]), jnp.array([0.0]), 2.0)  # x = −4 lies below the floor M = −1
    np.testing.assert_allclose(low, [math.exp(-3.0)], rtol=1e-6)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 0.0), (0.7, 0.34), (0.8, 0.55), (0.9, 0.86), (0.99, 1.72)])
def test_expectiles_of_a_normal(expectile: float, expected: float) -> None:
    assert minimiser("expectile", expectile, normal_quantiles()) == pytest.approx(expected, abs=0.01)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-5.0, 5.0, width=16), min_size=5, max_size=5))
def test_expectile_limits_are_mean_and_maximum(q: list[float]) -> None:
    values = np.asarray(q)
    assert minimiser("expectile", 0.5, values) == pytest.approx(values.mean(), abs=1e-3)
    assert minimiser("expectile", 1.0 - 1e-6, values) == pytest.approx(values.max(), abs=1e-2)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_sparse_loss_is_stationary_where_sql_says(alpha: float) -> None:
    q = np.random.default_rng(0).gamma(2.0, 1.0, 500)
    v = minimiser("sparse", alpha, q)
    assert np.maximum(1.0 + (q - v) / (2.0 * alpha), 0.0).mean() == pytest.approx(1.0, abs=1e-4)
    assert q.mean() - 1e-4 <= v <= q.max()


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_exponential_loss_is_stationary_at_the_log_mean_exponential(alpha: float) -> None:
    q = np.random.default_rng(1).normal(size=200)
    expected = alpha * np.log(np.mean(np.exp(q / alpha)))
    assert minimiser("exponential", alpha, q) == pytest.approx(expected, abs=1e-3)


@quick
@given(st.lists(st.tuples(st.floats(-4.0, 4.0), st.floats(-4.0, 4.0)), min_size=8, max_size=8), st.floats(1.7, 5.0))
def test_stable_exponential_gradient_is_the_plain_one_times_a_positive_number(
    pairs: list[tuple[float, float]], alpha: float
) -> None:
    q, v = columns(pairs)  # |q − v|/α < 5: within the cap
    plain = jax.grad(lambda x: jnp.mean(jnp.exp((q - x) / alpha) + x / alpha))(v)
    stable = jax.grad(lambda x: jnp.mean(ops.exponential_loss(q, x, alpha)))(v)
    scale = math.exp(-max(float(jnp.max((q - v) / alpha)), -1.0))
    np.testing.assert_allclose(stable, np.asarray(plain) * scale, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("name", "strength"), [("expectile", 0.7), ("sparse", 1.0), ("exponential", 1.0)])
@pytest.mark.parametrize("gap", [4.0, 6.0, 1e3])
def test_v_rises_where_q_is_far_above_and_falls_where_far_below(name: str, strength: float, gap: float) -> None:
    gradient = jax.grad(lambda v, q: jnp.mean(ops.EXPLOIT[name](q, v, strength)))
    v = jnp.zeros(3)
    assert np.all(np.asarray(gradient(v, v + gap)) < 0)
    assert np.all(np.asarray(gradient(v, v - gap)) > 0)
    assert np.all(np.isfinite(gradient(v, v + gap)))


@pytest.mark.parametrize("name", sorted(ops.EXPLOIT))
def test_exploit_losses_leave_q_alone(name: str) -> None:
    gradient = jax.grad(lambda q: jnp.sum(ops.EXPLOIT[name](q, jnp.zeros(3), 0.9)))(jnp.array([1.0, -1.0, 9.0]))
    np.testing.assert_array_equal(gradient, 0.0)


# --- explore terms ----------------------------------------------------------------------------------------------------


def test_entropy_value_by_hand() -> None:
    np.testing.assert_allclose(ops.entropy_value(jnp.array([1.0, 2.0]), jnp.array([-3.0, 0.5]), 0.2), [1.6, 1.9])


def test_smoothing_noise_has_the_spread_and_the_bounds_of_td3() -> None:
    noise = np.asarray(ops.smoothing_noise(jax.random.normal(jax.random.key(0), (100_000,)), 0.2, 0.5))
    assert noise.min() == -0.5 and noise.max() == 0.5
    assert np.mean(np.abs(noise) == 0.5) == pytest.approx(2 * stats.norm.sf(2.5), rel=0.1)
    assert np.quantile(noise, 0.8413) == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("scale", [[1.0, 1.0], [0.4, 2.0]])
def test_log_prob_against_a_numerical_change_of_variables(scale: list[float]) -> None:
    mean, std, factor = np.array([0.3, -0.8]), np.array([0.5, 1.2]), np.array(scale)
    u = np.array([0.7, -1.5])
    step = 1e-5
    jacobian = factor * (np.tanh(u + step) - np.tanh(u - step)) / (2 * step)
    expected = np.sum(stats.norm.logpdf(u, mean, std) - np.log(jacobian))
    unit = ops.tanh_gaussian_log_prob(jnp.asarray(u), jnp.asarray(mean), jnp.log(jnp.asarray(std)))
    assert float(ops.env_log_prob(unit, jnp.asarray(factor))) == pytest.approx(expected, rel=1e-4)


def test_the_density_of_the_squashed_gaussian_integrates_to_one() -> None:
    actions = np.linspace(-1, 1, 20_001)[1:-1]
    u = jnp.asarray(np.arctanh(actions))[:, None]
    log_prob = ops.tanh_gaussian_log_prob(u, jnp.full_like(u, 0.4), jnp.full_like(u, -0.5))
    assert np.trapezoid(np.exp(log_prob), actions) == pytest.approx(1.0, abs=2e-3)


def test_sample_and_density_agree() -> None:
    mean, log_std = jnp.array([[0.2, -0.4], [0.0, 1.0]]), jnp.array([[-1.0, 0.3], [0.0, -2.0]])
    noise = jnp.array([[0.5, -1.0], [2.0, 0.0]])
    u = mean + jnp.exp(log_std) * noise
    action, log_prob = ops.tanh_gaussian_sample(noise, mean, log_std)
    np.testing.assert_allclose(action, np.tanh(u), rtol=1e-6)
    np.testing.assert_allclose(log_prob, ops.tanh_gaussian_log_prob(u, mean, log_std), rtol=1e-4)


def test_log_of_the_slope_of_tanh_and_its_gradient_against_double_precision() -> None:
    u = np.concatenate([np.linspace(-20, 20, 4001), [0.0, 1e-4, -1e-4, 80.0, -80.0]])
    exact = 2 * (math.log(2) - np.abs(u) - np.log1p(np.exp(-2 * np.abs(u))))
    value, gradient = jax.vmap(jax.value_and_grad(ops.log_tanh_slope))(jnp.asarray(u, jnp.float32))
    # The error is that of a float of this size, with 3e-7 where the value is near zero.
    np.testing.assert_allclose(value, exact, rtol=3e-7, atol=3e-7)
    np.testing.assert_allclose(gradient, -2 * np.tanh(u), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mean", [-40.0, 40.0])
def test_log_prob_keeps_its_value_and_gradient_at_saturation(mean: float) -> None:
    value, gradient = jax.value_and_grad(
        lambda m: ops.tanh_gaussian_sample(jnp.zeros((1, 1)), m, jnp.zeros((1, 1)))[1][0]
    )(jnp.full((1, 1), mean))
    # log π = −½ log 2π − 2 log 2 + 2|u| there: it grows by 2 per unit of |u|
    assert float(value) == pytest.approx(2 * 40.0 - 2 * math.log(2) - 0.5 * math.log(2 * math.pi), rel=1e-6)
    assert float(gradient[0, 0]) == pytest.approx(math.copysign(2.0, mean), rel=1e-5)


def test_smallest_standard_deviation_keeps_the_density_finite() -> None:
    log_std = jnp.full((1, 1), -20.0)
    _, log_prob = ops.tanh_gaussian_sample(jnp.ones((1, 1)), jnp.ones((1, 1)), log_std)
    expected = -0.5 + 20.0 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(1.0) ** 2)
    assert float(log_prob[0]) == pytest.approx(expected, rel=1e-5)


def test_temperature_falls_when_the_entropy_is_above_its_target() -> None:
    gradient = jax.grad(ops.temperature_loss)
    # entropy −log π = 3 and target 1: log α must fall, by the excess of 2 per unit of step
    assert float(gradient(jnp.asarray(0.3), jnp.full(4, -3.0), 1.0)) == pytest.approx(2.0)
    assert float(gradient(jnp.asarray(0.3), jnp.full(4, 3.0), -1.0)) == pytest.approx(-2.0)
    into_policy = jax.grad(lambda p: ops.temperature_loss(jnp.asarray(0.3), p, -1.0))(jnp.ones(4))
    np.testing.assert_array_equal(into_policy, 0.0)


def test_polyak_by_hand_over_a_tree() -> None:
    target = {"w": jnp.array([1.0, 2.0]), "b": jnp.asarray(0.0)}
    online = {"w": jnp.array([3.0, 2.0]), "b": jnp.asarray(4.0)}
    mixed = ops.polyak(target, online, 0.25)
    np.testing.assert_allclose(mixed["w"], [1.5, 2.0])
    assert float(mixed["b"]) == 1.0
    with pytest.raises(ValueError):
        ops.polyak(target, {"w": online["w"]}, 0.25)


# --- acting noise -----------------------------------------------------------------------------------------------------


def spectrum_slope(noise: np.ndarray) -> float:
    power = np.mean(np.abs(np.fft.rfft(noise, axis=0)) ** 2, axis=1)[1:-1]
    return float(np.polyfit(np.log(np.fft.rfftfreq(len(noise))[1:-1]), np.log(power), 1)[0])


@pytest.mark.parametrize("steps", [1000, 999])
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_noise_has_unit_variance_and_the_slope_of_its_colour(beta: float, steps: int) -> None:
    draw = jax.jit(ops.colored_noise, static_argnums=(1, 2, 3))
    noise = np.asarray(draw(jax.random.key(3), beta, steps, 400))
    assert noise.shape == (steps, 400)
    assert noise.var(axis=0).mean() == pytest.approx(1.0, abs=0.03)  # about each sequence's own mean
    assert noise.mean() == pytest.approx(0.0, abs=0.1)
    assert spectrum_slope(noise) == pytest.approx(-beta, abs=0.1)


def test_dimensions_and_keys_of_noise_are_independent() -> None:
    noise = np.asarray(ops.colored_noise(jax.random.key(0), 1.0, 4000, 2))
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.5
    assert not np.allclose(noise, ops.colored_noise(jax.random.key(1), 1.0, 4000, 2))


# --- shapes -----------------------------------------------------------------------------------------------------------

ROW, COLUMN = jnp.ones(3), jnp.ones((3, 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.bellman_target(ROW, ROW, COLUMN),
        lambda: ops.blend(ROW, COLUMN, 0.5),
        lambda: ops.blend(ROW, ROW, jnp.ones(2)),
        lambda: ops.blend_fixed(ROW, ROW, ROW),
        lambda: ops.blend_min(ROW, COLUMN),
        lambda: ops.blend_max(ROW, COLUMN),
        lambda: ops.ada_ratio(ROW, COLUMN),
        lambda: ops.ada_batch_ratio(ROW, ROW),
        lambda: ops.expectile_loss(ROW, ROW),
        lambda: ops.expectile_value_loss(ROW, COLUMN, 0.7),
        lambda: ops.sparse_loss(ROW, COLUMN, 1.0),
        lambda: ops.exponential_loss(ROW, COLUMN, 1.0),
        lambda: ops.entropy_value(ROW, COLUMN, 1.0),
        lambda: ops.tanh_gaussian_log_prob(COLUMN, ROW, ROW),
        lambda: ops.tanh_gaussian_sample(ROW, COLUMN, COLUMN),
        lambda: ops.env_log_prob(ROW, jnp.ones(())),
        lambda: ops.temperature_loss(ROW, ROW, -1.0),
        lambda: ops.colored_noise(jax.random.key(0), 1.0, 1, 1),
    ],
)
def test_wrong_shapes_raise_instead_of_broadcasting(call: object) -> None:
    with pytest.raises(ValueError, match=r"shape|scalar|at least"):
        jax.eval_shape(call)  # type: ignore[arg-type]
