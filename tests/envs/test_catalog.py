import subprocess
import sys
from collections import Counter

import pytest

from beeline.agents.presets import paper_preset
from beeline.envs import catalog, ids, registry, tables
from beeline.envs.paper import PAPER_TASKS
from beeline.errors import UnknownNameError


def text(lines):
    return "\n".join("  ".join(line.columns.values()) for line in lines)


def test_the_paper_has_its_numbers_of_tasks():
    assert Counter(task.benchmark for task in PAPER_TASKS) == {
        "MuJoCo": 6,
        "DMControl": 15,
        "Meta-World": 14,
        "Adroit": 3,
        "Shadow Hand": 3,
        "ManiSkill": 5,
        "MyoSuite": 5,
        "panda-gym": 1,
        "D'Kitty": 9,
    }
    assert len({task.id for task in PAPER_TASKS}) == 61


def test_every_paper_task_is_in_a_table():
    for task in PAPER_TASKS:
        suite, name, _ = ids.split(task.id)
        assert name in tables.SUITES[suite].tasks, task.id


def test_listings():
    suites = text(catalog.rows())
    for name in tables.SUITES:
        assert name in suites
    hands = text(catalog.rows("adroit"))
    assert "adroit/door" in hands and "39" in hands and "28" in hands and "dmc" not in hands
    paper = text(catalog.rows(paper=True, preset=paper_preset))
    assert "dmc/dog-run" in paper and "paper (dmc-dog)" in paper and "stands in for TurnFaucet" in paper
    assert len(catalog.rows("adroit", paper=True)) == 3
    assert set(catalog.catalog()) == set(tables.SUITES)


def test_a_missing_suite_shows_its_pip_command(monkeypatch):
    monkeypatch.setattr(catalog, "installed", lambda suite: suite.extra is None)
    assert "[dmc]'" in text(catalog.rows())
    assert "pip" not in text(catalog.rows("gym"))


def test_unknown_suite():
    with pytest.raises(UnknownNameError, match="'metaworld'"):
        catalog.rows("metaword")


def test_listing_imports_no_simulator():
    code = """
import sys
from beeline.envs import catalog
catalog.rows(), catalog.rows("dmc"), catalog.rows(paper=True)
print([name for name in ("gymnasium", "mujoco", "dm_control", "metaworld", "torch", "sapien") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_extra_exists_in_the_project_file():
    import tomllib
    from pathlib import Path

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {suite.extra for suite in tables.SUITES.values() if suite.extra}
    assert wanted <= set(extras)
    assert all(extra in extras["all"][0] for extra in wanted)
    assert registry.installed(tables.SUITES["gym"])
