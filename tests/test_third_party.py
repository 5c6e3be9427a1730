"""Algorithms of other packages: found through their entry points, used like ours; one that fails is named and does no harm."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_runs import Zygote, flags, same_run, small, table

import beeline as api
from beeline import agents
from beeline.errors import BeelineError
from beeline.testing import check_agent

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "expected_sac"
WALK = "toys:Walk-v0"
THEIRS = '''
from dataclasses import dataclass
from beeline.agents import Entry
from beeline.agents.sac import SACConfig, build
from beeline.config import option

@dataclass(frozen=True)
class TheirsConfig(SACConfig):
    """SAC of theirs."""
    colour: str = option("red", "what it is painted in", choices=("red", "blue"), alias="paint")
    tau: float = option(0.01, "share of the online critics that enters the target critics", above=0.0, high=1.0)

ENTRY = Entry("theirs", "SAC, but theirs [really]", TheirsConfig, build,
              {"plain": lambda env_id: {"random_steps": 500}, "bright": lambda env_id: {"colour": "blue"}}, "painted")
'''
ALSO = "from theirs_package import ENTRY, TheirsConfig, build; import dataclasses; from beeline.agents import Entry\n"
# Other entry points, what each names, and why it cannot be used.
BROKEN = {
    "absent": ("", "ModuleNotFoundError: No module named 'absent_module'"),
    "raising": ("raise RuntimeError('no licence found')", "RuntimeError: no licence found"),
    "leaving": ("raise SystemExit(3)", "SystemExit: 3"),
    "nothing": ("ENTRY = 3", "TypeError: this is a int, not a beeline Entry"),
    "sac": (ALSO + "ENTRY = dataclasses.replace(ENTRY, name='sac')", "ValueError: the name 'sac' is taken"),
    "lost": (ALSO + "ENTRY = dataclasses.replace(ENTRY, name='lost', config_at='gone:Config')", "No module named 'gone'"),
    "odd": (ALSO + "ENTRY = dataclasses.replace(ENTRY, name='Odd one')", "is not made of small letters"),
    "steps": (
        "from dataclasses import dataclass; from beeline.agents import Entry; from beeline.agents.options import MethodConfig\n"
        "from beeline.config import option\n"
        "@dataclass(frozen=True)\nclass C(MethodConfig):\n    steps: int = option(1, 'x')\n"
        "ENTRY = Entry('steps', 'x', C, None)",
        "its option 'steps' has the name of one that every run has",
    ),
}  # fmt: skip


def install(site: Path, name: str, points: dict[str, str]) -> None:
    """What pip leaves of a package's metadata."""
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(f"{key} = {value}" for key, value in points.items())
    (folder / "entry_points.txt").write_text(f"[beeline.algorithms]\n{lines}\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with installed packages: theirs, our example, and several that cannot be used."""
    site = tmp_path_factory.mktemp("site")
    (site / "theirs_package.py").write_text(THEIRS)
    install(site, "theirs-package", {"theirs": "theirs_package:ENTRY"})
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, project["name"], project["entry-points"]["beeline.algorithms"])
    for name, (text, _) in BROKEN.items():
        if text:
            (site / f"{name}_module.py").write_text(text + "\n")
        install(site, f"broken-{name}", {name: f"{name}_module:ENTRY"})
    return site


