"""What a network and a head are: `init`, `apply`; `value`, `loss`. Whoever has these can be trained by every method."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
import optax
from jax import Array

from beeline import rng
from beeline.graph import Graph

Params = Any  # a pytree of arrays


@dataclasses.dataclass(frozen=True)
class Draw:
    """Where a network's initial parameters come from: a seed, a name, and the step at which it was made anew."""

    seed: int
    name: str
    at: int = 0

    def member(self, number: int) -> np.random.Generator:
        """The generator of one member of an ensemble; a single network is member 0."""
        return rng.stream(self.seed, f"{self.name}@{self.at}" if self.at else self.name, number)

    def of(self, number: int) -> _Member:
        """The draw of one member, for a network that is itself made of one or more."""
        return _Member(self, number)


@dataclasses.dataclass(frozen=True)
class _Member:
    """A draw whose members are those of another from `number` on."""

    draw: Draw | _Member
    number: int

    def member(self, number: int) -> np.random.Generator:
        return self.draw.member(self.number + number)


@runtime_checkable
class Net(Protocol):
    """A network as an object: it holds its shape, never its parameters."""

    def init(self, draw: Any, inputs: int, *outputs: int) -> Params:
        """Initial parameters for inputs of this width; `draw.member(i)` is the generator of its i-th member."""

    def apply(self, params: Params, x: Array) -> Array:
        """The output at inputs `[B, in]`: `[B, out]`, or `[*members, B, out]` of an ensemble."""


@runtime_checkable
class Written(Protocol):
    """A network that can be written as a graph, so that a policy made of it can be exported."""

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """Write what `apply` computes at the value named `x`; the name of the output."""


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Independent members of one network, of any shape: (2,) are twins, (7, 2) seven pairs."""

    net: Net
    shape: tuple[int, ...]

    def init(self, draw: Any, inputs: int, *outputs: int) -> Params:
        """Members drawn by a generator each, stacked along leading axes."""
        members = [self.net.init(draw.of(number), inputs, *outputs) for number in range(int(np.prod(self.shape)))]
        return jax.tree.map(lambda *leaves: np.stack(leaves).reshape(*self.shape, *np.shape(leaves[0])), *members)

    def apply(self, params: Params, x: Array) -> Array:
        """Every member's output `[*shape, B, out]` at the same inputs."""
        # One copy of x per member makes the first layer a batched product like the others; with a shared x, XLA computes
        # [B, members · width] in one product and then pays for three transpositions of it.
        # The axes are those of the parameters, because some of the members may be asked alone.
        members = jax.tree.leaves(params)[0].shape[: len(self.shape)]
        copies = jax.numpy.broadcast_to(x, (*members, *x.shape))
        apply = self.net.apply
        for _ in self.shape:
            apply = jax.vmap(apply)
        return apply(params, copies)


class Head(Protocol):
    """How a critic's output is read as a value, and what pulls it towards a target."""

    @property
    def width(self) -> int:
        """How many numbers a network puts out for it."""

    def value(self, out: Array) -> Array:
        """Q or V `[..., B]` of outputs `[..., B, width]`."""

    def loss(self, out: Array, y: Array) -> Array:
        """The loss of each sample `[..., B]` against targets that broadcast to it."""


@dataclasses.dataclass(frozen=True)
class Scalar:
    """The output is the value; the loss is the squared error."""

    width: int = 1

    def value(self, out: Array) -> Array:
        """The one number."""
        return out[..., 0]

    def loss(self, out: Array, y: Array) -> Array:
        """(Q − y)²."""
        return jax.numpy.square(self.value(out) - y)


class Slot(NamedTuple):
    """One learnable thing: its live parameters, the copy that follows them (or None), and the optimiser's state."""

    live: Params
    target: Params | None
    opt: Any


@dataclasses.dataclass(frozen=True)
class Learnable:
    """A network with what it reads, how it is read, and the optimiser that moves it; its parameters live in a `Slot`."""

    net: Net
    inputs: int
    optimiser: Any
    outputs: tuple[int, ...] = (1,)
    followed: bool = False  # whether a slowly following copy is kept

    def draw(self, draw: Draw) -> Params:
        """Initial parameters."""
        return self.net.init(draw, self.inputs, *self.outputs)

    def slot(self, params: Params) -> Slot:
        """The slot of fresh parameters."""
        return Slot(params, params if self.followed else None, self.optimiser.init(params))

    def step(self, slot: Slot, loss: Any, rate: Any = None) -> tuple[Slot, Any]:
        """One step of its optimiser; see `descend`."""
        return descend(self.optimiser, slot, loss, rate)


def descend(optimiser: Any, slot: Slot, loss: Any, rate: Any = None) -> tuple[Slot, Any]:
    """One optimiser step on `loss(params) -> (value, more)`, `rate` times as far where given; returns `more` as well."""
    gradients, more = jax.grad(loss, has_aux=True)(slot.live)
    return move(optimiser, slot, gradients, rate), more


def move(optimiser: Any, slot: Slot, gradients: Params, rate: Any = None) -> Slot:
    """One optimiser step along gradients that are there already, `rate` times as far where given."""
    updates, opt = optimiser.update(gradients, slot.opt, slot.live)
    if rate is not None:
        updates = jax.tree.map(lambda update: rate * update, updates)
    return slot._replace(live=optax.apply_updates(slot.live, updates), opt=opt)


def adam(rate: float, *, beta1: float = 0.9, eps: float = 1e-8, clip: float | None = None, decay: float = 0.0) -> Any:
    """Adam (Kingma and Ba 2015), with a bound on the gradient's norm where one is given.

    `decay` is AdamW's (Loshchilov and Hutter 2019): every parameter also moves by −rate · decay of itself, but for a log σ that
    no network puts out: it is no weight, and zero is no rest of it.
    """
    plain = optax.adam(rate, b1=beta1, eps=eps)
    if decay:
        plain = optax.adamw(rate, b1=beta1, eps=eps, weight_decay=decay, mask=_weights)
    return plain if clip is None else optax.chain(optax.clip_by_global_norm(clip), plain)


def _weights(params: Params) -> Any:
    """Which leaves are a network's own."""
    return jax.tree_util.tree_map_with_path(lambda path, _: "log_std" not in jax.tree_util.keystr(path), params)


def parameter_count(tree: Any) -> int:
    """How many numbers a pytree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
