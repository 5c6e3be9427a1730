"""A worker of the model-based benchmark: the same parts in plain PyTorch, written from what mbrl-lib's loops do.

The ensemble is one batched product per layer; a rollout shuffles its rows and gives each elite an equal share, with the policy's
actions and the next states going through NumPy between two steps; the updates are those of a twin-critic SAC with a
tuned temperature, one at a time, with a Polyak step each.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import numpy as np
import torch
from model_based_ours import serve
from model_based_sizes import Sizes
from throughput_link import Parent
from torch import Tensor, nn
from torch.nn import functional

PACKAGES = ("torch", "numpy")


class Ensemble(nn.Module):
    """Gaussian members of four SiLU layers with learnt bounds of the log-variance."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        out = sizes.obs_dim + 1
        widths = (sizes.obs_dim + sizes.action_dim, *(sizes.hidden,) * 4, 2 * out)
        pairs = list(itertools.pairwise(widths))
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(sizes.members, a, b) / (2 * math.sqrt(a))) for a, b in pairs)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(sizes.members, 1, b)) for _, b in pairs)
        self.low, self.high = nn.Parameter(torch.full((1, out), -10.0)), nn.Parameter(torch.full((1, out), 0.5))

    def forward(self, x: Tensor, members: Any = slice(None)) -> tuple[Tensor, Tensor]:
        last = len(self.weights) - 1
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias[members], x, weight[members])
            x = functional.silu(x) if depth < last else x
        mean, raw = x.chunk(2, dim=-1)
        raw = self.high - functional.softplus(self.high - raw)
        return mean, self.low + functional.softplus(raw - self.low)


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two ReLU layers."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Torch:
    """Model, policy and critics at these sizes."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        draw, d, m = np.random.default_rng(0), sizes.obs_dim, sizes.action_dim
        self.obs = draw.normal(size=(sizes.rows, d)).astype(np.float32)
        self.action = draw.uniform(-1, 1, (sizes.rows, m)).astype(np.float32)
        self.target = draw.normal(size=(sizes.rows, d + 1)).astype(np.float32)
        self.draw = draw
        self.model = Ensemble(sizes)
        self.model_adam = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=5e-5)
        self.policy = perceptron(d, sizes.policy, 2 * m)
        self.critics = nn.ModuleList(perceptron(d + m, sizes.policy, 1) for _ in range(2))
        self.targets = nn.ModuleList(perceptron(d + m, sizes.policy, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), lr=3e-4)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=3e-4)
        self.index = draw.integers(0, sizes.rows, (sizes.members, 64 * sizes.batch))

    def model_batches(self) -> int:
        inputs = np.concatenate([self.obs, self.action], axis=1)
        for number in range(64):
            index = self.index[:, number * self.sizes.batch : (number + 1) * self.sizes.batch]
            x, t = torch.from_numpy(inputs[index]), torch.from_numpy(self.target[index])
            mean, log_var = self.model(x)
            nll = ((mean - t).square() * torch.exp(-log_var) + log_var).mean((1, 2)).sum()
            loss = nll + 0.01 * (self.model.high.sum() - self.model.low.sum())
            self.model_adam.zero_grad()
            loss.backward()
            self.model_adam.step()
        return 64

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.policy(obs).chunk(2, dim=-1)
        std = log_std.clamp(-20, 2).exp()
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + std * noise)
        density = -0.5 * noise.square() - std.log() - 0.5 * math.log(2 * math.pi)
        return action, (density - torch.log(1 - action.square() + 1e-6)).sum(-1, keepdim=True)

    def rollout(self) -> int:
        sizes = self.sizes
        obs = np.resize(self.obs, (sizes.branches, sizes.obs_dim))
        with torch.no_grad():
            action = self.act(torch.from_numpy(obs))[0].numpy()
            x = torch.from_numpy(np.concatenate([obs, action], axis=1))
            order = torch.randperm(sizes.branches)
            shared = x[order].view(sizes.elites, -1, x.shape[1])
            mean, log_var = self.model(shared, slice(0, sizes.elites))
            drawn = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
            back = torch.empty_like(drawn.view(sizes.branches, -1))
            back[order] = drawn.view(sizes.branches, -1)
            change = back.numpy()
        next_obs, reward = obs + change[:, :-1], change[:, -1]
        _ = next_obs[:, 0] > 1e9
        return len(reward)

    def updates(self) -> int:
        for _ in range(self.sizes.updates):
            index = self.draw.integers(0, self.sizes.rows, self.sizes.batch)
            obs, action = torch.from_numpy(self.obs[index]), torch.from_numpy(self.action[index])
            reward, next_obs = torch.from_numpy(self.target[index, :1]), obs
            alpha = self.log_alpha.exp().detach()
            with torch.no_grad():
                taken, density = self.act(next_obs)
                pair = torch.cat([next_obs, taken], dim=1)
                y = reward + 0.99 * (torch.min(*(net(pair) for net in self.targets)) - alpha * density)
            here = torch.cat([obs, action], dim=1)
            loss = sum(functional.mse_loss(net(here), y) for net in self.critics)
            self.critic_adam.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            self.critic_adam.step()
            own, density = self.act(obs)
            pair = torch.cat([obs, own], dim=1)
            policy_loss = (alpha * density - torch.min(*(net(pair) for net in self.critics))).mean()
            self.policy_adam.zero_grad()
            policy_loss.backward()
            self.policy_adam.step()
            alpha_loss = -(self.log_alpha * (density + self.sizes.action_dim).detach()).mean()
            self.alpha_adam.zero_grad()
            alpha_loss.backward()
            self.alpha_adam.step()
            with torch.no_grad():
                for slow, fast in zip(self.targets.parameters(), self.critics.parameters()):
                    slow.mul_(0.995).add_(0.005 * fast)
        return self.sizes.updates


def main() -> None:
    """Answer until the input ends."""
    parent, spec = Parent(), json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    serve(parent, Torch(Sizes(**spec["sizes"])), PACKAGES)


if __name__ == "__main__":
    main()
