"""An environment of one's own, through the installed command, from a folder that holds it and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from whole_runs import flags, small

ROOT = Path(__file__).parents[2]
RUN = flags(small("sac", steps=60, eval_every=40))
SCRIPT = "import sys\nfrom beeline.cli import main\nsys.exit(main())\n"  # as pip writes it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with the package that the docs describe; the command lies elsewhere."""
    page = (ROOT / "docs" / "adding-an-environment.md").read_text()
    package = tmp_path / "work" / "my_package"
    package.mkdir(parents=True)
    (package / "envs.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])  # type: ignore[index]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "beeline").write_text(SCRIPT)
    return package.parent


def installed(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell in that folder would: its own folder is on the path, the working folder is not."""
    command = [sys.executable, str(folder.parent / "bin" / "beeline"), *map(str, words)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "300", "XDG_STATE_HOME": str(folder.parent / "state")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_documented_commands_find_the_module_in_the_working_folder(folder: Path) -> None:
    done = installed(folder, "check-env", "my_package.envs:Reach-v0")
    assert done.returncode == 0 and "error" not in done.stdout and "warning" not in done.stdout, done.stdout + done.stderr
    done = installed(folder, "train", "sac", "my_package.envs:Reach-v0", *RUN, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the quick look finds nothing to say"
    done = installed(folder, "resume", "run", "--steps", "80")
    assert done.returncode == 0, done.stderr
    done = installed(folder, "eval", "run", "--episodes", "1")
    assert done.returncode == 0 and "length 100" in done.stdout


def test_nothing_installed_is_hidden_by_a_file_of_the_working_folder(folder: Path) -> None:
    for name in ("optax", "numpy", "secrets"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    done = installed(folder, "train", "sac", "my_package.envs:Reach-v0", *RUN, "--out", "run")
    assert done.returncode == 0, done.stderr


def test_arguments_in_the_id_reach_the_environment_and_the_record(folder: Path) -> None:
    (folder / "tank.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Tank(gymnasium.Env):\n"
        "    action_space = gymnasium.spaces.Box(-1, 1, (1,))\n"
        "    def __init__(self, size, mode='slow', walls=()):\n"
        "        assert (type(size), mode, walls) == (int, 'fast', [1.5, None]), (size, mode, walls)\n"
        "        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,))\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample() * 0, {}\n"
        "    def step(self, action):\n"
        "        return self.observation_space.sample() * 0, 0.0, False, False, {}\n"
        "gymnasium.register('Tank-v0', Tank)\n"
    )
    task = "tank:Tank-v0?size=3&mode=fast&walls=[1.5,null]&limit=10"
    done = installed(folder, "train", "sac", task, *RUN, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run" / "config.json").read_text())["env"] == task
    done = installed(folder, "eval", "run", "--episodes", "1")
    assert "length 10" in done.stdout, done.stderr


def test_train_looks_first_and_says_what_it_finds(folder: Path) -> None:
    text = (folder / "my_package" / "envs.py").read_text()
    odd = text.replace("np.concatenate([self.position, self.goal])", "np.array([4e3, 20, 0, 0]) * self.np_random.normal()")
    (folder / "my_package" / "envs.py").write_text(odd)
    done = installed(folder, "train", "sac", "my_package.envs:Reach-v0", *RUN, "--out", "run")
    assert done.returncode == 0, done.stderr
    bounds, scales = done.stderr.splitlines()
    assert re.match(r"note: observations leave the bounds of their observation_space: observation\[0\] was -?\d+", bounds)
    assert re.match(r"note: observations are badly scaled: observation\[0\] has .* Train with --normalize-obs\.", scales)
    done = installed(folder, "train", "sac", "my_package.envs:Reach-v0", *RUN, "--normalize-obs", "--out", "scaled")
    assert done.returncode == 0 and "badly scaled" not in done.stderr and "leave the bounds" in done.stderr, done.stderr


def test_an_exception_is_shown_with_the_users_own_lines_and_the_rest_is_in_the_run_folder(folder: Path) -> None:
    file = folder / "my_package" / "envs.py"
    file.write_text(file.read_text().replace("distance = float(", "self._pump()\n        distance = float("))
    late = "    def _pump(self):\n        self.count = getattr(self, 'count', 0) + 1\n        self.water[self.count > 120]\n"
    file.write_text(file.read_text().replace("    def render(self):", f"    water = [0]\n\n{late}\n    def render(self):"))
    done = installed(folder, "train", "sac", "my_package.envs:Reach-v0", *RUN, "--steps", 300, "--out", "run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    said = r"beeline: at step \d+ of the run: .*'my_package\.envs:Reach-v0' failed in step\(\): "
    assert re.match(said + r"IndexError: list index out of range \(my_package/envs\.py, line \d+\)", lines[0])
    assert lines[0].endswith(". A checkpoint is written; go on with: beeline resume run")
    assert lines[-1] == "The whole traceback is in run/error.txt"
    assert [line.strip() for line in lines[2:-1:2]] == ["self._pump()", "self.water[self.count > 120]"]
    assert "Traceback" in (folder / "run" / "error.txt").read_text()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU")
def test_a_device_that_is_not_there_is_a_sentence(folder: Path) -> None:
    done = installed(folder, "train", "sac", "gym/Pendulum-v1", "--device", "gpu", "--out", "run")
    assert done.returncode == 2 and not (folder / "run").exists()
    assert done.stderr.startswith("beeline: device = 'gpu' is not available here") and done.stderr.count("\n") == 1
