"""The wheel: it builds, holds its data, and works where it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pins
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


def line(where: Path, cwd: Path, **more: str) -> str:
    """What is printed for somebody who lacks an extra."""
    code = "from beeline.errors import MissingExtraError; print(MissingExtraError('a search', 'tune'))"
    environment = os.environ | {"PYTHONPATH": str(where)} | more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=environment)
    return done.stdout.strip().partition("Run: ")[2] + done.stderr


def test_the_printed_pip_line_is_for_a_clone_a_wheel_or_an_index(wheel: Path, tmp_path: Path) -> None:
    assert line(ROOT, tmp_path) == f"pip install -e '{ROOT}[tune]'"
    assert line(ROOT, ROOT) == "pip install -e '.[tune]'"
    target = tmp_path / "else where"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True)
    assert line(target, tmp_path) == f"pip install '{wheel}[tune]'"
    dry = [*pip, "--dry-run", "--upgrade", f"{wheel}[tune]"]  # pip reads what is printed
    assert subprocess.run(dry, capture_output=True).returncode == 0
    (next(target.glob("beeline_rl-*.dist-info")) / "direct_url.json").unlink()  # as an index leaves it
    assert line(target, tmp_path) == "pip install 'beeline-rl[tune]'"


def test_the_core_has_ranges_and_the_suites_have_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all(re.fullmatch(r"[A-Za-z-]+>=[0-9.]+,<[0-9.]+", needed) for needed in project["dependencies"])
    extras = project["optional-dependencies"]
    for suite in ("dmc", "metaworld", "hands", "myo", "panda", "maniskill"):
        assert all("==" in needed or needed == "beeline-rl[pinned]" for needed in extras[suite])
    assert all("==" in needed for needed in extras["pinned"])
    installed = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert extras["pinned"] == [f"{name}=={installed[name]}" for name in ("gymnasium", "mujoco")]


def test_both_ends_of_every_range_are_asked_for() -> None:
    spec = importlib.util.spec_from_file_location("install_ends", ROOT / "benchmarks" / "install_ends.py")
    assert spec and spec.loader
    ends = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ends)
    lowest, highest = ends.requirements("lowest"), ends.requirements("highest")
    assert all("==" in needed for needed in lowest) and all("<" in needed for needed in highest)
    assert len(lowest) == len(highest) == len(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    assert all((ROOT / "tests" / name).exists() for name in ends.SMOKE)
    assert "install_ends.py lowest highest beside" in (ROOT / "Makefile").read_text()


def test_figures_of_physics_are_compared_at_the_pins_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: pins.PINS[name])
    assert pins.elsewhere() == ""
    monkeypatch.setattr(metadata, "version", lambda name: "4.0.0" if name == "mujoco" else pins.PINS[name])
    assert pins.elsewhere() == f"mujoco {pins.PINS['mujoco']}, this is 4.0.0"


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
