from __future__ import annotations

import jax
import numpy as np

from beeline import rng


def test_streams_are_functions_of_seed_name_and_counter() -> None:
    draw = rng.stream(1, "a", 5).random(4)
    np.testing.assert_array_equal(draw, rng.stream(1, "a", 5).random(4))
    others = [rng.stream(2, "a", 5), rng.stream(1, "b", 5), rng.stream(1, "a", 6)]
    assert all(not np.array_equal(draw, other.random(4)) for other in others)


def test_neighbouring_counters_do_not_overlap() -> None:
    long = rng.stream(0, "a", 0).random(10_000)
    assert not np.isin(rng.stream(0, "a", 1).random(100), long).any()


def test_episode_seeds_are_distinct_and_small() -> None:
    roles = [("train", 0), ("train", 1), ("eval", 0)]
    seeds = [rng.episode_seed(s, role, lane, e) for s in (0, 1) for role, lane in roles for e in range(200)]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)


def test_keys_fold_in_the_name() -> None:
    root = jax.random.key(0)
    one, two = rng.fold(root, "explore", 3), rng.fold(root, "policy", 3)
    assert not np.array_equal(jax.random.key_data(one), jax.random.key_data(two))
    jitted = jax.jit(lambda c: rng.fold(root, "explore", c))(3)
    np.testing.assert_array_equal(jax.random.key_data(one), jax.random.key_data(jitted))
