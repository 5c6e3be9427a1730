"""The residual body of SimBa (Lee et al. 2024): wide, with layer norms before every block, for tasks with many joints."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax import Array

from beeline.graph import Graph
from beeline.networks.base import Params
from beeline.networks.mlp import layer, layer_norm
from beeline.networks.passes import LN_EPSILON

EXPANSION = 4  # how much wider a block is inside


@dataclasses.dataclass(frozen=True)
class Simba:
    """x = W₀ i + b₀; for every block x ← x + W₂ ReLU(W₁ LN(x) + b₁) + b₂; then LN and a linear head.

    `hidden` has the width once for every block.
    """

    hidden: tuple[int, ...]
    head_gain: float = 1.0

    def init(self, draw: Any, inputs: int, *outputs: int) -> Params:
        """First and last layer orthogonal, the blocks normal with variance 2/fan_in (He et al. 2015), biases zero."""
        generator, width = draw.member(0), self.hidden[0]
        norm = {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}
        first = layer(generator, inputs, width, "orthogonal")
        blocks = []
        for _ in self.hidden:
            wide, narrow = _he(generator, width, EXPANSION * width), _he(generator, EXPANSION * width, width)
            blocks.append(norm | {"w1": wide, "b1": np.zeros(EXPANSION * width, np.float32)}
                          | {"w2": narrow, "b2": np.zeros(width, np.float32)})  # fmt: skip
        heads = [layer(generator, width, each, "orthogonal", self.head_gain) for each in outputs]
        last = {name: np.concatenate([head[name] for head in heads], axis=-1) for name in heads[0]}
        return (first, *blocks, norm | last)

    def apply(self, params: Params, x: Array) -> Array:
        """The output `[B, out]` at inputs `[B, in]`."""
        first, *blocks, last = params
        x = x @ first["w"] + first["b"]
        for block in blocks:
            inside = jax.nn.relu(_norm(block, x) @ block["w1"] + block["b1"])
            x = x + inside @ block["w2"] + block["b2"]
        return _norm(last, x) @ last["w"] + last["b"]

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`apply` as operations of a graph."""
        first, *blocks, last = params
        x = graph.linear(x, first["w"], first["b"])
        for block in blocks:
            normed = graph.layer_norm(x, block["scale"], block["shift"], LN_EPSILON)
            inside = graph.add("Relu", graph.linear(normed, block["w1"], block["b1"]))
            x = graph.add("Add", x, graph.linear(inside, block["w2"], block["b2"]))
        return graph.linear(graph.layer_norm(x, last["scale"], last["shift"], LN_EPSILON), last["w"], last["b"])


def _norm(params: dict[str, Array], x: Array) -> Array:
    return layer_norm(x, params["scale"], params["shift"], LN_EPSILON)


def _he(generator: np.random.Generator, fan_in: int, fan_out: int) -> np.ndarray:
    return (generator.standard_normal((fan_in, fan_out)) * math.sqrt(2.0 / fan_in)).astype(np.float32)
