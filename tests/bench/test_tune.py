"""A search: what is varied is checked before a run, trials are pruned, killed and gone on with, and the best can be trained."""

from __future__ import annotations

import csv
import errno
import json
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from searches import Written, best_at_half, search
from whole_runs import Zygote, flags, small

optuna = pytest.importorskip("optuna")

from beeline.bench import outcome, space  # noqa: E402
from beeline.bench import plan as bench_plan  # noqa: E402
from beeline.bench import study as bench_study  # noqa: E402
from beeline.bench import tune as bench_tune  # noqa: E402
from beeline.bench.execute import Ended  # noqa: E402
from beeline.bench.space import Choice, Range, TunePlan  # noqa: E402
from beeline.errors import BeelineError, MissingExtraError, RunFolderError  # noqa: E402

WALK = "toys:Walk-v0"


def make(words: dict[str, Any], **more: Any) -> TunePlan:
    given = {"preset": "light", "steps": 20_000, "seeds": [0], "trials": 4, "metric": "return", "startup": 2, "prune": True}
    return TunePlan.make("bac", "gym/A-v1", words, **{**given, "seed": 0, **more})


# --- what is varied ---------------------------------------------------------------------------------------------------


def test_ranges_and_choices_are_read_by_the_rules_of_their_options() -> None:
    plan = make({"lambda": "0..1", "actor-lr": "1e-5..1e-2:log", "batch_size": "64..256", "hidden": "8,8;16", "gamma": "0.9,auto",
                 "tau": "0.01"})  # fmt: skip
    assert plan.space == {
        "lam": Range(0.0, 1.0), "actor_lr": Range(1e-5, 1e-2, log=True), "batch_size": Range(64, 256, whole=True),
        "hidden": Choice(((8, 8), (16,))), "gamma": Choice((0.9, "auto")),
    }  # fmt: skip
    assert plan.options == {"tau": "0.01"}


