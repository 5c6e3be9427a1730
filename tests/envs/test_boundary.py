"""What an observation must be, on both sides of the length at which another check is the quicker one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeline.envs.adapter import flattener
from beeline.envs.boundary import FEW, Boundary
from beeline.errors import EnvError, NonFiniteError

LARGEST = float(np.finfo(np.float32).max)
SIZES = (1, 3, FEW, FEW + 1, 40)


def boundary(size: int, fresh: bool = False) -> Boundary:
    env: gymnasium.Env = gymnasium.Env()
    env.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
    return Boundary(env, "gym/Tank-v0", *flattener("gym/Tank-v0", env.observation_space, fresh))


@given(st.sampled_from(SIZES), st.data())
def test_what_is_finite_in_float32_passes_as_it_is_and_nothing_else_does(size: int, data: st.DataObject) -> None:
    numbers = st.floats(width=64) | st.sampled_from([LARGEST, -LARGEST, 3.5e38, -1e39, np.inf, -np.inf, np.nan])
    obs = np.array(data.draw(st.lists(numbers, min_size=size, max_size=size)))
    with np.errstate(over="ignore", invalid="ignore"):
        kept = obs.astype(np.float32)
    if np.isfinite(kept).all():
        found = boundary(size).observation(obs)
        assert found.dtype == np.float32 and np.array_equal(found, kept)
    else:
        with pytest.raises(NonFiniteError, match="observation"):
            boundary(size).observation(obs)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("size", [size for size in SIZES if size > 1])
def test_no_other_shape_or_type_passes(size: int, fresh: bool) -> None:
    row = np.zeros(size, np.float32)
    others: list[Any] = [
        row[:1], row[0], row[None], row[:, None], row[:, None][:, :0], np.zeros(size + 1, np.float32), np.zeros(0, np.float32),
        0.0, None, "text", row.astype(str), row.astype(complex), [[0.0]] * size,
    ]  # fmt: skip
    for other in others:
        with pytest.raises(EnvError, match=r"shape|observation"):
            boundary(size, fresh).observation(other)


@pytest.mark.parametrize("size", SIZES)
def test_another_type_of_number_is_kept_as_float32(size: int) -> None:
    for fresh in (False, True):
        for given_row in (np.ones(size), np.ones(size, np.int64), [1.0] * size):
            found = boundary(size, fresh).observation(given_row)
            assert found.dtype == np.float32 and found.tolist() == [1.0] * size
