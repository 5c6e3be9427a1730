"""Which versions of the simulators the figures in the tests are those of: the extra `pinned` of pyproject.toml."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
PINS: dict[str, str] = dict(pin.split("==") for pin in PROJECT["optional-dependencies"]["pinned"])


def elsewhere() -> str:
    """The pins that are not kept here, in words; empty where all are."""
    installed = {name: metadata.version(name) for name in PINS}
    return ", ".join(f"{name} {pin}, this is {installed[name]}" for name, pin in PINS.items() if installed[name] != pin)


at_the_pins = pytest.mark.skipif(bool(elsewhere()), reason=f"holds figures of {elsewhere()}")
"""Marks a test that compares with figures of a simulator, which are those of one version."""
