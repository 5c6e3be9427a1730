"""Where every random number comes from: a seed, a name and a counter, never the order of calls.

Adding a part adds a name and leaves all other streams as they were, and a resumed run needs no generator state.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def tag(name: str) -> int:
    """A stable 32-bit number for a stream's name."""
    return zlib.crc32(name.encode())


def stream(seed: int, name: str, counter: int = 0) -> np.random.Generator:
    """A NumPy generator at position `counter` of the stream `name`."""
    return np.random.Generator(np.random.Philox(key=[seed, tag(name)], counter=[0, 0, 0, counter]))


def episode_seed(seed: int, role: str, lane: int, episode: int) -> int:
    """The reset seed of an episode: a function of (run seed, role, parallel env, episode number), below 2**31."""
    words = np.random.Philox(key=[seed, tag(f"{role}/{lane}")], counter=[0, 0, 0, episode]).random_raw(1)
    return int(words[0] >> np.uint64(33))


def root(seed: int) -> np.ndarray:
    """The raw JAX key that all keys of a run are folded from; on the host, so that it costs no compiled call."""
    return np.array([0, seed], np.uint32)


def fold(key: Any, name: str, counter: Any) -> Any:
    """The JAX key of part `name` at `counter`; `counter` may be traced."""
    import jax

    return jax.random.fold_in(jax.random.fold_in(key, tag(name)), counter)


def generator(key: Any) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key."""
    import jax

    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
