"""Pytrees of arrays to named NumPy arrays and back: what files hold."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from beeline.errors import CheckpointError


def to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """The leaves of a pytree, named by their path, as NumPy arrays of their own memory."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.array(leaf) for path, leaf in leaves}


def from_arrays(template: Any, arrays: dict[str, np.ndarray], prefix: str = "") -> Any:
    """A pytree shaped like `template` from all arrays under `prefix`; one missing, misshapen or left over is an error.

    What is NumPy in the template lives on the host and stays NumPy, in the template's precision.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    restored = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays:
            raise CheckpointError(f"it has no array {name!r}: it was made by another algorithm or other options.")
        array = arrays[name]
        on_host = isinstance(leaf, np.ndarray | np.generic)
        fits = array.dtype == leaf.dtype or (on_host and np.can_cast(array.dtype, leaf.dtype, "safe"))
        if array.shape != leaf.shape or not fits:
            raise CheckpointError(
                f"its array {name!r} is {array.dtype}{list(array.shape)} where {leaf.dtype}{list(leaf.shape)} is needed: "
                "it was made for other networks or another environment."
            )
        restored.append(np.array(array, leaf.dtype) if on_host else jax.numpy.array(array))
    needed = {prefix + jax.tree_util.keystr(path) for path, _ in leaves}
    for name in arrays:
        if name not in needed and (not prefix or name.startswith((f"{prefix}.", f"{prefix}["))):
            raise CheckpointError(f"it has an array {name!r} that has no place here: it was made with other options.")
    return jax.tree_util.tree_unflatten(structure, restored)
