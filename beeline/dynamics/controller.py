"""AutoMBPO's controller (Lai et al. 2021): it sets the hyper-parameters of a running MBPO, and learns to by PPO over whole runs.

A run is one episode of the controller. Several times an epoch it looks at six or seven numbers and decides whether the model is
trained, and how the share of real data, the number of updates per step G and the rollout length k change. Three networks are
trained one after the other, each on top of the earlier ones, which are frozen then: model and ratio, G, k.

    reward of a decision   .1 (a_model - .5), and at an epoch's last one + (return - baseline of the epoch) / R
    advantage              the sum of all rewards from the decision to the end of the run
    loss                   -mean Σ_dim min(ρ A, clip(ρ, .8, 1.2) A),   ρ = π_dim(a|s) / π_dim,old(a|s)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from beeline import rng, trees
from beeline.dynamics import saved
from beeline.errors import CheckpointError, copyable
from beeline.networks import Draw, Params, Slot, Tanh, adam, descend

KIND = "controller"
HIDDEN, RATE, CLIP, ROWS, BATCH = 256, 3e-4, 0.2, 5_000, 64  # PPO of the release
MOST_UPDATES, GROWTH = 20, 1.2  # G lies in [1, 20]; one decision changes the ratio by this factor
LOG_PROB_BOUND, SHIFT_BOUND = 100.0, 100.0


class Settings(NamedTuple):
    """What is controlled."""

    ratio: float = 0.05  # share of real transitions in a batch
    updates: int = 10  # G: updates of the policy per environment step
    length: int = 1  # k: steps of a rollout


class Signs(NamedTuple):
    """What the controller is told of a run, before it is scaled."""

    progress: float = 0.0  # share of the run's steps that are done
    model_loss: float = 0.0
    value_loss: float = 0.0
    shift: float = 0.0
    last_return: float = 0.0


class Scales(NamedTuple):
    """What is divided by: each sign but the progress has its own."""

    model_loss: float
    value_loss: float
    shift: float
    performance: float

    @property
    def reward(self) -> float:
        """R: a gain in return of a tenth of the performance scale is a reward of one."""
        return self.performance / 10.0


# Those of the release, by the robot.
RELEASED = {
    "hopper": Scales(0.01, 100.0, 10.0, 3000.0),
    "ant": Scales(1.0, 20.0, 80.0, 3000.0),
    "humanoid": Scales(1.0, 100.0, 10.0, 3000.0),
}


def released(task: str) -> Scales | None:
    """The scales that the release has for a task of MBPO's suite; None where it has none."""
    suite, _, name = task.partition("/")
    return RELEASED.get(name) if suite == "mbpo" else None


def measured(
    model_losses: Sequence[float], value_losses: Sequence[float], shifts: Sequence[float], baseline: Sequence[float]
) -> Scales:
    """Scales from plain runs: 1.5 times the 90th percentile of each sign, and the highest return of the baseline.

    Where no return is above zero (Pendulum), the performance scale is the largest one without its sign.
    """
    signs = [1.5 * float(np.percentile(each, 90)) if len(each) else 1.0 for each in (model_losses, value_losses, shifts)]
    best = max(baseline)
    performance = best if best > 0 else max(abs(each) for each in baseline)
    return Scales(*(each if each > 0 else 1.0 for each in (*signs, performance)))


# --- the parts --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Part:
    """One network's share of the decisions: what it chooses, and which setting it sees beside the signs and the ratio."""

    name: str
    choices: tuple[tuple[str, int], ...]
    sees: str = ""

    @property
    def inputs(self) -> int:
        """Numbers of its state."""
        return 6 + bool(self.sees)


PARTS = (
    Part("model and ratio", (("model", 2), ("ratio", 3))),
    Part("policy", (("updates", 3),), "updates"),
    Part("rollout", (("length", 3),), "length"),
)


def state(part: Part, signs: Signs, settings: Settings, scales: Scales, longest: int) -> NDArray[np.float32]:
    """What a part sees: the scaled signs, the ratio and its own setting, all clipped to [-1, 1] at the end."""
    seen = [
        signs.progress, signs.model_loss / scales.model_loss, signs.value_loss / scales.value_loss, signs.shift / scales.shift,
        signs.last_return / scales.performance, settings.ratio,
    ]  # fmt: skip
    own = {"updates": settings.updates / MOST_UPDATES, "length": settings.length / longest}
    return np.clip([*seen, *([own[part.sees]] if part.sees else [])], -1.0, 1.0).astype(np.float32)


