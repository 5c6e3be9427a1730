"""Networks as objects: bodies, ensembles of any shape, heads, and the slots that hold what is learnt."""

from __future__ import annotations

from beeline.networks.base import (
    Draw,
    Ensemble,
    Head,
    Learnable,
    Net,
    Params,
    Scalar,
    Slot,
    Written,
    adam,
    descend,
    parameter_count,
)
from beeline.networks.mlp import Bac, Ln, Mlp, Tanh, elu, layer_norm
from beeline.networks.normaliser import Statistics, init_statistics, normalise, observe, write_normalised

BODIES: dict[str, type[Mlp]] = {"mlp": Mlp, "bac": Bac, "ln": Ln, "tanh": Tanh}


def body(name: str, hidden: tuple[int, ...], initialiser: str, head_gain: float = 1.0) -> Net:
    """The body of that name."""
    return BODIES[name](tuple(hidden), initialiser, head_gain)


__all__ = [
    "BODIES", "Bac", "Draw", "Ensemble", "Head", "Learnable", "Ln", "Mlp", "Net", "Params", "Scalar", "Slot", "Statistics",
    "Tanh", "Written", "adam", "body", "descend", "elu", "init_statistics", "layer_norm", "normalise", "observe",
    "parameter_count", "write_normalised",
]  # fmt: skip
