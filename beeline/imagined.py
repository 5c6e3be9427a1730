"""The memory of imagined transitions: a ring in which each one stands alone, of which the newest are drawn.

Rows have absolute numbers, as in the replay, so that a checkpoint writes them as segments. How many of the newest count is said
at every insertion: where that grows, the rows that were given up before do not come back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beeline.memory import TERMINATED, TRANSITION, Batch, CounterStream, Recency, Replay


class Imagined(Replay):
    """Single transitions `(s, a, r, s', d)`, `capacity` of them at most; only the checkpoint that is newest keeps them."""

    collected = False

    def __init__(self, capacity: int, obs_dim: int, action_dim: int) -> None:
        super().__init__(capacity, obs_dim, action_dim, 1, {"next_obs": (obs_dim,)})
        self._start = 0

    def __len__(self) -> int:
        """How many transitions can be sampled now."""
        return self._rows[0] - self.oldest(0)

    def specimen(self) -> Imagined:
        """A memory of its own with one transition, all zeros: what is drawn from it has the same shapes."""
        made = Imagined(2, self.obs_dim, self.action_dim)
        obs, action = np.zeros((1, self.obs_dim), np.float32), np.zeros((1, self.action_dim), np.float32)
        made.push(obs, action, np.zeros(1, np.float32), obs, np.zeros(1, bool))
        return made

    def oldest(self, lane: int) -> int:
        """The number of the oldest row that counts."""
        return max(self._start, self._rows[0] - self.capacity)

    def episode_start(self, lane: int) -> int:
        """The number of the oldest row that counts: what a checkpoint remembers."""
        return self.oldest(lane)

    def push(
        self, obs: NDArray, action: NDArray, reward: NDArray, next_obs: NDArray, terminated: NDArray, window: int | None = None
    ) -> None:
        """Add rows `[n, …]`; from then on the newest `window` count, but none that had ceased to."""
        count = min(len(reward), self.capacity)
        flags = (TRANSITION | TERMINATED * np.asarray(terminated, bool)).astype(np.uint8)
        new = {"obs": obs, "action": action, "reward": reward, "flags": flags, "next_obs": next_obs}
        oldest = self.oldest(0)
        self._rows[0] += len(reward)
        self.restore_rows(0, self._rows[0] - count, {name: each[len(each) - count :] for name, each in new.items()})
        self._start = max(oldest, self._rows[0] - (self.capacity if window is None else window))

    def sample(
        self,
        seed: int,
        first_update: int,
        updates: int,
        batch_size: int,
        *,
        gamma: float = 0.99,
        n_step: int = 1,
        stream: str = "model",
        with_next_action: bool = False,
        recency: Recency | None = None,
    ) -> Batch:
        """Draw rows that count uniformly with replacement, as the replay does."""
        if n_step != 1 or with_next_action or recency is not None:
            raise ValueError("imagined transitions stand alone: nothing is known of what follows them")
        if not len(self):
            raise ValueError("nothing was imagined yet")
        key = (seed, stream)
        if key not in self._streams:
            self._streams[key] = CounterStream(seed, stream)
        oldest = self.oldest(0)
        at, numbers = self._streams[key].at, range(first_update, first_update + updates)
        index = np.stack([at(number).integers(oldest, self._rows[0], batch_size) for number in numbers]) % self.capacity
        flags = self._flags.take(index)
        return Batch(
            obs=self._obs.take(index, axis=0),
            action=self._action.take(index, axis=0),
            reward=self._reward.take(index),
            discount=np.float32(gamma) * (flags & TERMINATED == 0),
            next_obs=self._extras["next_obs"].take(index, axis=0),
        )

    def restore_lane(self, lane: int, rows: int, episode_start: int, open_observation: NDArray | None) -> None:
        """Complete the ring whose rows were put back."""
        self._rows[0], self._start = rows, episode_start
