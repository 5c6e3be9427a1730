"""Beeline: sample-efficient continuous control with the BEE operator.

    run = beeline.train("bac", "gym/Hopper-v5", steps=100_000, seed=0)
    model = beeline.BAC("gym/Hopper-v5"); model.learn(100_000); action, _ = model.predict(obs)

Importing this is quick: JAX and the simulators are imported when something is trained or loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from beeline.api import BAC, BEETD3, SAC, TD3, Model, Run, evaluate_run, export, load, resume, train
    from beeline.errors import BeelineError
    from beeline.loop import Callback, EvaluationEvent, StepEvent
    from beeline.run.policy import Policy

_HOMES = {
    "beeline.api": ("BAC", "BEETD3", "SAC", "TD3", "Model", "Run", "evaluate_run", "export", "load", "resume", "train"),
    "beeline.errors": ("BeelineError",),
    "beeline.run.policy": ("Policy",),
    "beeline.loop": ("Callback", "EvaluationEvent", "StepEvent"),
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'beeline' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])


__all__ = [
    "BAC", "BEETD3", "SAC", "TD3", "BeelineError", "Callback", "EvaluationEvent", "Model", "Policy", "Run", "StepEvent",
    "__version__", "evaluate_run", "export", "load", "resume", "train",
]  # fmt: skip
