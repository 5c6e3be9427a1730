"""A small sample of every kind of fault, and that everything the package writes and trains is tried at all.

`make faults` tries them by the hundred; docs/reliability.md has its figures.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crafted
import given
import harness
import kills
import limits
import mutations
import pytest
import worlds
from outcome import BAD, Outcome, Trial
from trials import Place

from beeline import agents
from beeline.report import references
from beeline.run import prior, sinks

# Cases by kind: the first of each stream, and at what distance. Kills, full disks and servers have tests of their own besides.
SAMPLE = {
    "mutations": (len(mutations.FILE_KINDS), 1), "crafted": (24, 19), "worlds": (10, 19), "limits": (4, 7), "serving": (8, 5),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("faults"))
    yield found
    found.close()


@pytest.mark.parametrize("kind", SAMPLE)
def test_no_fault_of_the_sample_is_raw_silent_lost_or_hangs(kind: str, place: Place) -> None:
    count, apart = SAMPLE[kind]
    chosen = itertools.islice(harness.stream(kind, 0), 0, count * apart, apart)
    bad = [trial for case in chosen if (trial := harness.tried(case, place)).outcome in BAD]
    assert not bad, "\n".join(map(str, bad))


def test_a_killed_run_ends_as_the_one_that_nobody_disturbed(place: Place) -> None:
    trial = kills.chain(place, "sample", "bac")
    assert trial.outcome == Outcome.HELD, trial


def test_only_what_has_a_q_is_diagnosed_and_models_are_trained_for_long() -> None:
    assert [kills.judged(algo) for algo in ("sac", "trpo", "pets")] == [True, False, False]
    based = [set(entry.config.names()) for entry in agents.ALGORITHMS.values() if entry.group == "model-based"]
    assert based and all(set(kills.TRAINING) & names for names in based)
    assert set(kills.TRAINING) <= set().union(*based)


def _met(signals: int) -> list[str]:
    """The names of the cases that this many signals are enough for."""
    each, left, names = kills.signals_each(len(agents.ALGORITHMS)), signals, []
    for case in kills.cases(0):
        left -= 2 if case.name.startswith("bench") else each
        if left < 0:
            return names
        names.append(case.name)
    raise AssertionError


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_every_algorithm_and_command_is_killed_however_many_there_are(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"{name}{'-again' * copy}": entry for copy in range(copies) for name, entry in agents.ALGORITHMS.items()}
    monkeypatch.setattr(agents, "ALGORITHMS", many)
    names = _met(harness.parsed([]).counts["kills"])
    assert all(any(name.startswith(f"{algo} ") for name in names) for algo in many)
    assert all(any(f" {what} " in name for name in names) for what in kills.TOGETHER)
    assert any(name.startswith("bench local") for name in names)
    assert any(name.startswith("bench ray") for name in names) or importlib.util.find_spec("ray") is None
    assert harness.COUNTS["kills"] == kills.BUDGET


def _kinds_of(subject: Any, folder: Path) -> set[Path]:
    own = [kind for kind in mutations.FILE_KINDS.values() if kind.subject is subject]
    return {path for kind in own for path in folder.glob(kind.pattern)}


WRITTEN = [
    mutations.run_folder, mutations.saved_model, mutations.matrix, mutations.sweep, given.exported, given.learned, given.state,
]  # fmt: skip


@pytest.mark.parametrize("subject", WRITTEN, ids=lambda s: s.__name__)
def test_every_file_that_is_written_is_damaged(subject: Any, place: Place) -> None:
    folder = subject(place)
    written = {path for path in folder.rglob("*") if path.is_file()}
    assert written == _kinds_of(subject, folder)


def test_every_file_that_only_some_folders_have_is_damaged(place: Place) -> None:
    """What a run with prior data, a search and a folder of runs have beside what every run has."""
    ordinary = {path.name for path in mutations.run_folder(place).iterdir()}
    out = mutations.records(place)  # readers write their tables into it
    assert out / references.FILE in _kinds_of(mutations.records, out)
    for subject in (given.prior_run, given.search):
        folder = subject(place)
        own = {path for path in folder.iterdir() if path.is_file() and path.name not in ordinary}
        assert own and own <= _kinds_of(subject, folder), subject.__name__
    copies = {path.name for path in given.prior_run(place).iterdir()} & set(prior.COPIES.values())
    assert copies == set(prior.COPIES.values()) == set(crafted.COPIES)


def test_everything_that_happens_at_a_step_and_all_prior_data_are_killed() -> None:
    tried = {option for variant in kills.TOGETHER.values() for option in variant}
    assert tried >= {"renew", "prior_share", *prior.COPIES}
    names = [case.name for case in itertools.islice(kills.cases(0), len(agents.ALGORITHMS) + len(kills.TOGETHER))]
    assert all(any(f" {what} " in name for name in names) for what in kills.TOGETHER)


def test_every_sink_meets_a_full_disk() -> None:
    written = {name for name, kind in inspect.getmembers(sinks, inspect.isclass) if hasattr(kind, "what") and name != "Sink"}
    assert written == set(limits.SINKS) - {"none"}


def test_there_are_as_many_trials_as_are_promised() -> None:
    for kind, least in harness.COUNTS.items():
        found = list(itertools.islice(harness.stream(kind, 0), least))
        assert len({case.name for case in found}) == len(found)
        if kind != "kills":  # a chain has several
            assert len(found) == least or (kind == "serving" and len(found) > 35)
    assert len(worlds.FAULTS) >= 30 and len(crafted.POLICIES) >= 60


def test_the_figures_are_put_onto_the_page_of_the_documentation(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((harness.HERE.parents[1] / "docs" / "reliability.md").read_text())
    before, after = page.read_text().partition(harness.BEGIN)[0], page.read_text().partition(harness.END)[2]
    arguments = harness.parsed(["--kinds", "kills", "--commit", "abc1234"])
    harness.write(page, [harness.Done("kills", "a", "held", "", 3, "abc1234")], arguments)
    text = page.read_text()
    assert text.startswith(before) and text.endswith(after) and before and after
    assert "At commit abc1234" in text and "`bee-td3`" in text and "9cc9c5b" not in text
    assert f"| {harness.TITLES['kills']} | 3 | 3 | 0 | 0 | 0 | 0 | 0 |\n{harness.END}" in text
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has no <!-- figures"):
        harness.write(page, [], arguments)


def test_the_journal_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    harness.enter(path, "kills", Trial("a", Outcome.HELD, count=3), "x")
    harness.enter(path, "kills", Trial("b", Outcome.RAW, "KeyError"), "x")
    harness.enter(path, "kills", Trial("a", Outcome.HELD), "y")
    with path.open("a") as file:
        file.write(json.dumps({"kind": "kills"})[:9])
    done = harness.journal(path, "x")
    assert [(each.name, each.outcome, each.count) for each in done] == [("a", "held", 3), ("b", "raw", 1)]
    assert "| 4 | 3 | 0 | 0 | 1 | 0 | 0 |" in harness.table(done, ("kills",))