BAD = [
    ({"lam": "0..2"}, "lam = 2.0 is out of range; allowed: >= 0 and <= 1"),
    ({"lam": "1..0"}, "lam = '1..0' is no range: its lower end must be below its upper end"),
    ({"lam": "0..1:log"}, "lam = '0..1:log': a range in logarithms begins above 0"),
    ({"lam": "0..1:cubic"}, "lam = '0..1:cubic' is no range; write LOW..HIGH"),
    ({"lam": "0..x"}, "lam = 'x' is not a number"),
    ({"lam": "0..0.5..1"}, "is no range; write LOW..HIGH"),
    ({"batch_size": "1.5..4"}, "batch_size = '1.5' is not a whole number"),
    ({"blend": "min..max"}, "blend = 'min..max' is a range, but blend holds no number"),
    ({"gamma": "0.9..auto"}, "gamma = '0.9..auto' is a range, but gamma holds no number"),
    ({"eval_every": "5..10"}, "eval_every = '5..10' is a range, but eval_every says nothing of what is trained"),
    ({"blend": "min,most"}, "blend = 'most' is out of range; allowed: one of"),
    ({"lam": "0.5,"}, "lam = '0.5,' is searched over one value: give 0.5"),
    ({"lam": 0.5}, "nothing is searched"),
    ({"lamb": "0..1"}, "unknown option of bac 'lamb'. Did you mean lam"),
    ({"random_steps": "100..30000", "lam": "0..1"}, "comes to random_steps 30000, lam 0.0, which cannot be run: steps"),
    ({"lam": "0..1", "eval_episodes": "0"}, "a search goes by evaluations"),
    ({"critic_updates_per_step": "1,2", "policy_updates_per_step": "2,3"}, "which cannot be run: policy_updates_per_step = 3"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_range_is_refused_before_the_first_run(words: dict[str, Any], message: str) -> None:
    with pytest.raises(BeelineError) as caught:
        make(words)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"), [({"trials": 0}, "trials = 0"), ({"metric": "fun"}, "metric = 'fun'"), ({"startup": 0}, "startup")]
)
def test_the_numbers_of_a_search_have_ranges(more: dict[str, Any], message: str) -> None:
    with pytest.raises(BeelineError, match=message):
        make({"lam": "0..1"}, **more)


def test_a_recorded_search_may_only_get_more_trials(tmp_path: Path) -> None:
    space.record(tmp_path, make({"lam": "0..1"}))
    assert space.recorded(tmp_path) == make({"lam": "0..1"})
    space.record(tmp_path, make({"lam": "0..1"}, trials=9))
    with pytest.raises(RunFolderError, match=r"search was \{'lam': '0..1'\}, now"):
        space.record(tmp_path, make({"lam": "0..0.5"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": 2}, "a format that this version does not read"), ({"search": {"lam": "0..9"}}, "out of range"),
     ({"task": 3}, "must be text"), ({"options": {"init_from": "x"}}, "is no option of bac"),
     ({"trials": "many"}, "trials = 'many'"), ({"steps": -1}, "steps = -1")],
)  # fmt: skip
def test_a_crafted_plan_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    space.record(tmp_path, make({"lam": "0..1"}))
    found = json.loads((tmp_path / space.FILE).read_text())
    (tmp_path / space.FILE).write_text(json.dumps(found | change))
    with pytest.raises(RunFolderError, match="is not as it was written"):
        space.recorded(tmp_path)
    del found["sha256"]
    (tmp_path / space.FILE).write_text(json.dumps(found | change))
    with pytest.raises(RunFolderError, match=message):
        space.recorded(tmp_path)


# --- searching, with runs that are written down instead of trained ----------------------------------------------------


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_tune, "PAUSE", 0.0)
    monkeypatch.setattr(bench_tune, "REFRESH", -1.0)


def test_a_trial_scores_the_mean_over_its_seeds(tmp_path: Path) -> None:
    plan = make({"lam": "0..1"}, seeds=[0, 4], prune=False, trials=5)
    study, places = search(tmp_path, plan)
    assert len(places.begun) == 10 and not places.given_up
    for trial in study.trials:
        slope = 1 - abs(trial.params["lam"] - 0.5)
        assert trial.value == pytest.approx(4 * slope + 2)
        assert trial.intermediate_values == {5_000 * n: pytest.approx(n * slope + 2) for n in (1, 2, 3, 4)}
    assert [run.folder for run in bench_plan.recorded(tmp_path)] == places.begun  # a matrix like any other
    ranked = outcome.ranked(study, plan)
    assert ranked[0].value == max(trial.value for trial in study.trials)


def test_a_trial_that_falls_behind_is_given_up_and_has_the_score_it_had(tmp_path: Path) -> None:
    plan = make({"lam": "0..1", "random_steps": "100"}, trials=6, startup=2)
    good = ("trial000", "trial001", "trial005")
    study, places = search(tmp_path, plan, value=lambda run, n: n if run.variant in good else -n)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2 + ["PRUNED"] * 3 + ["COMPLETE"]
    assert places.given_up == [f"gym-A-v1/trial{n:03d}/seed0" for n in (2, 3, 4)]
    assert [study.trials[n].value for n in (2, 3, 4)] == [-1.0] * 3
    _, places = search(tmp_path, plan)
    assert not places.begun  # nothing is left to do


def test_evaluations_of_the_warm_up_prune_nothing(tmp_path: Path) -> None:
    plan = make({"lam": "0..1", "random_steps": "10000"}, trials=4, startup=1)
    study, _ = search(tmp_path, plan, value=lambda run, n: (1.0 if run.variant == "trial000" else -1.0) if n < 3 else 1.0)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    assert all(set(trial.intermediate_values) == {15_000, 20_000} for trial in study.trials)


def test_a_search_that_is_gone_on_with_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    plan = make({"lam": "0..1", "hidden": "8;16;8,8"}, trials=8, prune=False)
    whole, _ = search(tmp_path / "whole", plan)
    assert len({trial.params["lam"] for trial in whole.trials}) == 8

    class Power(Exception):
        pass

    places = Written(tmp_path / "parts", best_at_half)
    plain = places.poll
    (tmp_path / "parts").mkdir()
    for die_at in (3, 17, 40):
        count = 0

        def poll(last: int = die_at) -> list[Ended]:
            nonlocal count
            count += 1
            if count == last:
                raise Power
            return plain()

        places.poll = poll  # type: ignore[method-assign]
        places.active = {}
        try:
            bench_tune.Search(tmp_path / "parts", plan, bench_study.open_study(tmp_path / "parts", plan), places).work()
        except Power:
            with (tmp_path / "parts" / bench_study.JOURNAL).open("ab") as journal:
                journal.write(b'{"op_code": 5, "half')  # as a process that is killed leaves it
    parts = bench_study.open_study(tmp_path / "parts", plan)
    assert [(trial.params, trial.value) for trial in parts.trials] == [(trial.params, trial.value) for trial in whole.trials]


def test_failed_trials_say_why_and_the_first_three_end_the_search(tmp_path: Path) -> None:
    plan = make({"lam": "0..1"}, trials=9)
    with pytest.raises(RunFolderError, match=r"the first 3 trials have all failed, the last one so: no such task\."):
        search(tmp_path, plan, fail="no such task.")
    assert bench_study.open_study(tmp_path, plan).trials[0].user_attrs == {"reason": "no such task."}


JOURNALS = [b"nonsense\n", b"nonsense", b"[1]\n", b'{"op_code": 99}\n', b'{"op_code": 0}\n']


@pytest.mark.parametrize("text", JOURNALS)
def test_a_damaged_journal_is_refused_in_words(text: bytes, tmp_path: Path) -> None:
    (tmp_path / bench_study.JOURNAL).write_bytes(text)
    with pytest.raises(RunFolderError, match=r"study\.jsonl cannot be read"):
        bench_study.open_study(tmp_path, make({"lam": "0..1"}))


def test_a_journal_of_other_numbers_is_seen(tmp_path: Path) -> None:
    plan, path = make({"lam": "0..1"}, trials=2), tmp_path / bench_study.JOURNAL
    search(tmp_path, plan)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    scored = next(line for line in lines if line.get("values"))
    sound, scored["values"] = list(scored["values"]), [99.0]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunFolderError, match=rf"SHA-256 of line {lines.index(scored) + 1} is another"):
        bench_study.open_study(tmp_path, plan)
    scored["values"] = sound
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:-1]))  # fewer lines are an earlier moment
    assert len(bench_study.open_study(tmp_path, plan).trials) == 2


