"""A policy as a graph of a few operations, neutral of who will run it. Imports numpy alone.

Networks and policies write themselves into one (`write(graph, params, x)`); the operations and their attributes are those of
ONNX (opset 17), and `beeline.run.onnx` makes a file of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Node:
    """One operation: its name, the values it reads, the value it makes."""

    operation: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class Graph:
    """Operations in the order they are computed, and the arrays they read; every value has a name."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, value: Any) -> str:
        """An array of the graph's own, in single precision unless it holds integers."""
        array = np.asarray(value)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        return name

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Apply an operation; the name of what comes out."""
        output = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(Node(operation, inputs, output, attributes))
        return output

    def linear(self, x: str, weights: Any, bias: Any) -> str:
        """x W + b."""
        return self.add("Gemm", x, self.constant(weights), self.constant(bias))

    def layer_norm(self, x: str, scale: Any, shift: Any, epsilon: float) -> str:
        """x in units of its deviation over the last axis, then scaled and shifted."""
        return self.add("LayerNormalization", x, self.constant(scale), self.constant(shift), axis=-1, epsilon=epsilon)

    def bounded(self, x: str, low: Any, high: Any) -> str:
        """x clipped to bounds that may differ from column to column."""
        return self.add("Min", self.add("Max", x, self.constant(low)), self.constant(high))

    def columns(self, x: str, start: int, stop: int) -> str:
        """The columns from `start` up to `stop`."""
        return self.add("Slice", x, self.constant([start]), self.constant([stop]), self.constant([1]))
