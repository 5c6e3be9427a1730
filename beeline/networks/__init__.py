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
from beeline.networks.heads import HEADS, HLGauss, TwoHot
from beeline.networks.mlp import Bac, Ln, Mlp, Tanh, elu, layer_norm
from beeline.networks.normaliser import Statistics, init_statistics, normalise, observe, write_normalised
from beeline.networks.simba import Simba

BODIES: dict[str, type[Mlp]] = {"mlp": Mlp, "bac": Bac, "ln": Ln, "tanh": Tanh}


def body(name: str, hidden: tuple[int, ...], initialiser: str, head_gain: float = 1.0) -> Net:
    """The body of that name; `simba` has initial weights of its own."""
    if name == "simba":
        return Simba(tuple(hidden), head_gain)
    return BODIES[name](tuple(hidden), initialiser, head_gain)


__all__ = [
    "BODIES", "HEADS", "Bac", "Draw", "Ensemble", "HLGauss", "Head", "Learnable", "Ln", "Mlp", "Net", "Params", "Scalar", "Simba",
    "Slot", "Statistics", "Tanh", "TwoHot", "Written", "adam", "body", "descend", "elu", "init_statistics", "layer_norm",
    "normalise", "observe", "parameter_count", "write_normalised",
]  # fmt: skip
