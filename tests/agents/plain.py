"""One update of SAC, TD3, BAC, BEE-TD3 and MAXQ in plain NumPy and float64, step by step as the specification has it.

Nothing is shared with the library: no JAX, no automatic gradients (they are worked out by hand below), no batched
ensembles. A state is a dict of named arrays: `policy`, `critic` (both critics stacked), `value` and `alpha` have
`live`, `m`, `v` (Adam's moments) and, where there is one, `target` arrays each, and a `count` of Adam's steps:

    policy/live/0/w   critic/target/2/b   value/m/0/scale   alpha/live/log   critic/count   blend/delta   updates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Settings:
    """The hyperparameters of one update, named as the library's options are; defaults are the sources'."""

    algo: str
    network: str
    action_scale: tuple[float, ...]  # half the width of the env's action bounds
    tau: float = 0.005
    target_interval: int = 1
    policy_updates_per_step: float = 1.0  # per critic update: 0.5 is TD3's delay, 2 are two rounds each time
    actor_lr: float = 3e-4
    critic_lr: float = 3e-4
    value_lr: float = 3e-4
    alpha_lr: float = 3e-4
    alpha_beta1: float = 0.9
    entropy_units: str = "env"
    reward_scale: float = 1.0
    grad_clip: float | None = None
    smoothing_noise: float = 0.2
    smoothing_clip: float = 0.5
    blend: str = "fixed"
    expectile: float = 0.7
    v_entropy: bool = True
    targets: str = "blend"

    @property
    def deterministic(self) -> bool:
        return self.algo.endswith("td3")

    @property
    def policy_interval(self) -> int:
        return max(1, round(1 / self.policy_updates_per_step))

    @property
    def policy_rounds(self) -> int:
        return max(1, round(self.policy_updates_per_step))

    @property
    def bee(self) -> bool:
        return self.algo == "bac" or self.algo.startswith("bee-")


# --- networks ---------------------------------------------------------------------------------------------------------


def below(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    """The arrays whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


