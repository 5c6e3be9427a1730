"""Dependencies point one way: the contract of pyproject.toml holds, and breaks where something looks upwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})


def test_no_room_imports_a_room_above_it() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


def test_an_upward_import_breaks_the_contract_even_inside_a_function(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "beeline", tmp_path / "beeline", ignore=shutil.ignore_patterns("__pycache__", "data", "assets"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "beeline" / "envs" / "spec.py").open("a") as file:
        file.write("\n\ndef peek():\n    from beeline.agents import registry\n\n    return registry\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "beeline.envs.spec -> beeline.agents.registry" in done.stdout
