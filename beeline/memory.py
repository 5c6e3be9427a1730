"""Memories. The replay ring: every observation stored once, transitions drawn exactly uniformly, rows with absolute numbers.

Each lane (parallel environment) owns a contiguous ring of rows `(observation, action, reward, flags)`. An episode of L
steps takes L + 1 rows, the last of which holds the final observation and starts no transition. The row being filled is
the *open row*: its observation is known, its action is not. Row `n` of a lane lies at position `n mod rows_per_lane`;
a closed row never changes until it is overwritten, which is what lets a checkpoint write each row once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beeline import rng

TRANSITION = 1  # the row has an action, and its successor is the observation this action led to
TERMINATED = 2  # the environment ended here: nothing to bootstrap from
TRUNCATED = 4  # the episode was cut here: the final observation still has a value

_BOOTSTRAPS = np.float32(np.arange(256) & TERMINATED == 0)  # by flags: a table lookup is the fastest form
_SPARE = 16  # candidates drawn beyond the expected need, so that a second draw is rare


class Batch(NamedTuple):
    """Transitions with leading axes [updates, batch]; `extras` are columns that were stored or asked for beside them.

    Float32 arrays, of NumPy as they are drawn and of JAX inside an update. `discount` is γ, or 0 where the environment ended.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    extras: Mapping[str, Any] | None = None


class Clock(NamedTuple):
    """How far a run is. In evaluation `decisions` counts within the episode and `episodes` numbers it."""

    seed: int
    step: int = 0
    decisions: int = 0
    updates: int = 0
    episodes: int = 0


class Recency(NamedTuple):
    """The weight of a row in a draw, by its age in closed rows of its lane: w(age) = max((1 − decay)^age, floor)."""

    decay: float
    floor: float


class Data(NamedTuple):
    """What one `update` call learns from; leading axes `[updates, batch]`.

    `first` is the number of the call's first update; agents derive the phase of their delays and intervals from it.
    `fit`, where given, is what V is fitted on instead of `train` (real data in MB-BAC).
    """

    train: Batch
    first: int
    fit: Batch | None = None

    @property
    def updates(self) -> int:
        """How many updates this holds."""
        return len(self.train.reward)


@dataclasses.dataclass(frozen=True)
class MemorySpec:
    """A memory that an agent wants kept: the columns beside the four of every transition, by name and shape."""

    columns: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    capacity: int | None = None  # rows; None: as the run's `replay_capacity` says
    imagined: bool = False  # single transitions of a model (`beeline.imagined`), not what the environments gave


class CounterStream:
    """The generators `rng.stream(seed, name, counter)` of one name, rewound instead of made anew."""

    def __init__(self, seed: int, name: str) -> None:
        self._generator = rng.stream(seed, name)
        self._state = dict(self._generator.bit_generator.state)

    def at(self, counter: int) -> np.random.Generator:
        """Return the generator at the beginning of stream `counter`; valid until the next call."""
        # A tenth of the time of making one. The state kept here is that of a generator never used, so nothing that
        # an earlier counter left in the generator's buffer stays.
        self._state["state"]["counter"][3] = counter
        self._generator.bit_generator.state = self._state
        return self._generator


