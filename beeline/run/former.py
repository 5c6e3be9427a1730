"""Checkpoints of format 1, as versions before the named memories wrote them, read as those of now.

Their arrays are the same; only names have changed: one learnable thing is now a slot of its live parameters, the copy that
follows them, and its optimiser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

_NAMES = (
    (r"^replay/open$", "memory/replay/open"),
    (r"^state/actor_state", "state/carry"),
    (r"^state/agent\.(actor|critic)_target", r"state/agent.\1.target"),
    (r"^state/agent\.(actor|critic)_opt", r"state/agent.\1.opt"),
    (r"^state/agent\.(actor|critic)(?=\[)", r"state/agent.\1.live"),
    (r"^state/agent\.exploit\['params'\]", "state/agent.backup['value'].live"),
    (r"^state/agent\.exploit\['opt'\]", "state/agent.backup['value'].opt"),
    (r"^state/agent\.blend", "state/agent.backup['blend']"),
    (r"^state/agent\.explore\['log_alpha'\]", "state/agent.objective['log_alpha'].live"),
    (r"^state/agent\.explore\['opt'\]", "state/agent.objective['log_alpha'].opt"),
    (r"^state/agent\.explore", "state/agent.objective"),
    (r"^state/agent\.normaliser", "state/agent.host['statistics']"),
)


def memories(content: Mapping[str, Any]) -> dict[str, Any]:
    """The memories of a manifest: there was one, or none."""
    return {} if content["replay"] is None else {"replay": content["replay"]}


def members(found: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The arrays of a state file by the names of now."""
    return {_renamed(name): array for name, array in found.items()}


def _renamed(name: str) -> str:
    for pattern, new in _NAMES:
        changed = re.sub(pattern, new, name)
        if changed != name:
            return changed
    return name
