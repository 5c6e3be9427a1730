"""The ring against a plain list of episodes, its uniformity, its streams and its memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import timeit
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beeline import rng
from beeline.memory import Batch, CounterStream, Replay

GAMMA = 0.9


@dataclass
class Step:
    """One row of the naive model; `after` is the observation its action led to."""

    obs: float
    action: float | None = None
    reward: float = 0.0
    after: float | None = None
    terminated: bool = False
    last: bool = False


@dataclass
class Model:
    """Lists of rows that forget their oldest, written for clarity alone."""

    size: int
    rows: list[Step] = field(default_factory=list)
    open: bool = False

    def push(self, row: Step) -> None:
        self.rows = [*self.rows, row][-self.size :]

    def start(self, obs: float) -> None:
        self.push(Step(obs))
        self.open = True

    def add(self, action: float, reward: float, obs: float, terminated: bool, truncated: bool) -> None:
        row = self.rows[-1]
        row.action, row.reward, row.after, row.terminated = action, reward, obs, terminated
        row.last = terminated or truncated
        self.push(Step(obs))
        self.open = not row.last

    def transitions(self, n_step: int) -> dict[float, tuple[float, float, float, float, float | None]]:
        """Every transition by its observation: action, n-step reward, discount, next observation, next action."""
        result = {}
        for i, row in enumerate(self.rows):
            if row.action is None:
                continue
            total, k, j = row.reward, 1, i
            while k < n_step and not self.rows[j].last and self.rows[j + 1].action is not None:
                j += 1
                total += GAMMA**k * self.rows[j].reward
                k += 1
            end = self.rows[j]
            assert end.after is not None
            follows = None if end.last else self.rows[j + 1].action
            result[row.obs] = (row.action, total, 0.0 if end.terminated else GAMMA**k, end.after, follows)
        return result


event = st.tuples(st.integers(0, 2), st.sampled_from(["go", "go", "go", "terminate", "truncate", "both"]))
events = st.integers(0, 50).flatmap(lambda n: st.lists(event, min_size=n, max_size=n))  # often long enough to wrap


def play(replay: Replay, models: list[Model], script: list[tuple[int, str]], first: int = 0) -> None:
    """Run a script of (lane, event) on ring and models; observations, actions and rewards are all distinct."""
    for number, (lane, event) in enumerate(script, start=first):
        lane %= replay.lanes
        obs = float(2 * number + 1)
        if not models[lane].open:
            replay.start(lane, [obs, -obs])
            models[lane].start(obs)
        ends = event in ("terminate", "both"), event in ("truncate", "both")
        replay.add(lane, [obs + 0.25], obs / 8, [obs + 1, -obs - 1], *ends)
        models[lane].add(obs + 0.25, obs / 8, obs + 1, *ends)


def equal(left: Batch, right: Batch) -> bool:
    pairs = zip((*left[:5], *(left.extras or {}).values()), (*right[:5], *(right.extras or {}).values()), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 3), st.integers(2, 9), st.integers(1, 4))
def test_samples_are_the_transitions_of_a_naive_model(
    script: list[tuple[int, str]], lanes: int, size: int, n_step: int
) -> None:
    replay, models = Replay(lanes * size, 2, 1, lanes), [Model(size) for _ in range(lanes)]
    play(replay, models, script)
    expected = {k: v for model in models for k, v in model.transitions(n_step).items()}
    assert len(replay) == len(expected)
    whole = replay.whole()
    assert sorted(whole.obs[:, 0].tolist()) == sorted(expected)
    if not expected:
        with pytest.raises(ValueError, match="no transition"):
            replay.sample(0, 0, 1, 4)
        return
    if n_step == 1:
        told = np.stack([whole.action[:, 0], whole.reward, GAMMA * whole.discount, whole.next_obs[:, 0]], axis=1)
        np.testing.assert_allclose(told, np.array([expected[float(o)] for o in whole.obs[:, 0]])[:, :4].astype(float), rtol=1e-6)
    batch = replay.sample(1, 7, 2, 40 * len(expected), gamma=GAMMA, n_step=n_step, with_next_action=True)
    taken, valid = (batch.extras or {})["next_action"], (batch.extras or {})["next_action_valid"]
    assert {float(o) for o in batch.obs[..., 0].ravel()} == set(expected)  # P(miss) < 27 e^-80
    np.testing.assert_array_equal(batch.obs[..., 1], -batch.obs[..., 0])
    np.testing.assert_array_equal(batch.next_obs[..., 1], -batch.next_obs[..., 0])
    want = np.array([[np.nan if x is None else x for x in expected[float(o)]] for o in batch.obs[..., 0].ravel()])
    np.testing.assert_array_equal(batch.action.ravel(), want[:, 0])
    np.testing.assert_allclose(batch.reward.ravel(), want[:, 1], rtol=1e-6)
    np.testing.assert_allclose(batch.discount.ravel(), want[:, 2], rtol=1e-6)
    np.testing.assert_array_equal(batch.next_obs[..., 0].ravel(), want[:, 3])
    np.testing.assert_array_equal(valid.ravel(), ~np.isnan(want[:, 4]))
    np.testing.assert_array_equal(taken.ravel(), np.nan_to_num(want[:, 4]))


def test_three_step_return_by_hand() -> None:
    replay = Replay(20, 1, 1)
    replay.start(0, [0.0])
    for t, reward in enumerate([1.0, 2.0, 4.0, 8.0]):
        replay.add(0, [0.0], reward, [t + 1.0], terminated=t == 3, truncated=False)
    replay.start(0, [10.0])
    for t, reward in enumerate([1.0, 2.0]):
        replay.add(0, [0.0], reward, [t + 11.0], terminated=False, truncated=t == 1)
    batch = replay.sample(0, 0, 1, 400, gamma=0.5, n_step=3)
    seen = {
        float(o): (float(r), float(d), float(n))
        for o, r, d, n in zip(batch.obs[0, :, 0], batch.reward[0], batch.discount[0], batch.next_obs[0, :, 0])
    }
    assert seen == {
        0.0: (1 + 1 + 1, 0.125, 3.0),
        1.0: (2 + 2 + 2, 0.0, 4.0),  # ends in the terminal state
        2.0: (4 + 4, 0.0, 4.0),
        3.0: (8, 0.0, 4.0),
        10.0: (1 + 1, 0.25, 12.0),  # cut by a time limit: bootstraps
        11.0: (2, 0.5, 12.0),
    }


def uneven(lanes_steps: list[int], length: int, size: int) -> Replay:
    replay = Replay(size * len(lanes_steps), 1, 1, len(lanes_steps))
    for lane, steps in enumerate(lanes_steps):
        for t in range(steps):
            if t % length == 0:
                replay.start(lane, [lane * 10_000 + t])
            ends = t % length == length - 1
            replay.add(lane, [0.0], 0.0, [-1.0], terminated=ends and t % 2 == 0, truncated=ends and t % 2 == 1)
            # The row's observation is what the previous add put there: make it tell the row again.
            if not ends:
                replay._obs[replay._position(lane, replay.rows(lane))] = lane * 10_000 + t + 1
    return replay


@pytest.mark.parametrize(
    ("steps", "length", "size"),
    [
        ([60], 3, 200),  # 3-step episodes
        ([60], 1, 200),  # every second row is no transition
        ([300], 3, 70),  # wrapped
        ([200], 1, 31),
        ([5, 40, 0, 17], 3, 64),  # lanes of unequal fill, one empty
        ([10, 300, 64], 5, 64),  # one lane wrapped
        ([75], 1000, 50),  # one long episode longer than the ring
    ],
)
def test_transitions_are_drawn_uniformly(steps: list[int], length: int, size: int) -> None:
    replay = uneven(steps, length, size)
    draws = replay.sample(3, 0, 40, 1000).obs.ravel()
    names, counts = np.unique(draws, return_counts=True)
    assert names.size == len(replay)
    assert (names >= 0).all()  # never a final observation
    assert stats.chisquare(counts).pvalue > 1e-4


def test_an_update_draws_the_same_whichever_call_it_is_part_of() -> None:
    replay = uneven([50, 30], 3, 64)
    together = replay.sample(11, 5, 4, 32)
    for offset in range(4):
        alone = replay.sample(11, 5 + offset, 1, 32)
        np.testing.assert_array_equal(alone.obs[0], together.obs[offset])
    assert not np.array_equal(together.obs[0], together.obs[1])
    assert not np.array_equal(together.obs, replay.sample(12, 5, 4, 32).obs)
    assert not np.array_equal(together.obs, replay.sample(11, 5, 4, 32, stream="value").obs)


def test_a_rewound_stream_is_a_fresh_one() -> None:
    stream = CounterStream(5, "replay")
    stream.at(9).integers(0, 10, 3)  # leaves half a word behind, which must not leak into the next stream
    fresh = rng.stream(5, "replay", 2)
    np.testing.assert_array_equal(stream.at(2).integers(0, 1000, 50), fresh.integers(0, 1000, 50))


def test_batches_are_fresh_and_typed() -> None:
    replay = uneven([50], 3, 64)
    first = replay.sample(0, 0, 2, 8, with_next_action=True)
    kept = first.obs.copy()
    second = replay.sample(0, 1, 2, 8, with_next_action=True)
    for a, b in zip((*first[:5], *(first.extras or {}).values()), (*second[:5], *(second.extras or {}).values())):
        assert not np.shares_memory(a, b)
        assert a.shape[:2] == (2, 8)
        assert a.dtype in (np.float32, np.bool_)
    for column in (first.obs, first.action, first.reward, first.next_obs):
        column[:] = -7.0
    np.testing.assert_array_equal(replay.sample(0, 0, 2, 8).obs, kept)
    assert replay.sample(0, 0, 1, 4).extras is None and len(first.extras or {}) == 2


def test_starting_again_cuts_the_open_episode() -> None:
    replay = Replay(20, 1, 1)
    replay.start(0, [1.0])
    replay.add(0, [0.0], 1.0, [2.0], False, False)
    replay.start(0, [5.0])
    replay.add(0, [0.0], 1.0, [6.0], False, False)
    batch = replay.sample(0, 0, 1, 50, n_step=4, gamma=0.5)
    pairs = set(zip(batch.obs.ravel().tolist(), batch.next_obs.ravel().tolist(), batch.discount.ravel().tolist()))
    assert pairs == {(1.0, 2.0, 0.5), (5.0, 6.0, 0.5)}


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer than two rows"):
        Replay(7, 1, 1, lanes=4)
    replay = Replay(8, 1, 1)
    with pytest.raises(ValueError, match="call start"):
        replay.add(0, [0.0], 0.0, [0.0], False, False)
    replay.start(0, [0.0])
    replay.add(0, [0.0], 0.0, [0.0], True, False)
    with pytest.raises(ValueError, match="call start"):
        replay.add(0, [0.0], 0.0, [0.0], False, False)
    with pytest.raises(ValueError, match="not all in the ring"):
        replay.export(0, 0, 3)


def test_open_episode_is_what_happened_since_reset() -> None:
    replay = Replay(6, 1, 1)
    assert replay.open_episode(0) is None
    replay.start(0, [1.0])
    replay.add(0, [0.5], 0.0, [2.0], False, True)
    assert replay.open_episode(0) is None
    replay.start(0, [10.0])
    opened = replay.open_episode(0)
    assert opened is not None and opened[0].tolist() == [[10.0]] and opened[1].shape == (0, 1)
    for t in range(5):  # six rows: fills the ring to the last
        replay.add(0, [float(t)], 0.0, [11.0 + t], False, False)
    opened = replay.open_episode(0)
    assert opened is not None
    assert opened[0].ravel().tolist() == [10, 11, 12, 13, 14, 15]
    assert opened[1].ravel().tolist() == [0, 1, 2, 3, 4]
    replay.add(0, [5.0], 0.0, [16.0], False, False)
    assert replay.open_episode(0) is None


def copied(replay: Replay) -> Replay:
    """Move a ring through its export, as a checkpoint does."""
    other = Replay(replay.capacity, replay.obs_dim, replay.action_dim, replay.lanes)
    for lane in range(replay.lanes):
        start, stop = replay.oldest(lane), replay.rows(lane)
        middle = (start + stop) // 2
        other.restore_rows(lane, start, replay.export(lane, start, middle))
        other.restore_rows(lane, middle, replay.export(lane, middle, stop))
        opened = replay.open_observation(lane) if replay.is_open(lane) else None
        other.restore_lane(lane, stop, replay.episode_start(lane), opened)
    return other


@settings(max_examples=80, deadline=None)
@given(events, events, st.integers(1, 3), st.integers(2, 9))
def test_a_restored_ring_goes_on_with_the_same_bytes(
    before: list[tuple[int, str]], after: list[tuple[int, str]], lanes: int, size: int
) -> None:
    replay, models = Replay(lanes * size, 2, 1, lanes), [Model(size) for _ in range(lanes)]
    play(replay, models, before)
    restored = copied(replay)
    restored_models = [Model(size, open=model.open, rows=[Step(0.0)]) for model in models]
    for number, event in enumerate(["", *after]):
        if event:
            play(replay, models, [event], 1000 + number)
            play(restored, restored_models, [event], 1000 + number)
        assert len(replay) == len(restored)
        if len(replay):
            options = {"n_step": 1 + number % 3, "with_next_action": True}
            assert equal(replay.sample(0, number, 1, 16, **options), restored.sample(0, number, 1, 16, **options))
        for lane in range(lanes):
            ours, theirs = replay.open_episode(lane), restored.open_episode(lane)
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or all(np.array_equal(a, b) for a, b in zip(ours, theirs))


def test_a_million_humanoid_rows_fit() -> None:
    rows = 10_000
    assert Replay(rows, 348, 17).nbytes * (1_000_000 / rows) == 1_465_000_000 <= 1.55e9


def test_resident_memory_is_the_rows_written() -> None:
    program = """
        import numpy as np
        from beeline.memory import Replay
        def resident():
            line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
            return int(line.split()[1]) * 1024
        obs, action = np.ones(348, np.float32), np.ones(17, np.float32)
        small = Replay(10, 348, 17); small.start(0, obs); small.add(0, action, 1.0, obs, False, False)
        small.sample(0, 0, 1, 4)
        before = resident()
        replay = Replay(100_000, 348, 17)
        empty = resident() - before
        replay.start(0, obs)
        for t in range(105_000):
            replay.add(0, action, 1.0, obs, False, False)
        replay.sample(0, 0, 1, 256)
        print(empty, resident() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(Path(rng.__file__).parents[1])}
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout
    empty, full = map(int, out.split())
    assert empty < 5e6
    assert 1.40e8 < full <= 1.55e8


