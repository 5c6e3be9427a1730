"""The BEE operator and its parts as pure functions of arrays: no networks, no state, nothing of ours imported.

    y = λ · T_exploit + (1 − λ) · T_explore
        T_exploit = r + γ m V(s')                        V: in-sample maximum of Q, fitted by an exploit loss
        T_explore = r + γ m E_π[Q(s', a') − ω(s', a')]   ω: exploration term (entropy, smoothing, none)

Ji et al., "Seizing Serendipity", ICML 2024. Per-sample arrays are `[B]`; a mismatch such as `[B]` against `[B, 1]`
raises `ValueError` while tracing instead of broadcasting to `[B, B]`.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

Tree = TypeVar("Tree")
Scalar = Array | float

_LOG_TWO = math.log(2.0)
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SMALLEST_DELTA = 1e-7  # the floor of |δ| in the denominator of ada's ratio


def _same_shape(**arrays: Any) -> None:
    """Raise unless all named arrays have one shape."""
    shapes = {name: jnp.shape(array) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ValueError(f"these must have the same shape: {found}")


def _scalar(**arrays: Any) -> None:
    """Raise unless all named arrays are scalars."""
    for name, array in arrays.items():
        if jnp.shape(array) != ():
            raise ValueError(f"{name} must be a scalar, but has shape {list(jnp.shape(array))}")


# --- targets ---------------------------------------------------------------------------------------------------------


def bellman_target(reward: Array, discount: Array, next_value: Array) -> Array:
    """Return `r + γ m v(s')` without gradient; `discount` already contains γ and the terminal mask m."""
    _same_shape(reward=reward, discount=discount, next_value=next_value)
    return stop_gradient(reward + discount * next_value)


# --- exploit: losses whose minimiser V(s) is an in-sample maximum of Q(s, ·) ------------------------------------------


def expectile_loss(diff: Array, expectile: Scalar) -> Array:
    """Return `|τ − 1(u < 0)| u²` for `u = Q − V` (IQL, Kostrikov et al. 2022, eq. 5): τ = .5 is the mean, 1 the max."""
    _scalar(expectile=expectile)
    return jnp.where(diff >= 0, expectile, 1.0 - expectile) * jnp.square(diff)


def expectile_value_loss(q: Array, v: Array, expectile: Scalar) -> Array:
    """Return the expectile loss of `V` against `sg Q`."""
    _same_shape(q=q, v=v)
    return expectile_loss(stop_gradient(q) - v, expectile)


def sparse_loss(q: Array, v: Array, alpha: Scalar) -> Array:
    """Return `relu(x)² + V/α`, `x = 1 + (Q − V)/2α` (SQL, Xu et al. 2023); stationary where `E relu(x) = 1`.

    The BEE paper prints `V/2α`, whose stationary point `E relu(x) = ½` is not SQL's; this is the SQL authors' form.
    """
    _same_shape(q=q, v=v)
    _scalar(alpha=alpha)
    x = 1.0 + (stop_gradient(q) - v) / (2.0 * alpha)
    return jnp.square(jax.nn.relu(x)) + v / alpha


def exponential_loss(q: Array, v: Array, alpha: Scalar, cap: float = 5.0) -> Array:
    """Return `e^(x−M) + e^(−M) V/α`, `x = min((Q − V)/α, cap)`, `M = sg max(max_batch x, −1)` (EQL, Xu et al. 2023).

    The factor `e^(−M)` scales the gradient of the plain `e^x + V/α` into float32's range. The cap bounds the value
    alone: with its gradient cut off, only `+V/α` would act where `Q − V > cap·α` and V would run away downwards.
    """
    _same_shape(q=q, v=v)
    _scalar(alpha=alpha)
    free = (stop_gradient(q) - v) / alpha
    x = free + stop_gradient(jnp.minimum(free, cap) - free)
    shift = stop_gradient(jnp.maximum(jnp.max(x), -1.0))
    return jnp.exp(x - shift) + jnp.exp(-shift) * v / alpha


@runtime_checkable
class ExploitLoss(Protocol):
    """The loss of V per sample; `strength` is the expectile, or the regularisation weight α of SQL and EQL."""

    def __call__(self, q: Array, v: Array, strength: Scalar, /) -> Array:
        """Return `[B]` losses."""
        ...


EXPLOIT: dict[str, ExploitLoss] = {
    "expectile": expectile_value_loss,
    "sparse": sparse_loss,
    "exponential": exponential_loss,
}


# --- blends: how much of T_exploit and of T_explore enters the target -------------------------------------------------


def blend(exploit: Array, explore: Array, lam: Scalar) -> Array:
    """Return the BEE target `λ T_exploit + (1 − λ) T_explore`; λ is a scalar or has one entry per sample."""
    _same_shape(exploit=exploit, explore=explore)
    if jnp.ndim(lam):
        _same_shape(exploit=exploit, lam=lam)
    return lam * exploit + (1.0 - lam) * explore


def blend_fixed(exploit: Array, explore: Array, lam: Scalar) -> tuple[Array, Array]:
    """Return the target with one λ for all samples, and that λ per sample."""
    _scalar(lam=lam)
    return blend(exploit, explore, lam), jnp.full_like(exploit, lam)


def blend_min(exploit: Array, explore: Array) -> tuple[Array, Array]:
    """Return the smaller target of each sample, and `λ = 1(T_exploit ≤ T_explore)`."""
    _same_shape(exploit=exploit, explore=explore)
    return jnp.minimum(exploit, explore), (exploit <= explore).astype(exploit.dtype)


def blend_max(exploit: Array, explore: Array) -> tuple[Array, Array]:
    """Return the larger target of each sample, and `λ = 1(T_exploit ≥ T_explore)`."""
    _same_shape(exploit=exploit, explore=explore)
    return jnp.maximum(exploit, explore), (exploit >= explore).astype(exploit.dtype)


def ada_ratio(delta: Array, previous: Array) -> Array:
    """Return `λ = sg clip(δ / g(δ_prev), 0, 1)`, `g(x) = sign(x) max(|x|, 1e-7)`, sample by sample and with sign.

    BAC takes `δ = Q̄_min(s, a) − Q_min(s, a)`, H2O+ `δ = Q̄_min(s', ã') − α log π − Q_min(s, a)`; `previous` is the δ of
    the last gradient step, ones at first. Slot i of two batches holds unrelated transitions, so λ behaves like a
    random variable with a mean of .4 to .5.
    """
    _same_shape(delta=delta, previous=previous)
    sign = jnp.where(previous < 0, -1.0, 1.0)
    denominator = sign * jnp.maximum(jnp.abs(previous), _SMALLEST_DELTA)
    return stop_gradient(jnp.clip(delta / denominator, 0.0, 1.0))


def ada_batch_ratio(error: Array, previous: Array) -> tuple[Array, Array]:
    """Return `λ = sg clip(m / m_prev, 0, 1)` for `m = mean |error|`, once per sample, and m as the next `previous`.

    `previous` is a scalar. As two successive batches have almost equal mean errors, expect λ ≈ 1.
    """
    _scalar(previous=previous)
    mean = stop_gradient(jnp.mean(jnp.abs(error)))
    lam = jnp.clip(mean / jnp.maximum(previous, _SMALLEST_DELTA), 0.0, 1.0)
    return stop_gradient(jnp.full_like(error, lam)), mean


# --- explore: the terms ω, and the policy they look at ----------------------------------------------------------------


def entropy_value(q: Array, log_prob: Array, alpha: Scalar) -> Array:
    """Return the soft value `Q(s, a) − α log π(a|s)` (SAC, Haarnoja et al. 2018b, eq. 3)."""
    _same_shape(q=q, log_prob=log_prob)
    _scalar(alpha=alpha)
    return q - alpha * log_prob


def smoothing_noise(noise: Array, sigma: Scalar, clip: Scalar) -> Array:
    """Return `clip(σ ε, −c, c)` of standard normal ε: target policy smoothing (TD3, Fujimoto et al. 2018, section 5.3)."""
    return jnp.clip(sigma * noise, -clip, clip)


@jax.custom_jvp
def log_tanh_slope(u: Array) -> Array:
    """Return `log(1 − tanh² u)`, which neither overflows nor loses its gradient `−2 tanh u` at saturation."""
    # 2 (log 2 − |u| − log(1 + e^{−2|u|})). As the exponential lies in (0, 1], `log` serves as well as `log1p`, whose
    # kernel on the CPU takes twice as long.
    size = jnp.abs(u)
    return 2.0 * (_LOG_TWO - size - jnp.log(1.0 + jnp.exp(-2.0 * size)))


@log_tanh_slope.defjvp
def _log_tanh_slope_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (u,), (du,) = primals, tangents
    return log_tanh_slope(u), -2.0 * jnp.tanh(u) * du


def _squashed_log_prob(noise: Array, u: Array, log_std: Array) -> Array:
    """Return `Σ log N(u; μ, σ) − log(1 − tanh² u)` from the standardised `noise = (u − μ)/σ`."""
    log_normal = -0.5 * jnp.square(noise) - log_std - _HALF_LOG_TWO_PI
    return jnp.sum(log_normal - log_tanh_slope(u), axis=-1)


def tanh_gaussian_log_prob(u: Array, mean: Array, log_std: Array) -> Array:
    """Return `log π(a)` of `a = tanh u` in [-1, 1] units, summed over the last axis (SAC, appendix C)."""
    _same_shape(u=u, mean=mean, log_std=log_std)
    return _squashed_log_prob((u - mean) * jnp.exp(-log_std), u, log_std)


def tanh_gaussian_sample(noise: Array, mean: Array, log_std: Array) -> tuple[Array, Array]:
    """Return `a = tanh(μ + σ ε)` and its `log π(a)` for standard normal ε, differentiable in μ and σ."""
    _same_shape(mean=mean, log_std=log_std, noise=noise)
    u = mean + jnp.exp(log_std) * noise
    return jnp.tanh(u), _squashed_log_prob(noise, u, log_std)


def env_log_prob(log_prob: Array, scale: Array) -> Array:
    """Return the log density in the environment's units, `log π_unit − Σ log scale`, of `a_env = scale · a + bias`."""
    if jnp.ndim(scale) != 1:
        raise ValueError(f"scale must have one entry per action dimension, but has shape {list(jnp.shape(scale))}")
    return log_prob - jnp.sum(jnp.log(scale))