def test_a_journal_without_seals_is_gone_on_with_and_sealed_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / bench_study.JOURNAL
    search(tmp_path, make({"lam": "0..1"}, trials=1))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "sha256"}) + "\n" for line in lines))
    plan = make({"lam": "0..1"}, trials=2)
    search(tmp_path, plan)
    assert len(bench_study.open_study(tmp_path, plan).trials) == 2
    path.write_bytes(path.read_bytes().replace(b'"study_name": "beeline"', b'"study_name": "other"'))
    with pytest.raises(RunFolderError, match=f"SHA-256 of line {len(lines) + 1} is another"):
        bench_study.open_study(tmp_path, plan)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = bench_study.open_study(tmp_path, make({"lam": "0..1"}))

    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    with pytest.raises(BeelineError, match=r"no space left while writing .*study\.jsonl"):
        study.ask()


CRAFTED = [
    {"values": ["x"]}, {"values": [10**400]}, {"distribution": "[" * 50_000}, {"values": [1.0, 2.0]}, {"values": [True]},
    {"directions": [1]}, {"directions": [2, 2]},
    {"step": "x"}, {"intermediate_value": "x"},
]  # fmt: skip


@pytest.mark.parametrize("change", CRAFTED, ids=lambda change: str(change)[:30])
def test_a_crafted_journal_without_seals_is_refused_in_words(change: dict[str, Any], tmp_path: Path) -> None:
    plan, path = make({"lam": "0..1"}, trials=2), tmp_path / bench_study.JOURNAL
    search(tmp_path, plan)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        del line["sha256"]
        line.update({key: value for key, value in change.items() if line.get(key) is not None})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunFolderError, match=r"study\.jsonl cannot be read"):
        bench_study.open_study(tmp_path, plan)


def test_a_hard_linked_copy_of_a_study_is_its_own(tmp_path: Path) -> None:
    plan = make({"lam": "0..1"}, trials=1)
    search(tmp_path / "one", plan)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / bench_study.JOURNAL).hardlink_to(tmp_path / "one" / bench_study.JOURNAL)
    before = (tmp_path / "one" / bench_study.JOURNAL).read_bytes()
    bench_study.open_study(tmp_path / "two", plan).ask()
    assert (tmp_path / "one" / bench_study.JOURNAL).read_bytes() == before


