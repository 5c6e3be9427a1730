"""A trained model as a file and as an object, asked in Python what comes next; actions are in the environment's own units."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from beeline import rng, trees
from beeline.dynamics import saved
from beeline.dynamics.ensemble import ACTIVATIONS, GaussianEnsemble, ModelState
from beeline.errors import CheckpointError, ConfigError
from beeline.networks import Draw

KIND = "model"
CHUNK = 1024  # rows that are asked about at once
WIDEST, DEEPEST, FASTEST = 1 << 14, 64, 1e6  # of the networks that a file may describe: widths, layers, rate and decays


class Prediction(NamedTuple):
    """What a model expects after (s, a), and how sure it is: mean and deviation of the mixture of its elites."""

    next_obs: NDArray[np.float32]  # [n, d]
    reward: NDArray[np.float32]  # [n]
    next_obs_std: NDArray[np.float32]
    reward_std: NDArray[np.float32]


class Imagined(NamedTuple):
    """What a model makes of action sequences."""

    obs: NDArray[np.float32]  # [n, k + 1, d], the first as given
    reward: NDArray[np.float32]  # [n, k]


@dataclasses.dataclass(frozen=True)
class World:
    """An ensemble, its numbers, and the task that it is a model of."""

    model: GaussianEnsemble
    state: ModelState
    task: str
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what it was trained on

    def __repr__(self) -> str:
        sizes = f"{self.model.obs_dim} observations, {self.model.action_dim} actions"
        return f"World({self.task}, {sizes}, {self.model.elites} of {self.model.members} members)"

    @functools.cached_property
    def elites(self) -> ModelState:
        """The members that predict."""
        return self.model.members_of(self.state, np.asarray(self.state.elites))

    def unit(self, action: Any) -> NDArray[np.float32]:
        """Actions in [-1, 1], as the networks see them, of those in the environment's own units."""
        low, high = np.array(self.action_low), np.array(self.action_high)
        return ((np.asarray(action, np.float64) - (low + high) / 2) / ((high - low) / 2)).astype(np.float32)

    def save(self, path: str | Path) -> Path:
        """Write it as a file of its own."""
        shape = {each.name: getattr(self.model, each.name) for each in dataclasses.fields(self.model)}
        about = {
            "task": self.task, "action_low": list(self.action_low), "action_high": list(self.action_high), "model": shape,
            "about": dict(self.about),
        }  # fmt: skip
        return saved.write(Path(path), KIND, trees.to_arrays(_numbers(self.state)), about)


def _numbers(state: ModelState) -> ModelState:
    """What predicts: no optimiser's moments, which a model that is done with learning does not need."""
    return state._replace(slot=state.slot._replace(opt=()))


def load(path: str | Path) -> World:
    """A model from its file; CheckpointError says what is wrong with one."""
    arrays, about = saved.read(Path(path), KIND)
    try:
        said = about["model"].items()
        shape: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said}
        model = GaussianEnsemble(**shape)
        _check(model, arrays)
        low, high = tuple(map(float, about["action_low"])), tuple(map(float, about["action_high"]))
        if not len(low) == len(high) == model.action_dim or not all(a < b for a, b in zip(low, high)):
            raise ValueError("its action bounds do not fit")
        state = trees.from_arrays(_numbers(model.init(Draw(0, "init/model"))), arrays)
        if sorted(set(state.elites.tolist())) != sorted(state.elites.tolist()) or not (
            (state.elites >= 0) & (state.elites < model.members)
        ).all():
            raise ValueError("its elites are not members")
        if not isinstance(about["task"], str) or not isinstance(about["about"], dict):
            raise ValueError("it does not say of what it is a model")
        return World(model, state, about["task"], low, high, about["about"])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(f"{path} cannot be used: its description is not complete ({error}).") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None


def _check(model: GaussianEnsemble, arrays: Mapping[str, NDArray]) -> None:
    """Refuse a description of networks that the arrays are not, before they are made."""
    sizes = (model.obs_dim, model.action_dim, model.members, *model.hidden)
    if any(type(each) is not int or not 0 < each <= WIDEST for each in sizes) or not 0 < len(model.hidden) <= DEEPEST:
        raise ValueError(f"sizes {sizes}")
    if type(model.elites) is not int or not 0 < model.elites <= model.members or model.activation not in ACTIVATIONS:
        raise ValueError(f"elites = {model.elites!r}, activation = {model.activation!r}")
    if any(type(each) not in (int, float) or not 0 <= each <= FASTEST for each in (model.rate, *model.decays)):
        raise ValueError(f"rate = {model.rate!r}, decay = {model.decay!r}")
    if any(type(each) is not bool for each in (model.bounds, model.reward_unit)):
        raise ValueError(f"bounds = {model.bounds!r}, reward_unit = {model.reward_unit!r}")
    widths = (model.inputs, *model.hidden, 2 * model.outputs)
    needed = model.members * sum(a * b for a, b in zip(widths, widths[1:]))
    if needed > sum(array.size for array in arrays.values()):
        raise ValueError(f"networks of {needed:,} numbers are described, and there are fewer")


# --- asking -----------------------------------------------------------------------------------------------------------