class Replay:
    """Ring of `capacity` rows over all lanes, `capacity // lanes` each; an episode of L steps takes L + 1 rows."""

    collected = True  # whether rows come from the environments, a lane of them from each

    def __init__(
        self, capacity: int, obs_dim: int, action_dim: int, lanes: int = 1, columns: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        if lanes < 1 or capacity // lanes < 2:
            raise ValueError(f"capacity {capacity} leaves fewer than two rows for each of {lanes} lanes")
        self.capacity, self.obs_dim, self.action_dim, self.lanes = capacity, obs_dim, action_dim, lanes
        self.rows_per_lane = capacity // lanes
        total = lanes * self.rows_per_lane
        # Flat over lanes: one gather serves all. Memory becomes resident as rows are written, not here.
        self._obs = np.empty((total, obs_dim), np.float32)
        self._action = np.empty((total, action_dim), np.float32)
        self._reward = np.empty(total, np.float32)
        self._flags = np.zeros(total, np.uint8)
        self.extra_columns = dict(columns or {})
        self._extras = {name: np.zeros((total, *shape), np.float32) for name, shape in self.extra_columns.items()}
        self._rows = [0] * lanes
        self._open = [False] * lanes
        self._episode_start = [0] * lanes
        self._count = 0
        self._streams: dict[tuple[int, str], CounterStream] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of a full ring."""
        plain = self._obs.nbytes + self._action.nbytes + self._reward.nbytes + self._flags.nbytes
        return plain + sum(column.nbytes for column in self._extras.values())

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled now."""
        return self._count

    def specimen(self) -> Replay:
        """A memory of its own with the same columns and one transition, all zeros: what is drawn from it has the same shapes."""
        made = Replay(2, self.obs_dim, self.action_dim, columns=self.extra_columns)
        made.start(0, np.zeros(self.obs_dim))
        made.add(0, np.zeros(self.action_dim), 0.0, np.zeros(self.obs_dim), False, False)
        return made

    # --- writing -----------------------------------------------------------------------------------------------------

    def start(self, lane: int, obs: ArrayLike) -> None:
        """Open an episode with its reset observation; an episode still open ends here as if truncated."""
        self.cut(lane)
        self._episode_start[lane] = self._rows[lane]
        self._put_open(lane, obs)

    def add(
        self,
        lane: int,
        action: ArrayLike,
        reward: SupportsFloat,
        next_obs: ArrayLike,
        terminated: bool,
        truncated: bool,
        extras: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Complete the open row to a transition; `next_obs` opens the next row or, at an episode's end, closes it."""
        if not self._open[lane]:
            raise ValueError(f"lane {lane} has no open episode: call start with the reset observation first")
        row = self._position(lane, self._rows[lane])
        self._action[row] = action
        self._reward[row] = float(reward)
        for name, column in self._extras.items():
            column[row] = 0.0 if extras is None else extras[name]
        self._flags[row] = TRANSITION | (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
        self._count += 1
        self._rows[lane] += 1
        self._put_open(lane, next_obs)
        if terminated or truncated:
            self._close_final(lane)

    def extend(self, lane: int, columns: Mapping[str, NDArray]) -> None:
        """Put closed rows, as `export` gives them, after the newest of a lane in which no episode is open.

        They must be whole paths: the last row is a final observation.
        """
        number, count = self._rows[lane], len(columns["flags"])
        if self._open[lane]:
            raise ValueError(f"an episode is open in lane {lane}: rows can enter between two episodes only")
        if count > self.rows_per_lane:
            raise ValueError(f"{count} rows do not fit into the {self.rows_per_lane} of lane {lane}")
        if count and columns["flags"][-1] & TRANSITION:
            raise ValueError("the last row starts a transition that leads nowhere")
        self._count -= int(np.count_nonzero(self._flags[self._places(lane, number, number + count)] & TRANSITION))
        self.restore_rows(lane, number, columns)
        self._count += int(np.count_nonzero(columns["flags"] & TRANSITION))
        self._rows[lane] += count

    def cut(self, lane: int) -> None:
        """End the open episode as if truncated; nothing happens where none is open."""
        if self._open[lane]:
            self._close_final(lane)

    def _position(self, lane: int, number: int) -> int:
        return lane * self.rows_per_lane + number % self.rows_per_lane

    def _put_open(self, lane: int, obs: ArrayLike) -> None:
        """Write the open row; the oldest row at its place stops being a transition before anything can pair with it."""
        row = self._position(lane, self._rows[lane])
        self._count -= int(self._flags[row]) & TRANSITION
        self._flags[row] = 0
        self._obs[row] = obs
        self._open[lane] = True

    def _close_final(self, lane: int) -> None:
        """Close the open row as a final observation, which starts no transition."""
        row = self._position(lane, self._rows[lane])
        self._action[row] = 0.0
        self._reward[row] = 0.0
        for column in self._extras.values():
            column[row] = 0.0
        self._rows[lane] += 1
        self._open[lane] = False

    # --- sampling ----------------------------------------------------------------------------------------------------

    def sample(
        self,
        seed: int,
        first_update: int,
        updates: int,
        batch_size: int,
        *,
        gamma: float = 0.99,
        n_step: int = 1,
        stream: str = "replay",
        with_next_action: bool = False,
        recency: Recency | None = None,
    ) -> Batch:
        """Draw with replacement, uniformly or by `recency`; update u's are a function of (seed, stream, u) and the ring.

        With n steps, K ≤ n of them lie before the episode's end or the newest observation:
        reward = Σ_{k<K} γ^k r_{t+k}, next_obs = s_{t+K}, discount = γ^K, or 0 where the last step terminated.
        """
        index = self._indices(seed, first_update, updates, batch_size, stream, recency)
        if n_step == 1:
            reward, last, following = self._reward.take(index), index, self._follow(index)
            discount = np.full(index.shape, gamma, np.float32)
        else:
            reward, discount, last, following = self._returns(index, gamma, n_step)
        discount *= _BOOTSTRAPS.take(self._flags.take(last))
        extras: dict[str, Any] = {name: column.take(index, axis=0) for name, column in self._extras.items()}
        if with_next_action:
            extras["next_action"], extras["next_action_valid"] = self._action_at(following)
        return Batch(
            obs=self._obs.take(index, axis=0),
            action=self._action.take(index, axis=0),
            reward=reward,
            discount=discount,
            next_obs=self._obs.take(following, axis=0),
            extras=extras or None,
        )

    def recent(self, count: int, gamma: float = 0.99) -> Batch:
        """The last `count` transitions of every lane in order, `[lanes, count]`; flags are among the extras.

        `next_obs` is what the action led to, also where the episode ended there. An episode that was cut (its environment
        failed, or could not be brought back) is truncated.
        """
        index = np.stack([self._last(lane, count) for lane in range(self.lanes)])
        flags, following = self._flags.take(index), self._follow(index)
        terminated = (flags & TERMINATED) != 0
        extras = {name: column.take(index, axis=0) for name, column in self._extras.items()}
        extras |= {"terminated": terminated, "truncated": (flags & TRUNCATED != 0) | (self._final(following) & ~terminated)}
        return Batch(
            obs=self._obs.take(index, axis=0),
            action=self._action.take(index, axis=0),
            reward=self._reward.take(index),
            discount=np.float32(gamma) * _BOOTSTRAPS.take(flags),
            next_obs=self._obs.take(following, axis=0),
            extras=extras,
        )

    @property
    def fewest(self) -> int:
        """How many transitions `recent` can give: those of the lane that holds the fewest."""
        held = (self._flags & TRANSITION) != 0
        return int(held.reshape(self.lanes, self.rows_per_lane).sum(axis=1).min())

    def whole(self) -> Batch:
        """Every transition that is held, `[n]`, in the order of their places; `discount` is 0 where the environment ended."""
        index = np.flatnonzero(self._flags & TRANSITION)
        return Batch(
            obs=self._obs.take(index, axis=0),
            action=self._action.take(index, axis=0),
            reward=self._reward.take(index),
            discount=_BOOTSTRAPS.take(self._flags.take(index)),
            next_obs=self._obs.take(self._follow(index), axis=0),
        )

    def _final(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows, each of them after a transition, end an episode: those that neither start one nor are open."""
        opened = [self._position(lane, self._rows[lane]) for lane in range(self.lanes) if self._open[lane]]
        return ~self._starts(index) & ~np.isin(index, opened)

    def _last(self, lane: int, count: int) -> NDArray[np.int64]:
        """The places of a lane's last transitions, oldest first."""
        place = self._places(lane, self.oldest(lane), self._rows[lane])
        found = place[self._starts(place)][-count:]
        if len(found) < count:
            raise ValueError(f"lane {lane} holds {len(found)} transitions, not {count}")
        return found

    def _indices(
        self, seed: int, first: int, updates: int, batch_size: int, stream: str, recency: Recency | None = None
    ) -> NDArray[np.int64]:
        """Draw filled rows, reject those that start no transition: exact, whatever the lanes hold."""
        if not self._count:
            raise ValueError("the replay holds no transition yet")
        key = (seed, stream)
        if key not in self._streams:
            self._streams[key] = CounterStream(seed, stream)
        filled = [min(rows + is_open, self.rows_per_lane) for rows, is_open in zip(self._rows, self._open)]
        total = sum(filled)
        gaps = None
        if total < self._flags.size and self.lanes > 1:
            # Row j of the filled rows of all lanes lies at j plus the unfilled room of the lanes before its own.
            ends = np.cumsum(filled, dtype=np.int64)
            gaps = np.arange(self.lanes) * self.rows_per_lane - ends + np.array(filled)
        aged = None if recency is None else self._aged(recency)
        index = np.empty((updates, batch_size), np.int64)
        for update in range(updates):
            generator = self._streams[key].at(first + update)
            have = 0
            while have < batch_size:
                size = (batch_size - have) * total // self._count
                if aged is not None:
                    drawn = aged(generator, size + size // 16 + _SPARE)
                else:
                    drawn = generator.integers(0, total, size + size // 16 + _SPARE)
                if gaps is not None and aged is None:
                    drawn += gaps.take(np.searchsorted(ends, drawn, side="right"))
                drawn = drawn[self._starts(drawn)][: batch_size - have]
                index[update, have : have + drawn.size] = drawn
                have += drawn.size
        return index

    def _aged(self, recency: Recency) -> Callable[[np.random.Generator, int], NDArray[np.int64]]:
        """Draws closed rows with the weights of their ages.

        With q = 1 − decay, and N newest rows whose weight is q^age and not the floor, a lane of n rows has the weight
        (1 − q^min(n,N))/(1 − q) + floor · (n − N)⁺. In the first part the age is ⌊log(1 − u (1 − q^min(n,N)))/log q⌋, in the
        second one uniform.
        """
        log_q = math.log1p(-recency.decay)
        above = math.ceil(math.log(recency.floor) / log_q)  # N
        closed = np.array([rows - self.oldest(lane) for lane, rows in enumerate(self._rows)])
        near = np.minimum(closed, above)
        mass = -np.expm1(near * log_q)
        ends = np.cumsum(np.stack([mass / recency.decay, recency.floor * (closed - near)], axis=1).ravel())
        newest = np.array(self._rows) - 1

        def draw(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
            part = np.searchsorted(ends[:-1], generator.random(count) * ends[-1], side="right")
            lane, flat = part // 2, part % 2 == 1
            u = generator.random(count)
            young = np.minimum(np.log1p(-u * mass[lane]) / log_q, near[lane] - 1)
            age = np.where(flat, near[lane] + u * (closed - near)[lane], young).astype(np.int64)
            return lane * self.rows_per_lane + (newest[lane] - age) % self.rows_per_lane

        return draw

    def _starts(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these rows start a transition."""
        return (self._flags.take(index) & TRANSITION).view(np.bool_)

    def _follow(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the rows after these, within their lanes' rings."""
        following = index + 1
        if self.lanes == 1:
            following[following == self.rows_per_lane] = 0
        else:
            following[following % self.rows_per_lane == 0] -= self.rows_per_lane
        return following

    def _returns(
        self, index: NDArray[np.int64], gamma: float, n_step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Σ γ^k r, γ^K, the last row used and the row after it; final and open rows are where a path ends."""
        reward, last, following = self._reward.take(index), index, self._follow(index)
        discount = np.full(index.shape, gamma, np.float32)
        for k in range(1, n_step):
            goes_on = self._starts(following)
            reward[goes_on] += np.float32(gamma**k) * self._reward.take(following[goes_on])
            discount[goes_on] = gamma ** (k + 1)
            last = np.where(goes_on, following, last)
            following = np.where(goes_on, self._follow(following), following)
        return reward, discount, last, following

    def _action_at(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the actions taken at these rows, zeros where none was taken (yet)."""
        valid = self._starts(index)
        action = self._action.take(index, axis=0)
        action[~valid] = 0.0
        return action, valid

    # --- state, for checkpoints --------------------------------------------------------------------------------------

    def rows(self, lane: int) -> int:
        """Return how many rows of this lane were ever closed; the open row, if any, has this number."""
        return self._rows[lane]

    def oldest(self, lane: int) -> int:
        """Return the number of the oldest closed row that is still in the ring."""
        return max(0, self._rows[lane] + self._open[lane] - self.rows_per_lane)

    def is_open(self, lane: int) -> bool:
        """Return whether an episode is open in this lane."""
        return self._open[lane]

    def episode_start(self, lane: int) -> int:
        """Return the row number of the reset observation of the lane's latest episode."""
        return self._episode_start[lane]

    def open_observation(self, lane: int) -> NDArray[np.float32]:
        """Return the observation of the open row."""
        if not self._open[lane]:
            raise ValueError(f"lane {lane} has no open episode")
        return self._obs[self._position(lane, self._rows[lane])].copy()

    def open_episode(self, lane: int) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return (observations [k+1], actions [k]) of the open episode; None if none is open or its start is lost."""
        start, stop = self._episode_start[lane], self._rows[lane]
        if not self._open[lane] or start < self.oldest(lane):
            return None
        place = self._places(lane, start, stop + 1)
        return self._obs.take(place, axis=0), self._action.take(place[:-1], axis=0)

    def export(self, lane: int, start: int, stop: int) -> dict[str, NDArray]:
        """Copy the closed rows numbered start to stop - 1, by the names of their columns."""
        if not self.oldest(lane) <= start <= stop <= self._rows[lane]:
            held = f"{self.oldest(lane)} to {self._rows[lane]}"
            raise ValueError(f"rows {start} to {stop} of lane {lane} are not all in the ring, which has {held}")
        place = self._places(lane, start, stop)
        return {
            "obs": self._obs.take(place, axis=0),
            "action": self._action.take(place, axis=0),
            "reward": self._reward.take(place),
            "flags": self._flags.take(place),
            **{name: column.take(place, axis=0) for name, column in self._extras.items()},
        }

    def restore_rows(self, lane: int, start: int, columns: Mapping[str, NDArray]) -> None:
        """Put exported rows back in their places, oldest rows first; `restore_lane` then completes the lane."""
        place = self._places(lane, start, start + len(columns["flags"]))
        self._obs[place] = columns["obs"]
        self._action[place] = columns["action"]
        self._reward[place] = columns["reward"]
        self._flags[place] = columns["flags"]
        for name, column in self._extras.items():
            column[place] = columns[name]

    def restore_lane(self, lane: int, rows: int, episode_start: int, open_observation: NDArray | None) -> None:
        """Complete a lane whose rows were put back: from here on it samples the same bytes as the one exported."""
        self._rows[lane] = rows
        self._open[lane] = False
        self._count = int(np.count_nonzero(self._flags & TRANSITION))
        if open_observation is not None:
            self._put_open(lane, open_observation)
        self._episode_start[lane] = episode_start

    def _places(self, lane: int, start: int, stop: int) -> NDArray[np.int64]:
        return lane * self.rows_per_lane + np.arange(start, stop) % self.rows_per_lane