@pytest.fixture(scope="module")
def env(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, (site, EXAMPLE, ROOT / "tests", ROOT)))}


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same packages in this process."""
    for path in (site, EXAMPLE):
        monkeypatch.syspath_prepend(str(path))
    importlib.invalidate_caches()
    agents.ALGORITHMS.forget()
    yield
    agents.ALGORITHMS.forget()


# --- finding ----------------------------------------------------------------------------------------------------------


def test_algos_lists_theirs_with_its_group_and_says_what_failed_and_why(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "beeline", "algos"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | env | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "painted" in lines["theirs"] and "SAC, but theirs [really]" in lines["theirs"]
    assert "actor-critic" in lines["expected-sac"] and "BEE" in lines["bee-expected-sac"]
    told = " ".join(done.stdout.split())
    for name, (_, why) in BROKEN.items():
        assert f"not usable: {name} (package broken-{name}, {name}_module:ENTRY: " in told and why in told


def test_broken_packages_do_no_harm_and_are_named_when_asked_for(installed: None) -> None:
    assert set(agents.ALGORITHMS) == {*agents.OWN, "theirs", "expected-sac", "bee-expected-sac"}
    assert agents.get("sac") is agents.OWN["sac"]
    with pytest.raises(BeelineError, match=r"'raising' cannot be used \(package broken-raising, .*no licence found\)"):
        agents.get("raising")
    with pytest.raises(BeelineError, match="Did you mean 'theirs'"):
        agents.get("their")


def test_the_stub_and_the_docs_know_ours_alone(installed: None) -> None:
    from beeline import models

    assert "THEIRS" not in models.stub() and "THEIRS" not in api.__all__
    assert api.model("theirs").__name__ == "THEIRS" and "colour: Literal" in (api.model("theirs").__doc__ or "")


# --- using ------------------------------------------------------------------------------------------------------------


def test_theirs_trains_evaluates_resumes_and_loads(beeline: Zygote, env: dict[str, str], tmp_path: Path, installed: None) -> None:
    words = flags(small("theirs"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    trained = beeline.run("train", "theirs", WALK, "--out", whole, "--paint", "blue", *words, env=env)
    assert "run folder" in trained.out
    config = json.loads((whole / "config.json").read_text())
    assert config["preset"] == "plain" and config["agent"]["colour"] == "blue" and config["agent"]["tau"] == 0.01
    beeline.run("train", "theirs", WALK, "--out", part, "--colour", "blue", *flags(small("theirs", steps=70)), env=env)
    beeline.run("resume", part, "--steps", 120, env=env)
    same_run(whole, part)
    assert "theirs on toys:Walk-v0" in beeline.run("eval", whole, "--episodes", 2, env=env).out
    model = api.load(whole)
    assert type(model) is api.model("theirs") and model.step == 120 and model.plan.agent.colour == "blue"
    model.learn(10)


def test_help_and_options_of_theirs(beeline: Zygote, env: dict[str, str]) -> None:
    text = " ".join(beeline.run("train", "theirs", "--help", env=env).out.split())
    assert "what it is painted in [plain red, bright blue; one of red, blue]" in text and "plain, bright" in text
    assert "colour" in beeline.run("algos", "theirs", env=env).out
    wrong = beeline.start("train", "theirs", WALK, "--colour", "green", env=env)
    assert wrong.wait() == 2 and "one of red, blue" in wrong.err


def test_theirs_runs_in_a_matrix_beside_ours(beeline: Zygote, env: dict[str, str], tmp_path: Path) -> None:
    options = {key: value for key, value in small(eval_episodes=1, learn_after=20).items() if key not in ("steps", "preset")}
    words = ["--algos", "theirs,sac", "--tasks", WALK, "--seeds", "1", "--steps", "60", "--colour", "blue", "--out", tmp_path]
    beeline.run("bench", *words, *flags(options), "--workers", "1", env=env)
    found = {path.parent.parent.name: json.loads(path.read_text()) for path in tmp_path.rglob("config.json")}
    assert found["theirs"]["agent"]["colour"] == "blue" and found["theirs"]["preset"] == "plain"
    assert "colour" not in found["sac"]["agent"] and found["sac"]["preset"] == "best"


# --- the example ------------------------------------------------------------------------------------------------------


def test_the_example_is_short() -> None:
    assert sum(len(path.read_text().splitlines()) for path in (EXAMPLE / "expected_sac").glob("*.py")) <= 80


def test_the_example_keeps_every_promise(installed: None) -> None:
    check_agent(agents.get("expected-sac"))


def test_one_sample_is_sac_to_the_byte(installed: None, tmp_path: Path) -> None:
    sac = api.train("sac", WALK, out=tmp_path / "sac", **small("sac"))
    one = api.train("expected-sac", WALK, out=tmp_path / "one", samples=1, **small("sac"))
    assert table(sac.path) == table(one.path)
    four = api.train("expected-sac", WALK, out=tmp_path / "four", **small("sac"))
    assert table(sac.path) != table(four.path)


@pytest.mark.parametrize("algo", ["expected-sac", "bee-expected-sac"])
def test_the_example_is_trained_killed_resumed_and_loaded(
    beeline: Zygote, env: dict[str, str], tmp_path: Path, installed: None, algo: str
) -> None:
    words = flags(small(algo, samples=3))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    beeline.run("train", algo, WALK, "--out", whole, *words, env=env)
    process = beeline.start("train", algo, WALK, "--out", killed, *words, env=env | {"TOY_KILL": "1:77"})
    assert process.wait() == -signal.SIGKILL
    beeline.run("resume", killed, env=env)
    same_run(whole, killed)
    model = api.load(killed)
    assert model.plan.agent.samples == 3 and model.plan.agent.bee == (algo == "bee-expected-sac")
    model.learn(10)