def changed(settings: Settings, actions: Mapping[str, int], longest: int, epoch_begins: bool) -> Settings:
    """The settings after a decision; what is not decided stays, and k changes where an epoch begins and nowhere else."""
    ratio = min(settings.ratio * GROWTH ** (actions.get("ratio", 1) - 1), 1.0)
    updates = int(np.clip(settings.updates + actions.get("updates", 1) - 1, 1, MOST_UPDATES))
    length = int(np.clip(settings.length + actions.get("length", 1) - 1, 1, longest)) if epoch_begins else settings.length
    return Settings(ratio, updates, length)


def policy_shift(before: Any, now: Any) -> float:
    """mean min(|log π_old(a|s) - log π_now(a|s)|, 100) over real steps, each log π clipped to ±100."""
    old, new = (np.clip(np.asarray(each, np.float64), -LOG_PROB_BOUND, LOG_PROB_BOUND) for each in (before, now))
    return float(np.minimum(np.abs(old - new), SHIFT_BOUND).mean()) if old.size else 0.0


# --- rewards ----------------------------------------------------------------------------------------------------------


def rewards(model: Any, returns: Any, baseline: Any, scale: float, per_epoch: int) -> NDArray[np.float64]:
    """The reward of every decision: `model` are its actions (0 train, 1 skip), `returns` those after every whole epoch."""
    found = 0.1 * (np.asarray(model, np.float64) - 0.5)
    for epoch, score in enumerate(returns):
        found[(epoch + 1) * per_epoch - 1] += (score - baseline[epoch]) / scale
    return found


def to_go(reward: Any) -> NDArray[np.float64]:
    """The sum of all rewards from each decision on: undiscounted, no critic, not normalised."""
    return np.cumsum(np.asarray(reward, np.float64)[::-1])[::-1]


def exploration(stage: int) -> float:
    """ε of a stage, from 0: the probability that all of a decision's actions are uniform."""
    return max(1.0 - stage / 5.0, 0.0)


# --- the networks -----------------------------------------------------------------------------------------------------

_NET, _ADAM = Tanh((HIDDEN,), "xavier"), adam(RATE)


def init(part: Part, seed: int) -> Slot:
    """A part before its first stage: a network for each choice."""
    params = tuple(_NET.init(Draw(seed, f"init/controller/{name}"), part.inputs, size) for name, size in part.choices)
    live = jax.tree.map(jnp.asarray, params)
    return Slot(live, None, _ADAM.init(live))


def blank(part: Part) -> Params:
    """Weights of the right shapes."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), init(part, 0).live)


def log_probs(params: Params, states: Array) -> list[Array]:
    """log π of every action at states `[B, inputs]`: `[B, actions]` for each choice."""
    return [jax.nn.log_softmax(_NET.apply(net, states)) for net in params]


_log_probs = jax.jit(log_probs)


def decide(
    part: Part, params: Params, seen: NDArray, draw: np.random.Generator, epsilon: float = 0.0
) -> tuple[dict[str, int], NDArray[np.float32]]:
    """A part's actions, and the policy's log π of each, also where chance took its place."""
    found = [np.asarray(each[0], np.float64) for each in _log_probs(params, seen[None])]
    uniform, *chances = draw.random(1 + len(found))
    actions, taken = {}, []
    for (name, size), log_prob, chance in zip(part.choices, found, chances):
        share = np.full(size, 1 / size) if uniform < epsilon else np.exp(log_prob)
        actions[name] = min(int(np.searchsorted(np.cumsum(share), chance, side="right")), size - 1)
        taken.append(log_prob[actions[name]])
    return actions, np.array(taken, np.float32)


# --- learning ---------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Decisions of one part: states `[N, inputs]`, actions and log π `[N, choices]`, advantages `[N]`."""

    state: Any
    action: Any
    log_prob: Any
    advantage: Any


def joined(rows: Sequence[Rows]) -> Rows:
    """The decisions of several runs; of more than `ROWS` the last."""
    return Rows(*(np.concatenate(column)[-ROWS:] for column in zip(*rows)))


