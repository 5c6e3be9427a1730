"""Beeline: sample-efficient continuous control with the BEE operator.

    run = beeline.train("bac", "gym/Hopper-v5", steps=100_000, seed=0)
    model = beeline.BAC("gym/Hopper-v5"); model.learn(100_000); action, _ = model.predict(obs)

Every algorithm has a class of its name; `beeline.model("theirs")` is that of an installed package. Importing this is quick: JAX
and the simulators are imported when something is trained or loaded.
"""

from __future__ import annotations

import importlib
from typing import Any

from beeline.agents.registry import OWN

__version__ = "0.1.0"

_HOMES = {
    "beeline.api": ("Model", "evaluate_run", "export", "load", "model", "resume", "train"),
    "beeline.run.opened": ("Run", "open"),
    "beeline.errors": ("BeelineError",),
    "beeline.run.policy": ("Policy",),
    "beeline.loop": ("Callback", "EvaluationEvent", "StepEvent"),
}  # fmt: skip
_WHERE = {name: module for module, names in _HOMES.items() for name in names}
_CLASSES = {entry.class_name: entry.name for entry in OWN.values()}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return importlib.import_module("beeline.api").model(_CLASSES[name])
    if name not in _WHERE:
        raise AttributeError(f"module 'beeline' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_CLASSES])


__all__ = sorted([*_CLASSES, *_WHERE, "__version__"])
