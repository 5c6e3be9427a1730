"""Installs the core at the lower and at the upper end of its ranges, and runs a small part of the suite there.

    python benchmarks/install_ends.py                    both ends, in virtual environments below .ends/
    python benchmarks/install_ends.py lowest             one of them
    python benchmarks/install_ends.py beside             beside stable-baselines3, whose gymnasium must stay as it is

The ranges are those of pyproject.toml. Lowest: every requirement at its `>=`. Highest: the newest version that the range lets
in, as pip finds it. What is compared with figures of one version of a simulator skips itself at another one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMOKE = ["test_config.py", "test_operators.py", "test_loop.py", "test_api.py", "envs/test_registry.py", "envs/test_adapter.py",
         "envs/test_dkitty.py", "run/test_record.py", "report/test_report_build.py"]  # fmt: skip
TOOLS = ["pytest>=8", "hypothesis>=6.100", "setuptools>=77"]
_RANGE = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+),<([0-9.]+)")


def ranges() -> list[tuple[str, str, str]]:
    """Name, lower end and upper bound of every requirement of the core."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [_RANGE.fullmatch(requirement) for requirement in project["dependencies"]]
    if not all(found):
        raise SystemExit(f"a requirement of the core is no range: {project['dependencies']}")
    return [(match[1], match[2], match[3]) for match in found if match]


def requirements(end: str) -> list[str]:
    """What pip is asked for at an end."""
    return [f"{name}=={low}" if end == "lowest" else f"{name}>={low},<{high}" for name, low, high in ranges()]


def environment(folder: Path) -> Path:
    """A fresh virtual environment; its Python."""
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def pip(python: Path, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *words], check=True)


def version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def try_end(end: str, below: Path) -> int:
    """Install one end and run the smoke tests there; their exit code."""
    python = environment(below / end)
    pip(python, *TOOLS, *requirements(end), *(["--upgrade"] if end == "highest" else []))
    pip(python, "--no-deps", "-e", str(ROOT))
    print(f"{end}: " + ", ".join(f"{name} {version(python, name)}" for name, *_ in ranges()), flush=True)
    return subprocess.run([python, "-m", "pytest", *(f"tests/{name}" for name in SMOKE)], cwd=ROOT).returncode


def chosen(python: Path, *wanted: str) -> dict[str, str]:
    """The versions that pip would install for what is wanted, by name."""
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run", "--report", "-", *wanted]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = [entry["metadata"] for entry in report["install"]]
    return {entry["name"].lower().replace("_", "-"): entry["version"] for entry in found}


def try_beside(below: Path) -> int:
    """Whether the newest stable-baselines3 keeps its gymnasium, numpy and torch where Beeline is installed as well; 1 if not."""
    python = environment(below / "beside")
    alone, both = chosen(python, "stable-baselines3"), chosen(python, "stable-baselines3", str(ROOT))
    names = ("stable-baselines3", "gymnasium", "numpy", "torch")
    for name in names:
        print(f"beside stable-baselines3: {name} {alone[name]}, with Beeline {both[name]}", flush=True)
    return int(any(alone[name] != both[name] for name in names))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("end", nargs="*", default=["lowest", "highest"], choices=["lowest", "highest", "beside"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".ends", help="where the environments are made [.ends]")
    given = parser.parse_args()
    codes = [try_beside(given.folder) if end == "beside" else try_end(end, given.folder) for end in given.end]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