def loss(params: Params, rows: Rows) -> Array:
    """-mean Σ_dim min(ρ A, clip(ρ, 1 - .2, 1 + .2) A): a ratio for each choice, clipped by itself."""
    total = jnp.zeros(rows.advantage.shape)
    for number, each in enumerate(log_probs(params, rows.state)):
        taken = jnp.take_along_axis(each, rows.action[:, number, None], axis=1)[:, 0]
        ratio = jnp.exp(taken - rows.log_prob[:, number])
        clipped = jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP)
        total += jnp.minimum(ratio * rows.advantage, clipped * rows.advantage)
    return -jnp.mean(total)


@jax.jit
def _steps(slot: Slot, rows: Rows, index: Array) -> Slot:
    def one(slot: Slot, chosen: Array) -> tuple[Slot, Array]:
        batch = Rows(*(column[chosen] for column in rows))
        return descend(_ADAM, slot, lambda params: (value := loss(params, batch), value))

    return jax.lax.scan(one, slot, index)[0]


def improved(slot: Slot, rows: Rows, steps: int, seed: int, stage: int) -> Slot:
    """The part after the steps of a stage; each step's rows are drawn without replacement."""
    count = len(rows.advantage)
    draw, size = rng.stream(seed, "controller/batch", stage), min(BATCH, count)
    index = np.stack([draw.choice(count, size, replace=False) for _ in range(steps)])
    plain = Rows(*(jnp.asarray(column, kind) for column, kind in zip(rows, (np.float32, np.int32, np.float32, np.float32))))
    return _steps(slot, plain, jnp.asarray(index))


# --- a controller that is there ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Controller:
    """What decides within a run: the networks of its parts, and what they were trained with."""

    task: str
    scales: Scales
    epoch: int  # environment steps of an epoch
    longest: int  # k is at most this
    baseline: tuple[float, ...]  # mean return of plain runs after every epoch
    params: tuple[Params, ...]  # of the parts that are there, in the order of PARTS; the last one explores
    epsilon: float = 0.0

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are there."""
        return PARTS[: len(self.params)]

    def fits(self, task: str, path: str | Path = "the controller", epoch: int | None = None) -> None:
        """Refuse a run on another task, where signs and returns are of other sizes, and one of other epochs."""
        if task != self.task:
            raise CheckpointError(
                f"{path} was trained on {self.task}, not on {task}: a controller is for one task. Train one with: "
                f"{copyable('autombpo', 'train', task)}"
            )
        if epoch not in (None, self.epoch):
            raise CheckpointError(
                f"{path} was trained with epochs of {self.epoch} steps, not of {epoch}: give epoch_steps = {self.epoch}."
            )

    def save(self, path: str | Path) -> Path:
        """Write it as a file of its own."""
        arrays: dict[str, NDArray] = {}
        for part, params in zip(self.parts, self.params):
            arrays |= trees.to_arrays(params, part.name)
        about = {
            "task": self.task, "scales": self.scales._asdict(), "epoch": self.epoch, "longest": self.longest,
            "baseline": list(self.baseline), "parts": len(self.params), "epsilon": self.epsilon,
        }  # fmt: skip
        return saved.write(Path(path), KIND, arrays, about)


def load(path: str | Path) -> Controller:
    """A controller from its file; CheckpointError says what is wrong with one."""
    arrays, about = saved.read(Path(path), KIND)
    try:
        count = about["parts"]
        if type(count) is not int or not 0 <= count <= len(PARTS):
            raise ValueError(f"parts = {count!r}")
        names = {part.name for part in PARTS[:count]}
        strange = [name for name in arrays if name.partition("[")[0] not in names]
        if strange:
            raise ValueError(f"array {strange[0]!r} belongs to no part")
        params = tuple(trees.from_arrays(blank(part), arrays, part.name) for part in PARTS[:count])
        scales = Scales(**{name: _number(value, above=0.0) for name, value in about["scales"].items()})
        baseline = tuple(_number(each) for each in about["baseline"])
        task, epoch, longest = about["task"], about["epoch"], about["longest"]
        if not isinstance(task, str) or any(type(each) is not int or each < 1 for each in (epoch, longest)):
            raise ValueError(f"task = {task!r}, epoch = {epoch!r}, longest = {longest!r}")
        return Controller(task, scales, epoch, longest, baseline, params, _number(about["epsilon"], least=0.0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be used: its description is not complete ({error}).") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None


def _number(value: Any, above: float = -np.inf, least: float = -np.inf) -> float:
    """A finite number in its range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value <= above or value < least:
        raise ValueError(f"{value!r} is no number that can stand there")
    return float(value)
