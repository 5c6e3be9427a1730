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
from beeline.networks.mlp import Bac, Ln, Mlp, elu, layer_norm
from beeline.networks.normaliser import Statistics, init_statistics, normalise, observe, write_normalised

BODIES: dict[str, type[Mlp]] = {"mlp": Mlp, "bac": Bac, "ln": Ln}


def body(name: str, hidden: tuple[int, ...], initialiser: str) -> Net:
    """The body of that name."""
    return BODIES[name](tuple(hidden), initialiser)


__all__ = [
    "BODIES", "Bac", "Draw", "Ensemble", "Head", "Learnable", "Ln", "Mlp", "Net", "Params", "Scalar", "Slot", "Statistics",
    "Written", "adam", "body", "descend", "elu", "init_statistics", "layer_norm", "normalise", "observe", "parameter_count",
    "write_normalised",
]  # fmt: skip
