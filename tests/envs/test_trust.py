"""No file makes Python import a module that the user has not named: policy files, config.json, matrix.json."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from toys import Walk
from whole_runs import flags, small

import beeline
from beeline import envs, files
from beeline.bench import execute, matrix, ray, worker
from beeline.bench import plan as bench_plan
from beeline.bench.plan import BenchRun
from beeline.cli import main
from beeline.envs import ids, registry, trust
from beeline.errors import CheckpointError, EnvError, RunFolderError, UnnamedModuleError
from beeline.run import diagnose

ROOT = Path(__file__).parents[2]
STRANGE = "stranger:Strange-v0"
CODE = """
import gymnasium, pathlib, toys
pathlib.Path(__file__).with_name("ran").touch()
gymnasium.register("Strange-v0", entry_point=toys.Walk)
"""


class Stranger:
    """A module that tells when it was run, and the user's memory of modules."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        (folder / "stranger.py").write_text(CODE)

    @property
    def ran(self) -> bool:
        found = (self.folder / "ran").exists()
        (self.folder / "ran").unlink(missing_ok=True)
        return found

    @property
    def list(self) -> list[str] | None:
        path = self.folder / "state" / "modules.json"
        return [entry["module"] for entry in json.loads(path.read_text())] if path.exists() else None

    def new_process(self) -> None:
        """What was named stays in the list alone, and the module can be imported once more."""
        self.patch.setattr(trust, "_named", set())
        self.patch.setattr(trust, "_inherited", False)
        sys.modules.pop("stranger", None)


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    monkeypatch.setenv("BEELINE_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Stranger(tmp_path, monkeypatch)
    found.new_process()
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beeline.train("sac", Walk, out=tmp_path_factory.mktemp("trust") / "run", **small("sac")).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run folder that somebody else's hand has made a run of the strange module."""
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", trained, copy], check=True)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"env": STRANGE}))
    policy = beeline.load(copy / "policy.npz")
    dataclasses.replace(policy, meta=policy.meta | {"env": STRANGE}).save(copy / "policy.npz")
    return copy


def contents(folder: Path) -> dict[str, bytes]:
    """What is in a folder, but for the lock that a command has held."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_policy_file_imports_nothing_that_was_not_named(stranger: Stranger, run: Path) -> None:
    for path in (run / "policy.npz", run):
        with pytest.raises(UnnamedModuleError, match=r"import the Python module 'stranger'.*--env stranger:Strange-v0"):
            beeline.evaluate_run(path, episodes=1)
    assert main(["eval", str(run)]) == 2
    assert not stranger.ran and stranger.list is None
    result, _ = beeline.evaluate_run(run / "policy.npz", episodes=1, env=STRANGE)
    assert result.lengths and stranger.ran and stranger.list == ["stranger"]
    stranger.new_process()
    beeline.evaluate_run(run, episodes=1)  # named before: remembered
    assert stranger.ran


@pytest.mark.parametrize("env_id", ["gym/stranger:Strange-v0", "gym/stranger:Strange-v0?repeat=2", "stranger:space/Strange-v0"])
def test_a_module_is_seen_wherever_it_stands(stranger: Stranger, run: Path, env_id: str) -> None:
    policy = beeline.load(run / "policy.npz")
    dataclasses.replace(policy, meta=policy.meta | {"env": env_id}).save(run / "policy.npz")
    with pytest.raises(UnnamedModuleError, match="'stranger'"):
        beeline.evaluate_run(run, episodes=1)
    with pytest.raises(UnnamedModuleError, match="'stranger'"):
        registry.make(env_id)
    assert not stranger.ran


def test_the_gate_and_the_name_mean_the_same_module(stranger: Stranger) -> None:
    """A name that no id of a module has, but the suite `gym` would import: the import itself is what is guarded."""
    for name in ("1stranger", "strange-r", "é"):
        (stranger.folder / f"{name}.py").write_text(CODE)
        with pytest.raises(UnnamedModuleError):
            registry.make(f"gym/{name}:Strange-v0")
        assert not stranger.ran
        envs.make(f"gym/{name}:Strange-v0").close()
        assert stranger.ran
    assert stranger.list == ["1stranger", "strange-r", "é"]


def test_a_run_folder_imports_nothing_that_was_not_named(stranger: Stranger, run: Path) -> None:
    before = contents(run)
    for read in (beeline.load, beeline.resume, lambda path: beeline.resume(path, steps=200), diagnose.diagnose_run):
        with pytest.raises((UnnamedModuleError, CheckpointError)):  # a changed id is refused even before it is asked
            read(run)
    for command in (["resume", run, "--steps", 200], ["diagnose", run]):
        assert main([str(word) for word in command]) == 2
    assert not stranger.ran and contents(run) == before
    # A run of this module for which its user speaks.
    (stranger.folder / "ours").mkdir()
    ours = beeline.train("sac", STRANGE, out=stranger.folder / "ours" / "run", **small("sac")).path
    assert stranger.ran
    stranger.new_process()
    (stranger.folder / "state" / "modules.json").unlink()
    assert main(["resume", str(ours), "--steps", "140", "--quiet"]) == 2 and not stranger.ran
    assert main(["resume", str(ours), "--steps", "140", "--quiet", "--env", STRANGE]) == 0 and stranger.ran
    stranger.new_process()
    assert main(["resume", str(ours), "--steps", "160", "--quiet"]) == 0 and stranger.ran


def test_python_with_the_current_folder_on_its_path(stranger: Stranger, run: Path) -> None:
    words = [sys.executable, "-m", "beeline", "eval", "run/policy.npz", "--episodes", "1"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(words, cwd=stranger.folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 2 and "would import the Python module 'stranger'" in done.stderr
    assert not stranger.ran


# --- matrices ---------------------------------------------------------------------------------------------------------


def written_matrix(out: Path, task: str = STRANGE) -> list[BenchRun]:
    """A matrix.json as a file that came from elsewhere."""
    options = small("sac")
    given = {name: options.pop(name) for name in ("steps", "preset")}
    runs = bench_plan.expand({"algos": "sac", "tasks": [task], "seeds": 1, "options": options} | given)
    out.mkdir()
    bench_plan.record(out, runs)
    return runs


def test_a_matrix_imports_nothing_that_was_not_named(stranger: Stranger, capsys: pytest.CaptureFixture) -> None:
    out = stranger.folder / "matrix"
    written_matrix(out)
    before = contents(out)
    assert main(["bench", "--out", str(out)]) == 2
    assert "'stranger'" in capsys.readouterr().err
    assert main(["paper", "underestimation", "--out", str(out)]) == 2  # which goes on with the plan that it finds
    assert not stranger.ran and contents(out) == before and stranger.list is None


@pytest.mark.parametrize("option", ["eval_env", "env", "init_from", "callbacks"])
def test_a_matrix_cannot_speak_through_other_arguments(option: str, stranger: Stranger, capsys: pytest.CaptureFixture) -> None:
    """Its options become keywords of `train`, which takes an id for evaluation as the user's word."""
    out = stranger.folder / "matrix"
    written_matrix(out, "gym/Pendulum-v1")
    content = json.loads((out / "matrix.json").read_text())
    content["runs"][0]["options"][option] = STRANGE
    (out / "matrix.json").write_bytes(files.sealed(content))
    assert main(["bench", "--out", str(out)]) == 2
    assert f"{option!r} is no option of sac" in capsys.readouterr().err
    with pytest.raises(RunFolderError):  # nor does a worker read such a plan
        bench_plan.recorded(out)
    assert not stranger.ran and stranger.list is None


def test_flags_and_matrix_files_are_the_users_word(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(matrix, "run", lambda out, runs, **more: seen.append([run.module for run in runs]) or 0)
    words = ["--algos", "sac", "--seeds", "1", *flags(small("sac"))]
    assert main(["bench", "--tasks", "stranger:Strange-v0,gym/Pendulum-v1", *words]) == 0
    assert seen == [["stranger", ""]] and stranger.list == ["stranger"]
    file = stranger.folder / "mine.toml"
    file.write_text('tasks = ["gym/other.one:X-v0"]')
    assert main(["bench", str(file), *words]) == 0
    assert stranger.list == ["other.one", "stranger"] and not stranger.ran


def test_a_worker_may_import_what_it_was_handed_and_nothing_else(stranger: Stranger) -> None:
    out = stranger.folder / "matrix"
    [run] = written_matrix(out)
    trust.allow(STRANGE)
    stranger.new_process()
    assert stranger.list == ["stranger"]  # on this machine; the worker may be on another
    trust.inherit([""])
    assert worker.run_one(out / run.folder, run) == 1
    assert "'stranger'" in json.loads(worker.failure_path(out / run.folder).read_text())["reason"]
    assert not stranger.ran and not (out / run.folder).exists()
    trust.inherit(["stranger"])
    (stranger.folder / "state" / "modules.json").unlink()
    assert worker.run_one(out / run.folder, run) == 0 and stranger.ran
    trust.allow("third:X-v0")  # what a module itself names is named in its worker alone
    assert stranger.list is None


def test_both_kinds_of_workers_are_handed_the_module(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    out = stranger.folder / "matrix"
    [run] = written_matrix(out)
    started: list[list[str]] = []

    class Process:
        returncode = 0

        def __init__(self, words: list[str], **more: Any) -> None:
            started.append(words[3:])

        poll = kill = wait = lambda self: 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    execute.LocalProcesses(out, ["0"], 0).submit(run)
    monkeypatch.setattr(ray.bench_claim, "appears", lambda *args: True)
    list(ray.execute("node", str(out), run.folder, 1, run.module, "token", {}, "/"))
    assert started == [
        [str(out), run.folder, "0", "stranger"],
        [str(out), run.folder, "free:1", "stranger", "token"],
    ]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_list_grows_and_survives_damage(stranger: Stranger, capsys: pytest.CaptureFixture) -> None:
    for given, expected in (("b.c:X-v0", ["b.c"]), ("gym/a:X-v0?limit=3", ["a", "b.c"]), ("gym/Hopper-v5", ["a", "b.c"])):
        trust.allow(given, None, Walk)
        assert stranger.list == expected
    stranger.new_process()
    trust.require("a", "a:X-v0")
    path = stranger.folder / "state" / "modules.json"
    odd = b'[{"module": 5, "place": ""}]'
    for damage in (b"\xff", b"{}", b'["a"]', b"[" * 100_000, b'[1, ["a"]]', b'[{"module": "a"}]', odd, b"3", b""):
        path.write_bytes(damage)
        with pytest.raises(UnnamedModuleError, match=r"modules\.json', the list of the modules that you named, is damaged"):
            trust.require("a", "a:X-v0")
    assert not capsys.readouterr().err
    trust.allow("a:X-v0")
    assert "is damaged or cannot be read, so it names none; it begins anew with a." in capsys.readouterr().err
    assert stranger.list == ["a"]
    path.write_bytes(b"[]")
    with pytest.raises(UnnamedModuleError, match=r"you have not named this module before\."):
        stranger.new_process()
        trust.require("a", "a:X-v0")
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", "modules.json"]


def test_a_module_of_the_same_name_elsewhere_is_another(stranger: Stranger, run: Path) -> None:
    """A folder from elsewhere may bring a module that is called like one of the user's own."""
    beeline.evaluate_run(run, episodes=1, env=STRANGE)
    assert stranger.ran
    for command in (["resume"], ["eval", "--episodes", "1"]):
        stranger.new_process()
        other = stranger.folder / command[0]
        other.mkdir()
        (other / "stranger.py").write_text(CODE)
        stranger.patch.syspath_prepend(str(other))
        assert main([command[0], str(run), *command[1:]]) == 2
        with pytest.raises(UnnamedModuleError, match=rf"you did is .*/stranger\.py, this one .*/{command[0]}/stranger\.py"):
            registry.make(STRANGE)
        assert not (other / "ran").exists() and not stranger.ran
    envs.make(STRANGE).close()
    assert (other / "ran").exists() and stranger.list == ["stranger", "stranger"]


def test_where_a_module_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {trust.place_of(name) for name in ("sys", "json", "json.tool", "gymnasium.envs.mujoco", "zipimport")} == {"installed"}
    assert {trust.place_of(name) for name in ("no_such_module.x", "", ".", "..a", "a\0b", "x" * 5000)} == {""}
    (tmp_path / "package" / "inner").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert trust.place_of("package.inner") == str(tmp_path / "package")  # without __init__.py
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    importlib.invalidate_caches()
    assert trust.place_of("package.inner") == str(tmp_path / "package" / "__init__.py")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "here.py").write_text("")
    assert trust.place_of("here") == ""
    monkeypatch.chdir(tmp_path / "work")
    assert trust.place_of("here") == str(tmp_path / "work" / "here.py")


def test_a_home_that_cannot_be_written_is_a_note(stranger: Stranger, capsys: pytest.CaptureFixture) -> None:
    (stranger.folder / "state").write_text("a file where the folder should be")
    envs.make(STRANGE).close()
    assert stranger.ran
    assert "note: that you named stranger cannot be remembered" in capsys.readouterr().err


def test_where_the_list_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BEELINE_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert trust.state_folder() == tmp_path / ".local" / "state" / "beeline"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # such a path is to be ignored, says its specification
    assert trust.state_folder() == tmp_path / ".local" / "state" / "beeline"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert trust.state_folder() == tmp_path / "state" / "beeline"


def test_installed_plugins_need_no_name(stranger: Stranger, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [EntryPoint("strange", "stranger:register", trust.GROUP)]
    monkeypatch.setattr(trust.metadata, "entry_points", lambda group: declared if group == trust.GROUP else [])
    with pytest.raises(UnnamedModuleError):
        registry.make("other:X-v0")
    beeline.evaluate_run(run, episodes=1)
    assert stranger.ran and stranger.list is None


def test_an_id_without_a_module_asks_nothing(stranger: Stranger) -> None:
    for env_id in ("gym/Hopper-v5", "dmc/walker-run?noise=1", "Hopper-v5", "", "?", "/", ":", "gym/:X"):
        assert ids.module_of(env_id) == ""
    trust.require("", "gym/Hopper-v5")
    with pytest.raises(EnvError, match=r"no_such_module.*start from the folder"):
        envs.make("no_such_module:X-v0")


# --- where the user speaks --------------------------------------------------------------------------------------------

DOORS = {
    "api.py": {"__init__", "load"},
    "bench/options.py": {"autombpo", "plan", "tune"},
    "cli/results.py": {"reference"},
    "envs/__init__.py": {"make", "spec_of"},
    "envs/check.py": {"check"},
    "policies.py": {"evaluate_run", "key_frames", "export"},
    "run/diagnose.py": {"diagnose_run"},
    "studies/underestimation.py": {"run"},
    "training.py": {"train", "resume"},
}
IMPORTS = {  # names of our own modules, but for that of envs/gym.py, before which the gate stands
    "__init__.py", "cli/commands.py", "config.py", "display.py", "envs/dkitty/picture.py", "envs/gym.py", "envs/ids.py",
    "envs/mbpo.py", "envs/registry.py", "envs/remote.py",
}  # fmt: skip


def calls(tree: ast.AST) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_modules_are_named_where_the_user_speaks_and_nowhere_else() -> None:
    """The functions that name a module are for the user's own words: nothing that reads a file may call them with an id."""
    doors: dict[str, set[str]] = {}
    imports, shortcuts = set(), set()
    for path in sorted((ROOT / "beeline").rglob("*.py")):
        name = str(path.relative_to(ROOT / "beeline"))
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and "trust.allow" in calls(node):
                doors.setdefault(name, set()).add(node.name)
        if {"importlib.import_module", "__import__"} & set(calls(tree)):
            imports.add(name)
        if {"envs.make", "envs.spec_of"} & set(calls(tree)):
            shortcuts.add(name)
    assert doors == DOORS
    assert imports == IMPORTS
    assert not shortcuts  # inside Beeline it is registry.make, which names nothing