def predict(world: World, obs: Any, action: Any) -> Prediction:
    """What comes after observations `[n, d]` and actions `[n, m]` (or one of each), by all elites together.

    The deviation holds both kinds of doubt: how much the world scatters, and how far the members disagree.
    """
    obs, action, single = _asked(world, obs, action)
    mean, deviation = moments(world.model, world.elites, obs, world.unit(action))
    found = Prediction(obs + mean[:, :-1], mean[:, -1], deviation[:, :-1], deviation[:, -1])
    return Prediction(*(each[0] for each in found)) if single else found


def rollout(world: World, obs: Any, actions: Any, *, seed: int = 0, sample: bool = True) -> Imagined:
    """Follow actions `[n, k, m]` from observations `[n, d]` (or `[k, m]` from one): what the model imagines.

    Every step of every row is drawn by an elite of its own choice; without `sample`, all elites' mean is taken instead. The
    model knows nothing of ends: whether an episode would be over is the caller's to say.
    """
    actions = np.asarray(actions, np.float32)
    if actions.ndim != np.ndim(obs) + 1 or not actions.shape[-2]:
        raise ConfigError(
            f"a rollout takes actions [n, k, m] for observations [n, d], or [k, m] for one [d], and at least one step; "
            f"these are {list(actions.shape)} and {list(np.shape(obs))}."
        )
    obs, _, single = _asked(world, obs, actions[..., 0, :])
    unit = world.unit(actions[None] if single else actions)
    draw = rng.stream(seed, "world/rollout")
    count, length = unit.shape[:2]
    members = draw.integers(0, world.model.elites, (length, count), dtype=np.int32)
    noise = draw.standard_normal((length, count, world.model.outputs), np.float32)
    seen, rewards = _imagine(world.model, sample, world.elites, obs, unit.swapaxes(0, 1), members, noise)
    found = Imagined(np.concatenate([obs[:, None], np.asarray(seen).swapaxes(0, 1)], axis=1), np.asarray(rewards).T)
    return Imagined(*(each[0] for each in found)) if single else found


def _asked(world: World, obs: Any, action: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """Observations and actions as rows, and whether one was given alone."""
    obs, action = np.asarray(obs, np.float32), np.asarray(action, np.float32)
    single = obs.ndim == 1
    rows = np.atleast_2d(obs), np.atleast_2d(action)
    wanted = world.model.obs_dim, world.model.action_dim
    if obs.ndim > 2 or tuple(each.shape[-1] for each in rows) != wanted or len(rows[0]) != len(rows[1]):
        raise ConfigError(
            f"this model of {world.task} takes observations [n, {wanted[0]}] and actions [n, {wanted[1]}] for each step, "
            f"not {list(obs.shape)} and {list(action.shape)}."
        )
    return rows[0], rows[1], single


def moments(
    model: GaussianEnsemble, elites: ModelState, obs: NDArray, action: NDArray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of [Δs, r] of the mixture of the elites, `[n, d + 1]`; actions in [-1, 1]."""
    return mixture(*by_elite(model, elites, obs, action))


def mixture(mean: NDArray, deviation: NDArray) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """μ = mean_e μ_e and σ² = mean_e (σ_e² + (μ_e − μ)²)."""
    centre = mean.mean(axis=0)
    return centre, np.sqrt((np.square(deviation) + np.square(mean - centre)).mean(axis=0))


def by_elite(
    model: GaussianEnsemble, elites: ModelState, obs: NDArray, action: NDArray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Every elite's own mean and deviation, `[elites, n, d + 1]`; actions in [-1, 1]."""
    found = []
    for start in range(0, len(obs), CHUNK):
        rows = (obs[start : start + CHUNK], action[start : start + CHUNK])
        room = CHUNK if len(obs) > CHUNK else len(rows[0])
        padded = [np.concatenate([each, np.zeros((room - len(each), each.shape[1]), np.float32)]) for each in rows]
        found.append([np.asarray(each)[:, : len(rows[0])] for each in _asked_all(model, elites, *padded)])
    mean, deviation = (np.concatenate(each, axis=1) for each in zip(*found))
    return mean, deviation


def _each(model: GaussianEnsemble, elites: ModelState, obs: Array, action: Array) -> tuple[Array, Array]:
    """Every elite's mean and deviation at the same rows, `[E, n, d + 1]`."""
    rows = [jnp.broadcast_to(each, (model.elites, *each.shape)) for each in (obs, action)]
    return model.predict(elites, *rows)


_asked_all = jax.jit(_each, static_argnums=0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _imagine(
    model: GaussianEnsemble, sample: bool, elites: ModelState, obs: Array, actions: Array, members: Array, noise: Array
) -> tuple[Array, Array]:
    def step(obs: Array, given: Any) -> tuple[Array, tuple[Array, Array]]:
        action, member, noise = given
        mean, deviation = _each(model, elites, obs, action)
        if sample:
            rows = jnp.arange(obs.shape[0])
            change = mean[member, rows] + deviation[member, rows] * noise
        else:
            change = jnp.mean(mean, axis=0)
        obs = obs + change[:, :-1]
        return obs, (obs, change[:, -1])

    return jax.lax.scan(step, obs, (actions, members, noise))[1]