class Network:
    """A perceptron at a batch of inputs: its output, and on demand the gradients behind a gradient of that output.

    `mlp`: Linear-ReLU throughout. `bac`: Linear-LayerNorm-tanh, then Linear-ELU. `ln`: Linear-LayerNorm-ReLU throughout. The last
    layer is linear.
    """

    def __init__(self, weights: Arrays, x: np.ndarray, body: str) -> None:
        self.weights, self.body = weights, body
        self.depth = 1 + max(int(name.split("/")[0]) for name in weights)
        self.inputs: list[np.ndarray] = []
        self.before: list[np.ndarray] = []  # the linear parts' outputs
        x = np.asarray(x, np.float64)
        for layer in range(self.depth):
            self.inputs.append(x)
            z = x @ weights[f"{layer}/w"] + weights[f"{layer}/b"]
            self.before.append(z)
            x = z if layer == self.depth - 1 else self._activate(layer, z)
        self.output = x

    def _normal(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        deviation = np.sqrt(z.var(-1, keepdims=True) + (1e-6 if self.body == "ln" else 1e-5))
        return (z - z.mean(-1, keepdims=True)) / deviation, deviation

    def _activate(self, layer: int, z: np.ndarray) -> np.ndarray:
        if self.body == "mlp":
            return np.maximum(z, 0.0)
        if layer == 0 or self.body == "ln":
            scaled = self._normal(z)[0] * self.weights[f"{layer}/scale"] + self.weights[f"{layer}/shift"]
            return np.maximum(scaled, 0.0) if self.body == "ln" else np.tanh(scaled)
        return np.where(z > 0, z, np.expm1(np.minimum(z, 0.0)))

    def _activation_gradient(self, layer: int, g: np.ndarray, gradients: Arrays) -> np.ndarray:
        z, after = self.before[layer], self.inputs[layer + 1]
        if self.body == "mlp":
            return g * (z > 0)
        if layer > 0 and self.body == "bac":
            return g * np.where(z > 0, 1.0, np.exp(np.minimum(z, 0.0)))
        normal, deviation = self._normal(z)
        g = g * (after > 0) if self.body == "ln" else g * (1.0 - after**2)
        gradients[f"{layer}/scale"], gradients[f"{layer}/shift"] = (g * normal).sum(0), g.sum(0)
        g = g * self.weights[f"{layer}/scale"]
        return (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) / deviation

    def gradients(self, g: np.ndarray) -> tuple[Arrays, np.ndarray]:
        """The gradients of weights and input, from that of the output."""
        gradients: Arrays = {}
        for layer in reversed(range(self.depth)):
            if layer < self.depth - 1:
                g = self._activation_gradient(layer, g, gradients)
            gradients[f"{layer}/w"], gradients[f"{layer}/b"] = self.inputs[layer].T @ g, g.sum(0)
            g = g @ self.weights[f"{layer}/w"].T
        return gradients, g


def critics(state: Arrays, which: str, obs: np.ndarray, action: np.ndarray, body: str) -> list[Network]:
    """Q_1 and Q_2, live or target, at (s, a)."""
    stacked = below(state, f"critic/{which}/")
    x = np.concatenate([obs, action], -1)
    return [Network({name: w[i] for name, w in stacked.items()}, x, body) for i in range(len(stacked["0/b"]))]


def values(networks: list[Network]) -> np.ndarray:
    """Q_i(s, a), one row per critic."""
    return np.stack([network.output[:, 0] for network in networks])


def first_is_smaller(q: np.ndarray) -> float:
    """For which share of the samples min_i Q_i is Q_1: at 0 or 1, nobody could tell Q_min from one of the two."""
    return float((q.argmin(0) == 0).mean())


# --- policies ---------------------------------------------------------------------------------------------------------


class Sample:
    """ã = tanh(μ + σ ε) of a tanh-Gaussian policy, and its log π in the units the entropy is counted in."""

    def __init__(self, weights: Arrays, obs: np.ndarray, noise: np.ndarray, s: Settings) -> None:
        self.network, self.noise = Network(weights, obs, s.network), noise
        mean, self.raw = np.split(self.network.output, 2, axis=-1)
        self.log_std = np.clip(self.raw, -20.0, 2.0)
        u = mean + np.exp(self.log_std) * noise
        self.action = np.tanh(u)
        log_normal = -0.5 * noise**2 - self.log_std - 0.5 * np.log(2 * np.pi)
        self.log_prob = (log_normal + 2.0 * np.log(np.cosh(u))).sum(-1)  # 1 − tanh² u = cosh⁻² u
        if s.entropy_units == "env":
            self.log_prob = self.log_prob - np.log(s.action_scale).sum()

    def gradients(self, g_action: np.ndarray, g_log_prob: float) -> Arrays:
        """The weights' gradient from that of the action and that of each log π."""
        g_u = g_action * (1.0 - self.action**2) + g_log_prob * 2.0 * self.action  # d log π / du = 2 tanh u
        g_log_std = g_u * np.exp(self.log_std) * self.noise - g_log_prob
        g_log_std = g_log_std * ((self.raw > -20.0) & (self.raw < 2.0))
        return self.network.gradients(np.concatenate([g_u, g_log_std], -1))[0]


# --- steps ------------------------------------------------------------------------------------------------------------


def adam(state: Arrays, part: str, gradients: Arrays, rate: float, clip: float | None, beta1: float = 0.9) -> None:
    """One step of Adam (β₂ = .999, ε = 1e-8) on everything a part has, after bounding the gradient's norm over all of it."""
    if clip is not None:
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        gradients = {name: g * min(1.0, clip / norm) for name, g in gradients.items()}
    assert gradients.keys() == below(state, f"{part}/live/").keys()
    state[f"{part}/count"] = count = state[f"{part}/count"] + 1
    for name, g in gradients.items():
        m = beta1 * state[f"{part}/m/{name}"] + (1 - beta1) * g
        v = 0.999 * state[f"{part}/v/{name}"] + 0.001 * g**2
        state[f"{part}/m/{name}"], state[f"{part}/v/{name}"] = m, v
        step = m / (1 - beta1**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
        state[f"{part}/live/{name}"] = state[f"{part}/live/{name}"] - rate * step


def blend(state: Arrays, s: Settings, exploit: np.ndarray, explore: np.ndarray, deltas: Arrays) -> np.ndarray:
    """λ of each sample; the adaptive ones store this update's δ for the next."""
    if s.blend == "fixed":
        return np.full(exploit.shape, state["blend/lam"])
    if s.blend in ("min", "max"):
        return ((exploit <= explore) if s.blend == "min" else (exploit >= explore)).astype(np.float64)
    delta, previous = deltas[s.blend], state["blend/delta"]
    sign = np.where(previous < 0, -1.0, 1.0)
    state["blend/delta"] = delta
    return np.clip(delta / (sign * np.maximum(np.abs(previous), 1e-7)), 0.0, 1.0)


def update(before: Arrays, batch: Any, noise: Arrays, s: Settings, fit: Any = None) -> tuple[Arrays, dict[str, float]]:
    """The state after one update, and numbers of it; `batch.discount` is γⁿ m, 0 where the episode terminated.

    V is fitted on `fit` where there is one; with `targets` = split T_exploit is taken there too, in a loss of its own.
    """
    state = {name: np.asarray(array, np.float64) for name, array in before.items()}
    noise = {name: np.asarray(array, np.float64) for name, array in noise.items()}
    number, size = int(state["updates"]) + 1, len(batch.reward)
    obs, action, next_obs = (np.asarray(x, np.float64) for x in (batch.obs, batch.action, batch.next_obs))
    discount = np.asarray(batch.discount, np.float64)
    reward = s.reward_scale * np.asarray(batch.reward, np.float64)
    alpha = 0.0 if s.deterministic else np.exp(state["alpha/live/log"])

    # T_explore, with the target critics; TD3 looks at its target policy, SAC at the live one
    if s.deterministic:
        smoothing = np.clip(s.smoothing_noise * noise["explore"], -s.smoothing_clip, s.smoothing_clip)
        followed = np.tanh(Network(below(state, "policy/target/"), next_obs, s.network).output)
        next_action, next_log_prob = np.clip(followed + smoothing, -1.0, 1.0), np.zeros(size)
    else:
        sample = Sample(below(state, "policy/live/"), next_obs, noise["explore"], s)
        next_action, next_log_prob = sample.action, sample.log_prob
    next_q = values(critics(state, "target", next_obs, next_action, s.network))
    soft = next_q.min(0) - alpha * next_log_prob
    numbers = {"first/target": first_is_smaller(next_q)}
    if "maxq" in s.algo:  # the better of that and the action that was taken at s', where there is one
        taken = values(critics(state, "target", next_obs, batch.extras["next_action"], s.network)).min(0)
        numbers["taken"] = np.mean(batch.extras["next_action_valid"] & (taken > soft))
        soft = np.where(batch.extras["next_action_valid"], np.maximum(soft, taken), soft)
    explore = reward + discount * soft

    # y, with V as it is before its step
    live = critics(state, "live", obs, action, s.network)
    y, here_q = explore, values(critics(state, "target", obs, action, s.network)).min(0)
    if s.bee:
        exploit = reward + discount * Network(below(state, "value/live/"), next_obs, s.network).output[:, 0]
        worst = values(live).min(0)
        lam = blend(state, s, exploit, explore, {"ada": here_q - worst, "ada_h2o": soft - worst})
        y = lam * exploit + (1 - lam) * explore
        numbers["lambda"] = lam.mean()
    numbers["q/target"] = y.mean()

    # L_Q = Σ_i mean (Q_i − y)²; L_V = mean w u²
    gradients = [network.gradients(2 * (network.output - y[:, None]) / size)[0] for network in live]
    met = batch if fit is None else fit
    met_obs, met_action = np.asarray(met.obs, np.float64), np.asarray(met.action, np.float64)
    met_q = values(critics(state, "target", met_obs, met_action, s.network)).min(0)
    if s.targets == "split":
        lam = state["blend/lam"]
        next_v = Network(below(state, "value/live/"), met.next_obs, s.network).output[:, 0]
        exploit = s.reward_scale * np.asarray(met.reward, np.float64) + np.asarray(met.discount, np.float64) * next_v
        numbers |= {"q/exploit_target": exploit.mean(), "q/explore_target": explore.mean()}
        numbers["q/target"] = lam * exploit.mean() + (1 - lam) * explore.mean()
        here = critics(state, "live", met_obs, met_action, s.network)
        numbers["loss/critic"] = lam * ((values(here) - exploit) ** 2).mean(1).sum()
        numbers["loss/critic"] += (1 - lam) * ((values(live) - explore) ** 2).mean(1).sum()
        exploring = [network.gradients(2 * (network.output - explore[:, None]) / size)[0] for network in live]
        exploiting = [network.gradients(2 * (network.output - exploit[:, None]) / len(exploit))[0] for network in here]
        gradients = [{n: lam * a[n] + (1 - lam) * b[n] for n in a} for a, b in zip(exploiting, exploring)]
    stacked = {name: np.stack([g[name] for g in gradients]) for name in gradients[0]}
    adam(state, "critic", stacked, s.critic_lr, s.grad_clip)
    if s.bee:
        value = Network(below(state, "value/live/"), met_obs, s.network)
        u = met_q - value.output[:, 0]
        if s.v_entropy and not s.deterministic:  # u = Q̄_min − (V − α log π)
            u = u + alpha * Sample(below(state, "policy/live/"), met_obs, noise["exploit"], s).log_prob
        weight = np.where(u >= 0, s.expectile, 1 - s.expectile)
        adam(state, "value", value.gradients((-2 * weight * u / len(u))[:, None])[0], s.value_lr, s.grad_clip)

    # The policy under the new critics, then α with the log π of before the policy's step
    for turn in range(s.policy_rounds if number % s.policy_interval == 0 else 0):
        if s.deterministic:  # L_π = −mean Q_1(s, π(s))
            policy = Network(below(state, "policy/live/"), obs, s.network)
            chosen = np.tanh(policy.output)
            judges = critics(state, "live", obs, chosen, s.network)
            numbers["first/policy"] = first_is_smaller(values(judges))
            _, g = judges[0].gradients(np.full((size, 1), -1 / size))
            gradient = policy.gradients(g[:, obs.shape[-1] :] * (1 - chosen**2))[0]
            adam(state, "policy", gradient, s.actor_lr, s.grad_clip)
            continue
        alpha = np.exp(state["alpha/live/log"])
        sample = Sample(below(state, "policy/live/"), obs, noise[f"policy/{turn}"], s)
        judges = critics(state, "live", obs, sample.action, s.network)
        numbers["first/policy"] = first_is_smaller(values(judges))
        chosen_by = values(judges).argmin(0)  # L_π = mean [α log π − min_i Q_i]
        shares = [np.where(chosen_by == i, -1 / size, 0.0)[:, None] for i in range(len(judges))]
        g_action = sum(judge.gradients(g)[1][:, obs.shape[-1] :] for judge, g in zip(judges, shares))
        adam(state, "policy", sample.gradients(g_action, alpha / size), s.actor_lr, s.grad_clip)
        target_entropy = -float(action.shape[-1])
        gradient = {"log": -np.mean(sample.log_prob + target_entropy)}
        adam(state, "alpha", gradient, s.alpha_lr, s.grad_clip, s.alpha_beta1)

    if number % s.target_interval == 0:
        for name in [name for name in state if "/target/" in name]:
            state[name] = s.tau * state[name.replace("/target/", "/live/")] + (1 - s.tau) * state[name]
    state["updates"] = np.float64(number)
    return state, numbers