def test_the_study_is_json_and_reading_it_unpickles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make({"lam": "0..1"}, trials=3)
    search(tmp_path, plan)
    assert all(isinstance(json.loads(line), dict) for line in (tmp_path / bench_study.JOURNAL).read_bytes().splitlines())
    import pickle

    def refuse(*words: Any, **more: Any) -> Any:
        raise AssertionError("something is unpickled")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    assert len(bench_study.open_study(tmp_path, plan).trials) == 3


# --- what was found ---------------------------------------------------------------------------------------------------


def test_table_picture_and_best_say_what_mattered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make({"lam": "0..1", "hidden": "8,8;16", "tau": "1e-3..1e-1:log", "gamma": "0.98"}, trials=30, prune=False, startup=20)
    study, _ = search(tmp_path, plan)
    outcome.conclude(tmp_path, plan, study)
    said = capsys.readouterr().out
    weights = outcome.importances(study, plan)
    assert next(iter(weights)) == "lam" and weights["lam"] > 0.5 and sum(weights.values()) == pytest.approx(1)
    assert "importance: lam" in said and "(20 more in trials.csv)" in said
    with (tmp_path / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30 and float(rows[0]["return"]) == max(float(row["return"]) for row in rows)
    assert (tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")
    best = tomllib.loads((tmp_path / "best.toml").read_text())
    assert best["lam"] == pytest.approx(0.5, abs=0.1) and best["gamma"] == 0.98 and best["steps"] == 20_000
    assert best["hidden"] in ([8, 8], [16]) and "threads" not in best
    assert f"train with it: beeline train bac gym/A-v1 --config {tmp_path / 'best.toml'}" in said


def test_without_the_extra_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from beeline.cli import main

    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "bac", "gym/Pendulum-v1", "--lam", "0..1", "--out", str(tmp_path / "t")]) == 2
    assert "a search needs an extra" in capsys.readouterr().err and not (tmp_path / "t").exists()
    with pytest.raises(MissingExtraError):
        bench_tune.import_optuna()


# --- whole searches ---------------------------------------------------------------------------------------------------


def test_a_search_is_killed_gone_on_with_and_its_best_is_trained(beeline: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "search"
    words = ["tune", "bac", WALK, "--lam", "0..1", "--trials", "2", "--no-prune", "--workers", "2", *flags(small(steps=300))]
    first = beeline.start(*words, "--out", out)
    first.until(lambda: sum(path.read_bytes().count(b"\n") for path in out.glob("*/*/*/metrics.csv")) > 4)
    first.signal(signal.SIGKILL)
    first.wait()
    assert not (out / "best.toml").exists()
    other = beeline.start(*words[:3], "--lam", "0..0.5", *words[5:], "--out", out)
    assert other.wait() == 2 and "holds a search of another plan" in other.err
    done = beeline.run("tune", "--out", out)
    assert "2 trials are there" in done.out and "train with it" in done.out
    best = tomllib.loads((out / "best.toml").read_text())
    runs = sorted(out.glob("*/*/*/config.json"))
    assert len(runs) == 2 and best["lam"] in [json.loads(path.read_text())["agent"]["lam"] for path in runs]
    assert beeline.run("runs", out).out.count("finished") == 2
    beeline.run("report", out, "-o", tmp_path / "report.html")
    beeline.run("train", "bac", WALK, "--config", out / "best.toml", "--steps", "90", "--out", tmp_path / "trained", "--quiet")
    config = json.loads((tmp_path / "trained" / "config.json").read_text())
    assert config["agent"]["lam"] == best["lam"] and config["agent"]["hidden"] == [8, 8] and config["train"]["steps"] == 90


def test_a_config_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from beeline.cli import main

    for text, message in (("lamb = 0.5", "Did you mean lam"), ("lam = 2", "lam = 2.0 is out of range"), ("x", "is not TOML")):
        (tmp_path / "o.toml").write_text(text)
        assert main(["train", "bac", WALK, "--config", str(tmp_path / "o.toml"), "--out", str(tmp_path / "run")]) == 2
        said = capsys.readouterr().err
        assert message in said and "o.toml" in said
    assert main(["train", "bac", WALK, "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file" in capsys.readouterr().err
