"""A policy alone: a small file that acts without the buffer, the critics or the environment.

A policy file may come from anywhere. Nothing in it is executed, and its description is held against its arrays before anything
is built from it, so a file asks for no more time and memory than its size allows.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beeline import agents, files, npz, trees
from beeline.agents.base import Agent, Spaces
from beeline.config import Config
from beeline.envs import registry
from beeline.errors import BeelineError, CheckpointError, UnreadableError
from beeline.evaluate import Player
from beeline.memory import Clock
from beeline.options import TrainConfig

FORMAT = 1
META = "meta.json"  # the member that holds the description
META_BYTES = 1 << 20  # of the longest description; ours have a thousandth of it
BESIDE = 8  # times the numbers and layers of a policy that other networks of its learner may have
SMALL = 1 << 21, 64  # numbers and layers that are not worth a question


@dataclasses.dataclass
class Policy:
    """A trained policy: `predict` takes raw observations and returns actions in the environment's own units."""

    agent: Agent
    policy: Any  # what acting reads
    meta: dict[str, Any]
    seed: int = 0
    calls: int = 0

    def __repr__(self) -> str:
        spaces, step, score = self.agent.task.spaces, self.meta.get("step"), self.meta.get("eval_return")
        known = [] if step is None else [f"step {step:,}"]
        known += [] if score is None else [f"return {score:,.1f}"]
        known += [f"{spaces.obs_dim} observations", f"{spaces.action_dim} actions"]
        return f"Policy({self.meta.get('algo', 'a method')} on {self.meta.get('env', 'a task')}, {', '.join(known)})"

    def predict(self, obs: Any, state: Any = None, deterministic: bool = True) -> tuple[np.ndarray, Any]:
        """The action for one observation `[obs_dim]`, a batch `[n, obs_dim]`, or a goal env's dict of either."""
        flat, spaces = flatten(obs), self.agent.task.spaces
        if flat.shape[-1] != spaces.obs_dim:
            raise CheckpointError(f"this policy reads {spaces.obs_dim} numbers per observation, but got {flat.shape[-1]}.")
        batch = flat.reshape(-1, spaces.obs_dim)
        mode = "greedy" if deterministic else "sample"
        self.calls += 1
        clock, first = Clock(self.seed, decisions=self.calls), np.ones(len(batch), bool)
        action = _finite(np.asarray(self.agent.act(self.policy, self.agent.begin(len(batch)), batch, first, clock, mode)[0]))
        low, high = np.array(spaces.action_low), np.array(spaces.action_high)
        scaled = np.clip((low + high) / 2 + action * (high - low) / 2, low, high).astype(np.float32)
        return scaled.reshape(*flat.shape[:-1], -1), state

    def on(self, env: Any) -> Policy:
        """The same policy, told what is known of a task beside its spaces: a planner acts by where episodes end and by rewards.

        `env` is an environment, its id, or a factory; nothing of a policy that is a function of observations changes.
        """
        facts = registry.spec_of(env)
        task = dataclasses.replace(self.agent.task, terminated=facts.terminated, reward=facts.reward)
        return dataclasses.replace(self, agent=agents.get(self.meta["algo"]).build(self.agent.config, task))

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The greedy action in [-1, 1] for one adapted observation that begins an episode."""
        return self.player()(obs)

    def player(self, seed: int = 0) -> Callable[[np.ndarray], np.ndarray]:
        """The policy at play, for evaluation and video."""
        return _FinitePlayer(self.agent, self.policy, seed)

    def save(self, path: str | Path) -> Path:
        """Write the policy file."""
        return save_arrays(Path(path), trees.to_arrays(self.policy), self.meta)


class _FinitePlayer(Player):
    """Says so where a policy's own weights are at fault."""

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return _finite(super().__call__(obs))


def _finite(action: np.ndarray) -> np.ndarray:
    if not np.isfinite(action).all():
        raise CheckpointError("the policy's action is not finite: its weights or statistics are of no use at this observation.")
    return action


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


