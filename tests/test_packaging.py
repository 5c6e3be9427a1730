"""The wheel: it builds, holds its data, and works where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_has_code_data_and_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    needed_ones = (
        "beeline/py.typed", "beeline/__init__.pyi", "beeline/cli/commands.py", "beeline/agents/base.py",
        "beeline/report/data/curves.npz",
    )  # fmt: skip
    for needed in needed_ones:
        assert needed in names
    assert any(name.startswith("beeline/report/assets/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]


def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True)
    code = (
        f"import beeline, beeline.cli; assert beeline.__file__.startswith({str(target)!r}), beeline.__file__\n"
        "from beeline.report import published; assert len(published.curves('dmc/walker-run')) > 3\n"
        "assert beeline.cli.main(['algos']) == 0"
    )
    environment = os.environ | {"PYTHONPATH": str(target)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "bee-td3" in done.stdout


def test_core_needs_no_torch_and_every_suite_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [name for name in project["dependencies"] if name.startswith("torch")]
    with_torch = [extra for extra, needs in project["optional-dependencies"].items() if any(n.startswith("torch") for n in needs)]
    assert with_torch == ["maniskill"]
    suites = {"dmc", "metaworld", "hands", "myo", "panda", "maniskill"}
    assert suites <= set(project["optional-dependencies"])


def test_constraints_hold_names_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, separator, version = line.partition("==")
        assert line.startswith("#") or (separator and name and version and "/" not in line and "@" not in line), line
