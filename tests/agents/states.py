"""How a state of the off-policy update is laid out and its noise drawn: what tests that hold it against a plain form need."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain

from beeline import rng
from beeline.agents import get
from beeline.agents.base import Spaces, Task
from beeline.agents.off_policy import OffPolicy, State
from beeline.memory import Batch, Data

SPACES = Spaces(5, (-2.0, -0.4), (2.0, 0.4))
SMALL = {"hidden": (16, 16), "batch_size": 32}


def agent(algo: str, task: Task | Spaces = SPACES, **options: Any) -> Any:
    """A small agent."""
    entry = get(algo)
    return entry.build(entry.config.make({**SMALL, **options}), task)


def batch(updates: int = 1, seed: int = 0) -> Batch:
    """Transitions whose discounts are those of n steps, some of them terminal, and of whose next actions some do not exist."""
    r = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return r.normal(size=(updates, 32, *shape)).astype(np.float32)

    powers = r.integers(0, 4, (updates, 32))
    discount = np.where(powers == 0, 0.0, 0.99**powers).astype(np.float32)
    valid = r.random((updates, 32)) < 0.7
    extras = {"next_action": np.tanh(normal(2)), "next_action_valid": valid}
    return Batch(normal(5), np.tanh(normal(2)), normal(), discount, normal(5), extras)


def one(b: Batch) -> Batch:
    """The batch without its leading axis."""
    return jax.tree.map(lambda x: x[0], b)


def learn(a: OffPolicy, state: State, b: Batch) -> tuple[State, dict[str, Any]]:
    """The next updates of a state."""
    return a.update(state, Data(b, int(state.updates)))


def leaves_equal(a: Any, b: Any) -> bool:
    x, y = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(x) == len(y) and all(np.array_equal(p, q) for p, q in zip(x, y))


def read(state: State) -> plain.Arrays:
    """Everything that learns or counts, under the names that tests/agents/plain.py gives it."""

    def layers(prefix: str, params: Any) -> plain.Arrays:
        return {f"{prefix}/{depth}/{name}": leaf for depth, layer in enumerate(params) for name, leaf in layer.items()}

    found: plain.Arrays = {"updates": state.updates}

    def part(name: str, live: Any, target: Any, opt: Any, arrays: Any = layers) -> None:
        is_adam = lambda node: isinstance(node, optax.ScaleByAdamState)  # noqa: E731
        [moments] = [node for node in jax.tree.leaves(opt, is_leaf=is_adam) if is_adam(node)]
        found.update({f"{name}/count": moments.count} | arrays(f"{name}/live", live))
        found.update(arrays(f"{name}/m", moments.mu) | arrays(f"{name}/v", moments.nu))
        found.update({} if target is None else arrays(f"{name}/target", target))

    part("policy", *state.actor)
    part("critic", *state.critic)
    if state.backup:
        part("value", *state.backup["value"])
        found.update({f"blend/{name}": leaf for name, leaf in (state.backup["blend"] or {}).items()})
    if state.objective:
        part("alpha", *state.objective["log_alpha"], lambda prefix, leaf: {f"{prefix}/log": leaf})
    return {name: np.array(leaf) for name, leaf in found.items()}


def noise_of(state: State, rounds: int) -> plain.Arrays:
    """The standard normal noise of the next update, by what it is for."""
    root, number = jax.random.wrap_key_data(state.key), int(state.updates)
    keys = {name: rng.fold(root, name, number) for name in ("explore", "exploit")}
    keys |= {f"policy/{turn}": jax.random.fold_in(rng.fold(root, "policy", number), turn) for turn in range(rounds)}
    return {name: np.array(jax.random.normal(key, (32, 2))) for name, key in keys.items()}


def elsewhere(state: State, seed: int) -> State:
    """A state in which no learnt leaf is what it began as: targets have left the networks, Adam has moments, counts are 7."""
    r = np.random.default_rng(seed)

    def move(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if leaf.dtype == jnp.uint32 or name.startswith(".host"):  # the key, and what the update only reads
            return leaf
        if leaf.dtype == jnp.int32:
            return leaf + 7
        drift = r.normal(0.0, 0.1, leaf.shape).astype(np.float32)
        return leaf + (0.005 + np.square(drift) if ".nu" in name else drift)

    return jax.tree_util.tree_map_with_path(move, state)


def assert_same(got: plain.Arrays, expected: plain.Arrays, when: str) -> None:
    assert got.keys() == expected.keys()
    for name, array in got.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=5e-6, err_msg=f"{name} after {when}")