def read_arrays(path: Path, within: Path | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description of a policy file, both checked as far as they can be without each other.

    A link is followed wherever it leads, since the user named it; that of a run folder's file only inside the folder `within`.
    """
    try:
        arrays = npz.read(files.read_regular(path if within else Path(os.path.realpath(path)), within=within))
        text = arrays.pop(META)
        if text.nbytes > META_BYTES:
            raise ValueError(f"its description has {text.nbytes:,} bytes where {META_BYTES:,} are allowed")
        meta = json.loads(text.astype(np.uint8).tobytes())
    except FileNotFoundError:
        raise CheckpointError(f"there is no policy file {path}.") from None
    except KeyError:
        raise CheckpointError(f"{path} is not a policy file: it has no description.") from None
    except RecursionError:
        raise CheckpointError(f"{path} is not an intact policy file (its description is nested too deeply).") from None
    except (OSError, ValueError, UnreadableError) as error:
        raise CheckpointError(f"{path} is not an intact policy file ({error}).") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a policy file of format {FORMAT}.")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise CheckpointError(f"{path} cannot be used: its array {name!r} has NaN or infinity, so its actions would.")
    return arrays, meta


def load_policy(path: str | Path, within: Path | None = None, **objects: Any) -> Policy:
    """A policy from its file; `within` is the run folder whose file it is, if it is one's.

    Objects that were handed over in Python, such as a network, are given again.
    """
    arrays, meta = read_arrays(Path(path), within)
    try:
        _check_use(meta)
        algorithm, spaces = agents.get(meta["algo"]), _spaces(meta["spaces"])
        config = algorithm.config.recorded(meta["agent"], objects)
        _check_sizes(config, spaces, arrays)
        agent = algorithm.build(config, spaces)
        policy = trees.from_arrays(agent.blank_policy(), arrays)
        _check_statistics(arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be used: its description is not complete ({error!r}).") from None
    except (ArithmeticError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be used: its description has impossible numbers ({error}).") from None
    except BeelineError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None
    return Policy(agent, policy, meta)


# --- what a description may say ---------------------------------------------------------------------------------------


def _check_statistics(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse statistics of observations that no observations have."""
    for name, array in arrays.items():
        if name.endswith(("['count']", "['variance']")) and (array < 0).any():
            raise CheckpointError(f"its array {name!r} is negative, and no observations have such statistics.")


def _check_use(meta: Mapping[str, Any]) -> None:
    """What evaluation and video read: names are made of these, and files have them."""
    repeat, step = meta.get("repeat"), meta.get("step", 0)
    if not isinstance(meta["algo"], str) or not isinstance(meta["env"], str):
        raise CheckpointError("its description must name the algorithm and the environment.")
    if repeat is not None:
        TrainConfig.make({"repeat": repeat})
    if type(step) is not int or step < 0:
        raise CheckpointError(f"its step {step!r} is not a count.")


def _spaces(box: Mapping[str, Any]) -> Spaces:
    """The spaces of a description, if an environment can have such."""
    obs_dim, low, high = box["obs_dim"], box["action_low"], box["action_high"]
    bounds = [*low, *high]
    if type(obs_dim) is not int or obs_dim < 1:
        raise CheckpointError(f"its obs_dim = {obs_dim!r} is not a number of observations.")
    if not all(type(bound) in (int, float) and math.isfinite(bound) for bound in bounds):
        raise CheckpointError("its action bounds are not all finite numbers.")
    if not low or len(low) != len(high) or any(least > most for least, most in zip(low, high)):
        raise CheckpointError(f"its action bounds do not fit together: {len(low)} lower and {len(high)} upper ones.")
    return Spaces(obs_dim, tuple(low), tuple(high))


def _check_sizes(config: Config, spaces: Spaces, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a description of larger networks than the arrays are, before they are made.

    Whatever the algorithm, a policy with hidden layers h_1 … h_n has an array for each layer and, together,
    obs·h_1 + Σ h_i·h_{i+1} + h_n·act numbers. What its learner holds besides is of that order: of critics act·h_1 is counted, of
    what it keeps for each transition of a batch one number. The exact shapes are compared when the arrays are put in their place.
    """
    options = [getattr(config, name) for name in config.names()]
    networks = getattr(config, "policy_networks", 1)
    held, least = sum(array.size for array in arrays.values()), getattr(config, "batch_size", 0)
    for widths in (option for option in options if isinstance(option, tuple) and all(type(each) is int for each in option)):
        if len(widths) > BESIDE * len(arrays) + SMALL[1]:
            raise CheckpointError(f"it describes a network of {len(widths)} hidden layers, but has {len(arrays)} arrays.")
        sizes = [spaces.action_dim, *widths, spaces.action_dim]
        least += networks * (spaces.obs_dim * widths[0] + sum(left * right for left, right in itertools.pairwise(sizes)))
    if least > BESIDE * held + SMALL[0]:
        raise CheckpointError(f"it describes networks of {least:,} numbers or more, but its arrays have {held:,}.")
