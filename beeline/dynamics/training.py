"""Training an ensemble on what was met: bootstrap sets, a holdout, early stopping, the best weights kept, elites.

    training = Training(batch_size=256, holdout=.2, holdout_most=5000, patience=5, rule="original", batches=None, epochs=None)
    found = training(model, state, rows, seed=…, counter=…, stop=…, tell=…) -> (ModelState, Told) | None

`rows` has `obs`, `action`, `reward`, `next_obs`, `[n, …]` (`memory.Batch`, as `Replay.whole()` gives it). The result is a
function of the state, the rows, the seed and the counter alone; the given state is not consumed. `stop()` is asked about every
half second, and None says that the training was given up. `tell(Told)` is called after every epoch.

An epoch is a pass of each member over its own rows (as many as there are, drawn with replacement), in an order of its own. After
it each member has its mean squared error on the rows held out. A member improves by more than 1 % of its best error:

    original   (janner/mbpo)  the best error begins at infinity; it ends when no member has improved for more than `patience`
                              epochs; every member goes back to its own best weights
    mbrl       (mbrl-lib)     the best error begins at that of the model before this training; it ends when none has improved for
                              `patience` epochs; all go back to the weights of the last epoch in which any of them improved
    fixed      (PETS)         it ends after `epochs` (or `batches`), and the last weights stay

The members of least error are the elites. `batches` and `epochs` bound a training under every rule.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from beeline import rng
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState
from beeline.errors import ModelError
from beeline.networks import Params, Slot

PIECE = 64  # batches whose rows are handed over in one call
CHUNK = 512  # rows that are judged at once
BETWEEN = 0.5  # seconds of training between two looks at `stop`
THRESHOLD = 0.01  # of a member's best error: what counts as better
HOPELESS = 10.0  # times the error of predicting zero: what no member may exceed
RULES = ("original", "mbrl", "fixed")


class Told(NamedTuple):
    """How a training goes, or how it ended."""

    epoch: int
    batches: int
    error: NDArray[np.float32]  # on the rows held out, of each member: now or, at the end, of the weights that are kept
    seconds: float


@dataclasses.dataclass(frozen=True)
class Training:
    """How a model is trained; see the head of this file."""

    batch_size: int = 256
    holdout: float = 0.2
    holdout_most: int = 5_000
    patience: int = 5
    rule: str = "original"
    batches: int | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule = {self.rule!r} is none of {', '.join(RULES)}")
        if self.rule == "fixed" and self.batches is None and self.epochs is None:
            raise ValueError("the rule 'fixed' needs batches or epochs, or it would never end")

    def __call__(
        self,
        model: GaussianEnsemble,
        state: ModelState,
        rows: Any,
        *,
        seed: int,
        counter: int,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[Told], None] = lambda told: None,
    ) -> tuple[ModelState, Told] | None:
        """Train on these rows, from the weights as they are."""
        began = time.perf_counter()
        fit, judge = self.split(len(rows.reward), seed, counter)
        state = scaled_to(model, state, rows, fit)
        inputs, targets = table(model, state, rows)
        data, held = _padded(inputs, targets, fit), _padded(inputs, targets, judge, CHUNK)
        hopeless = HOPELESS * float(np.mean(np.square(targets[judge])))
        progress = _Progress(self, model, state.slot)
        if self.rule == "mbrl":
            progress.best = np.asarray(errors(model, progress.slot.live, *held, len(judge)))
        pace = _Pace()
        for epoch, indices in enumerate(self.epochs_of(model.members, len(fit), seed, counter), start=1):
            for piece in pieces(indices, self.batch_size):
                done = 0
                while done < piece.filled:
                    if stop():
                        return None
                    until = min(piece.filled, done + pace.batches)
                    progress.slot = fitted(model, progress.slot, *data, piece.rows, piece.counts, done, until)
                    pace.took(progress.slot, until - done)
                    done = until
            progress.batches += -(-indices.shape[1] // self.batch_size)
            error = np.asarray(errors(model, progress.slot.live, *held, len(judge)))
            sane(error, hopeless, epoch)
            ended = progress.judge(epoch, error)
            tell(Told(epoch, progress.batches, error, time.perf_counter() - began))
            if ended:
                break
        slot, error = progress.kept()
        elites = np.argsort(error, kind="stable")[: model.elites].astype(np.int32)
        trained = state._replace(slot=slot, elites=elites, error=error, trainings=np.asarray(counter + 1, np.int64))
        return trained, Told(epoch, progress.batches, error, time.perf_counter() - began)

    def split(self, count: int, seed: int, counter: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows to fit on and those held out, a new choice for every training; where none are, some rows to judge by."""
        aside = min(int(count * self.holdout), self.holdout_most)
        if count - aside < 1 or (self.holdout and not aside):
            raise ModelError(
                f"{count} transitions are too few to train a model with holdout = {self.holdout:g}: give it more random steps."
            )
        order = rng.stream(seed, "model/split", counter).permutation(count)
        return order[aside:], order[:aside] if aside else order[: self.holdout_most]

    def epochs_of(self, members: int, count: int, seed: int, counter: int) -> Iterator[NDArray[np.int32]]:
        """For every epoch the rows `[members, n]` of each member in its order; the last one may be cut by `batches`."""
        generator = rng.stream(seed, "model/bootstrap", counter)
        own = generator.integers(0, count, (members, count), dtype=np.int32)
        left, passed = self.batches, 0
        each = -(-count // self.batch_size)
        while (left is None or left > 0) and (self.epochs is None or passed < self.epochs):
            order = generator.permuted(own, axis=1)
            yield order if left is None or left >= each else order[:, : left * self.batch_size]
            passed += 1
            left = None if left is None else left - each


class Piece(NamedTuple):
    """The rows of some batches in a fixed shape, and how many of them each batch has."""

    rows: NDArray[np.int32]  # [PIECE, members, batch_size]
    counts: NDArray[np.int32]  # [PIECE]
    filled: int  # how many batches there are


def pieces(indices: NDArray[np.int32], batch_size: int) -> Iterator[Piece]:
    """An epoch's rows `[members, n]`, PIECE batches at a time; the last batch may be short."""
    members, total = indices.shape
    size = PIECE * batch_size
    for start in range(0, total, size):
        part = indices[:, start : start + size]
        rows = np.zeros((members, size), np.int32)
        rows[:, : part.shape[1]] = part
        full = np.clip(part.shape[1] - np.arange(PIECE) * batch_size, 0, batch_size).astype(np.int32)
        batched = rows.reshape(members, PIECE, batch_size).swapaxes(0, 1)
        yield Piece(np.ascontiguousarray(batched), full, int(np.count_nonzero(full)))


class _Pace:
    """How many batches take half a second here; the result of a training does not depend on it."""

    def __init__(self) -> None:
        self.batches = 1
        self._since = time.perf_counter()

    def took(self, slot: Slot, batches: int) -> None:
        """Wait for some batches, and see how long each took."""
        jax.block_until_ready(slot)
        now = time.perf_counter()
        self.batches = max(1, min(PIECE, int(BETWEEN * batches / max(now - self._since, 1e-9))))
        self._since = now


class _Progress:
    """The weights under way and the best ones, by one of the rules."""

    def __init__(self, training: Training, model: GaussianEnsemble, slot: Slot) -> None:
        self.training = training
        self.slot: Slot = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), slot)  # pieces consume what they are given
        self.best = np.full(model.members, np.inf, np.float32)
        self.snapshot: Params | None = None
        self.since = 0
        self.batches = 0
        self.last = self.best

    def judge(self, epoch: int, error: NDArray[np.float32]) -> bool:
        """Take note of an epoch's errors; whether the training ends."""
        self.last, rule = error, self.training.rule
        if rule == "fixed":
            return False
        improved = better(self.best, error)
        self.since = 0 if improved.any() else self.since + 1
        live = self.slot.live
        if improved.any():
            if rule == "mbrl":
                self.snapshot = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), live)
                self.best = np.minimum(self.best, error)
            else:
                before = live["layers"] if self.snapshot is None else self.snapshot["layers"]
                self.snapshot = {"layers": chosen(improved, live["layers"], before)}
                self.best = np.where(improved, error, self.best)
        return self.since > self.training.patience - (rule == "mbrl")

    def kept(self) -> tuple[Slot, NDArray[np.float32]]:
        """The weights that stay, with their errors; the original's bounds and all of Adam's moments stay as they are."""
        if self.training.rule == "fixed":
            return self.slot, self.last
        live = self.slot.live if self.snapshot is None else self.slot.live | self.snapshot
        return self.slot._replace(live=live), self.best