def test_sampling_is_quick() -> None:
    replay = Replay(10_000, 17, 6)
    replay.start(0, np.zeros(17))
    for _ in range(5_000):
        replay.add(0, np.zeros(6), 0.0, np.zeros(17), False, False)
    best = min(timeit.repeat(lambda: replay.sample(0, 1, 1, 256), number=50, repeat=20)) / 50
    assert best < 200e-6  # about 45 µs on an idle core; a busy machine is no failure


def test_what_is_drawn_from_a_specimen_has_the_shapes_of_what_is_drawn_from_the_ring() -> None:
    ring = Replay(40, 3, 2, lanes=2, columns={"extra": (4,)})
    for lane in (0, 1):
        ring.start(lane, np.ones(3))
        for _ in range(5):
            ring.add(lane, np.ones(2), 1.0, np.ones(3), False, False, {"extra": np.ones(4)})
    before = [ring.export(lane, 0, ring.rows(lane)) for lane in (0, 1)]
    for options in ({}, {"n_step": 3, "with_next_action": True}):
        theirs, own = (memory.sample(0, 0, 2, 7, **options) for memory in (ring.specimen(), ring))
        assert not theirs.obs.any() and own.obs.all()
        assert jax.tree.map(lambda x: (x.shape, x.dtype), theirs) == jax.tree.map(lambda x: (x.shape, x.dtype), own)
    after = [ring.export(lane, 0, ring.rows(lane)) for lane in (0, 1)]
    assert all(np.array_equal(x[name], y[name]) for x, y in zip(before, after) for name in x)
