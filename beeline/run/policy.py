"""A policy alone: a small file that acts without the buffer, the critics or the environment."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beeline import agents, files, trees
from beeline.agents.base import Agent, Spaces
from beeline.errors import BeelineError, CheckpointError
from beeline.evaluate import Player
from beeline.memory import Clock

FORMAT = 1
META = "meta.json"  # the member that holds the description


@dataclasses.dataclass
class Policy:
    """A trained policy: `predict` takes raw observations and returns actions in the environment's own units."""

    agent: Agent
    policy: Any  # what acting reads
    meta: dict[str, Any]
    seed: int = 0
    calls: int = 0

    def predict(self, obs: Any, state: Any = None, deterministic: bool = True) -> tuple[np.ndarray, Any]:
        """The action for one observation `[obs_dim]`, a batch `[n, obs_dim]`, or a goal env's dict of either."""
        flat, spaces = flatten(obs), self.agent.task.spaces
        if flat.shape[-1] != spaces.obs_dim:
            raise CheckpointError(f"this policy reads {spaces.obs_dim} numbers per observation, but got {flat.shape[-1]}.")
        batch = flat.reshape(-1, spaces.obs_dim)
        mode = "greedy" if deterministic else "sample"
        self.calls += 1
        clock, first = Clock(self.seed, decisions=self.calls), np.ones(len(batch), bool)
        action = np.asarray(self.agent.act(self.policy, self.agent.begin(len(batch)), batch, first, clock, mode)[0])
        low, high = np.array(spaces.action_low), np.array(spaces.action_high)
        scaled = np.clip((low + high) / 2 + action * (high - low) / 2, low, high).astype(np.float32)
        return scaled.reshape(*flat.shape[:-1], -1), state

    def player(self, seed: int = 0) -> Player:
        """The policy at play, for evaluation and video."""
        return Player(self.agent, self.policy, seed)

    def save(self, path: str | Path) -> Path:
        """Write the policy file."""
        return save_arrays(Path(path), trees.to_arrays(self.policy), self.meta)


@dataclasses.dataclass(frozen=True)
class PolicyFiles:
    """Writes the policies of a run into its folder."""

    folder: Path
    meta: dict[str, Any]

    def __call__(self, name: str, arrays: dict[str, np.ndarray], step: int, score: float | None) -> None:
        """Write a policy file of that name."""
        save_arrays(self.folder / name, arrays, self.meta | {"step": step, "eval_return": score})


def flatten(obs: Any) -> np.ndarray:
    """An observation as the agent sees it: dicts of goal envs in the documented order, float32."""
    if isinstance(obs, Mapping):
        from beeline.envs.adapter import key_order

        return np.concatenate([np.asarray(obs[key], np.float32) for key in key_order(obs)], axis=-1)
    return np.asarray(obs, np.float32)


def describe(algo: str, env_id: str, agent: Agent, **more: Any) -> dict[str, Any]:
    """What a policy file says of itself: enough to build the agent that runs it."""
    return {
        "format": FORMAT,
        "algo": algo,
        "env": env_id,
        "agent": agent.config.to_dict(),
        "spaces": dataclasses.asdict(agent.task.spaces),
        **more,
    }


def save_arrays(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Write a policy file atomically: arrays and a JSON description, nothing executable."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{META: text}, **arrays)
    files.write_atomic(path, buffer.getbuffer())
    return path


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description of a policy file."""
    try:
        arrays = files.read_npz(path.read_bytes())
        meta = json.loads(arrays.pop(META).astype(np.uint8).tobytes())
    except FileNotFoundError:
        raise CheckpointError(f"there is no policy file {path}.") from None
    except KeyError:
        raise CheckpointError(f"{path} is not a policy file: it has no description.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not an intact policy file ({error}).") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a policy file of format {FORMAT}.")
    return arrays, meta


def load_policy(path: str | Path, **objects: Any) -> Policy:
    """A policy from its file; objects that were handed over in Python, such as a network, are given again."""
    arrays, meta = read_arrays(Path(path))
    try:
        algorithm, box = agents.get(meta["algo"]), meta["spaces"]
        spaces = Spaces(box["obs_dim"], tuple(box["action_low"]), tuple(box["action_high"]))
        agent = algorithm.build(algorithm.config.recorded(meta["agent"], objects), spaces)
        policy = trees.from_arrays(agent.blank_policy(), arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be used: its description is not complete ({error!r}).") from None
    except BeelineError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None
    return Policy(agent, policy, meta)