def temperature_loss(log_alpha: Array, log_prob: Array, target_entropy: Scalar) -> Array:
    """Return `−log α · sg mean(log π + H̄)` (SAC's automatic temperature, linear in log α)."""
    _scalar(log_alpha=log_alpha, target_entropy=target_entropy)
    return -log_alpha * stop_gradient(jnp.mean(log_prob + target_entropy))


def polyak(target: Tree, online: Tree, tau: Scalar) -> Tree:
    """Return `τ φ + (1 − τ) φ̄` leaf by leaf, for the target network φ̄ of φ."""
    return jax.tree.map(lambda slow, fast: tau * fast + (1.0 - tau) * slow, target, online)


# --- acting noise -----------------------------------------------------------------------------------------------------


def colored_noise(key: Array, beta: float, steps: int, dims: int) -> Array:
    """Return `[steps, dims]` Gaussian noise of unit variance with power spectrum `f^−β`; β = 1 is pink, 0 white.

    Timmer and König 1995, as used for exploration by Eberhard et al. 2023. `steps` and `dims` are static under jit.
    """
    if steps < 2 or dims < 1:
        raise ValueError(f"need at least 2 steps and 1 dimension, not {steps} and {dims}")
    frequency = jnp.fft.rfftfreq(steps)
    amplitude = jnp.maximum(frequency, 1.0 / steps) ** (-beta / 2.0)
    # The real and the imaginary part carry half of a bin's power each. DC and, for an even length, Nyquist are real and
    # have it all.
    bins = amplitude.shape[0]
    real_scale, imag_scale = amplitude, amplitude.at[0].set(0.0)
    real_scale = real_scale.at[0].multiply(math.sqrt(2.0))
    if steps % 2 == 0:
        real_scale = real_scale.at[-1].multiply(math.sqrt(2.0))
        imag_scale = imag_scale.at[-1].set(0.0)
    normal = jax.random.normal(key, (2, dims, bins))
    sequence = jnp.fft.irfft(jax.lax.complex(real_scale * normal[0], imag_scale * normal[1]), n=steps)
    weight = amplitude[1:].at[-1].multiply((1 + steps % 2) / 2)
    sigma = 2.0 * jnp.sqrt(jnp.sum(jnp.square(weight))) / steps
    return (sequence / sigma).T