def better(best: NDArray[np.float32], error: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which members are better than their best by more than 1 % of it; infinity is bettered by everything."""
    return error < best * np.float32(1.0 - THRESHOLD)


def sane(error: NDArray[np.float32], hopeless: float, epoch: int) -> None:
    """Raise where a training has diverged."""
    if not np.isfinite(error).all():
        what = "not finite"
    elif float(error.min()) > hopeless > 0.0:
        what = f"{float(error.min()):.3g}, more than {HOPELESS:g} times that of predicting nothing at all"
    else:
        return
    raise ModelError(
        f"the model has diverged: after epoch {epoch} of this training its error on the rows held out is {what}. "
        "Lower model_lr, or look at the range of the observations; what was there before this training is as it was."
    )


# --- data ---------------------------------------------------------------------------------------------------------------


def scaled_to(model: GaussianEnsemble, state: ModelState, rows: Any, fit: NDArray[np.int64]) -> ModelState:
    """The state with the mean and deviation of the rows to fit on; what does not vary is left as it is."""
    inputs = np.concatenate([rows.obs[fit], rows.action[fit]], axis=-1).astype(np.float64)
    deviation = inputs.std(axis=0)
    unit = np.ones(model.outputs)
    if model.reward_unit:
        spread = float(np.std(rows.reward[fit], dtype=np.float64))
        unit[-1] = spread if spread >= 1e-6 else 1.0
    as_array = partial(jnp.asarray, dtype=jnp.float32)
    return state._replace(
        mean=as_array(inputs.mean(axis=0)), deviation=as_array(np.where(deviation < 1e-12, 1.0, deviation)), unit=as_array(unit)
    )


def table(model: GaussianEnsemble, state: ModelState, rows: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scaled inputs and targets [Δs, r] of all rows."""
    inputs = (np.concatenate([rows.obs, rows.action], axis=-1) - np.asarray(state.mean)) / np.asarray(state.deviation)
    targets = np.concatenate([rows.next_obs - rows.obs, rows.reward[:, None]], axis=-1) / np.asarray(state.unit)
    return inputs.astype(np.float32), targets.astype(np.float32)


def _padded(
    inputs: NDArray[np.float32], targets: NDArray[np.float32], rows: NDArray[np.int64], least: int = 1024
) -> tuple[Array, Array]:
    """These rows on the device, padded to a power of two, so that a growing memory rarely means another program."""
    size = max(least, 1 << (len(rows) - 1).bit_length())
    padded = []
    for each in (inputs, targets):
        room = np.zeros((size, each.shape[1]), np.float32)
        room[: len(rows)] = each[rows]
        padded.append(jnp.asarray(room))
    return padded[0], padded[1]


# --- compiled -------------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def fitted(
    model: GaussianEnsemble, slot: Slot, inputs: Array, targets: Array, rows: Array, counts: Array, first: Any, stop: Any
) -> Slot:
    """The batches `first` to `stop` of a piece, a step of Adam on each."""
    members = jnp.arange(rows.shape[-1])

    def one(number: Array, slot: Slot) -> Slot:
        index, count = rows[number], counts[number]
        weight = (members < count) / count.astype(jnp.float32)
        return model.step(slot, inputs[index], targets[index], weight)

    return jax.lax.fori_loop(first, stop, one, slot)


@partial(jax.jit, static_argnums=0)
def errors(model: GaussianEnsemble, params: Params, inputs: Array, targets: Array, count: Any) -> Array:
    """mean (μ − t)² of every member over the first `count` rows and all dimensions, a chunk at a time."""

    def one(number: Array, total: Array) -> Array:
        x, t = (jax.lax.dynamic_slice_in_dim(each, number * CHUNK, CHUNK) for each in (inputs, targets))
        mean, _ = model.forward(params, jnp.broadcast_to(x, (model.members, *x.shape)))
        counted = (number * CHUNK + jnp.arange(CHUNK) < count)[:, None]
        return total + jnp.sum(jnp.where(counted, jnp.square(mean - t), 0.0), axis=(1, 2))

    total = jax.lax.fori_loop(0, (count + CHUNK - 1) // CHUNK, one, jnp.zeros(model.members))
    return total / (count * model.outputs)


@jax.jit
def chosen(which: Array, new: Params, old: Params) -> Params:
    """The members' new weights where they are chosen, else the old ones."""
    return jax.tree.map(lambda a, b: jnp.where(jnp.expand_dims(jnp.asarray(which), tuple(range(1, a.ndim))), a, b), new, old)
