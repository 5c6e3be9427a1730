"""Reference scores of own tasks: measured or given, found above the runs, and what aggregates make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matrices import words
from report_fixtures import make_run
from whole_runs import Zygote

from beeline import report
from beeline.bench import plan as bench_plan
from beeline.envs import registry, trust
from beeline.errors import ConfigError, UnreadableError
from beeline.evaluate import evaluate
from beeline.report import references
from beeline.report.model import model
from beeline.report.normalise import normalisation
from beeline.report.references import Reference
from beeline.report.runs import read_all
from beeline.rng import stream
from beeline.run.reading import Damage

OWN, WALK = "tank:Tank-v0", "toys:Walk-v0"


def test_a_score_is_zero_for_a_random_policy_and_one_for_an_expert() -> None:
    rule = normalisation(OWN, Reference(-100.0, 300.0))
    assert rule.apply(np.array([-100.0, 0.0, 300.0, 500.0])).tolist() == [0.0, 0.25, 1.0, 1.5]
    assert rule.statement == f"{OWN}: (return − -100) / (300 − -100), 0 for a random policy and 1 for an expert"


def test_what_a_reference_does_not_say_is_taken_from_the_suite() -> None:
    assert normalisation(OWN, Reference(expert=50.0)).apply(np.array([25.0])) == [0.5]
    hopper = normalisation("gym/Hopper-v5", Reference(random=42.0))
    assert (hopper.zero, hopper.scale) == (42.0, 3500.0)
    lone = normalisation(OWN, Reference(random=-3.0))
    assert lone.scale is None and "give an expert's score: beeline reference TASK --expert SCORE" in lone.statement
    assert normalisation("metaworld/hammer", Reference(1.0, 9.0)).metric == "return"
    assert normalisation("gym/Hopper-v5", Reference(random=4000.0)).zero == 0.0


BAD: list[tuple[Any, str]] = [
    ({OWN: {"random": "low"}}, "random = 'low' is not a finite number"),
    ({OWN: {"expert": float("nan")}}, "expert = nan is not a finite number"),
    ({OWN: {"expert": True}}, "expert = True is not a finite number"),
    ({OWN: {"expert": 10**400}}, "expert = 1000.* is not a finite number"),
    ({OWN: {"random": -1.7e308, "expert": 1.7e308}}, "are too far apart"),
    ({OWN: {"random": 5, "expert": 5}}, "expert = 5 is not above random = 5"),
    ({OWN: {"best": 5}}, "has random and expert, each a number, and nothing else"),
    ({OWN: 5}, "has random and expert, each a number, and nothing else"),
    ([OWN], "reference must be a table per task"),
]


@pytest.mark.parametrize(("tables", "message"), BAD)
def test_what_is_wrong_with_a_reference_is_said(tables: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        references.parse(tables, "matrix.toml")


def test_references_are_added_to_and_the_nearest_counts(tmp_path: Path) -> None:
    references.store(tmp_path, {OWN: Reference(random=-1.0), WALK: Reference(0.0, 1.0)})
    references.store(tmp_path, {OWN: Reference(expert=7.0)})
    assert references.read(tmp_path) == {OWN: Reference(-1.0, 7.0), WALK: Reference(0.0, 1.0)}
    references.store(tmp_path / "matrix", {OWN: Reference(-2.0, 2.0)})
    run = tmp_path / "matrix" / "task" / "variant" / "seed0"
    assert references.above([(run, OWN), (run, WALK)], print) == {OWN: Reference(-2.0, 2.0), WALK: Reference(0.0, 1.0)}
    assert references.above([(run / "a", WALK)], print) == {}  # too far above


def test_a_score_that_is_another_is_seen(tmp_path: Path) -> None:
    path = references.store(tmp_path, {OWN: Reference(-1.0, 7.0)})
    path.write_text(path.read_text().replace("7.0", "9.0"))
    with pytest.raises(UnreadableError, match="is not as it was written"):
        references.read(tmp_path)
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content))  # somebody has edited it
    assert references.read(tmp_path) == {OWN: Reference(-1.0, 9.0)}


DAMAGED = ["nonsense", "[]", '{"format": 2}', '{"format": 1, "tasks": {"a": {"random": "x"}}}', '{"format": 1}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_a_warning_and_the_report_is_made(text: str, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", env=OWN)
    (tmp_path / "runs" / references.FILE).write_text(text)
    said: list[Damage] = []
    report.build([tmp_path / "runs"], tmp_path / "report.html", note=said.append)
    assert len(said) == 1 and "references.json" in str(said[0]) and "Its scores are not used" in str(said[0])


def test_an_own_task_is_in_the_aggregates_with_its_reference(tmp_path: Path) -> None:
    for algo, level in (("bac", 0.8), ("sac", 0.4)):
        for seed in range(3):
            make_run(tmp_path, algo, OWN, seed, level=level)
    runs = read_all([tmp_path])
    assert model(runs)["aggregates"] is None
    references.store(tmp_path, {OWN: Reference(100.0, 600.0)})
    found = model(runs, references=references.above(((run.path, run.task) for run in runs), print))
    scores = np.array([entry["scores"] for entry in found["tasks"][0]["final"]])
    means = [row["mean"]["value"] for row in found["aggregates"]["rows"]]
    assert means == pytest.approx(((scores - 100) / 500).mean(axis=1), rel=1e-6)
    assert found["statements"] == [f"{OWN}: (return − 100) / (600 − 100), 0 for a random policy and 1 for an expert"]


def test_the_random_policy_draws_evenly_between_the_bounds() -> None:
    trust.allow(WALK)
    mean, error = references.measure(WALK, 30, seed=3)
    draw = stream(3, "random policy")
    env = registry.make(WALK)
    plain = evaluate(lambda obs: draw.uniform(-1, 1, (2,)).astype(np.float32), env, seed=3, episodes=30)
    assert mean == plain.mean and error == pytest.approx(np.std(plain.returns, ddof=1) / np.sqrt(30))


def test_the_command_measures_stores_and_says_what_is_missing(beeline: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    first = beeline.run("reference", WALK, "--random", "--episodes", 5, "--out", out)
    assert "random: return -" in first.out and f"beeline reference {WALK} --expert SCORE" in first.out
    second = beeline.run("reference", WALK, "--expert", "-0.5", "--out", out)
    assert "Give an expert" not in second.out
    assert references.read(out)[WALK].expert == -0.5 and references.read(out)[WALK].random < -0.5
    for arguments, message in (
        (["--out", out], "nothing to do: give --random"),
        (["--expert", "good", "--out", out], "expert = 'good' is neither a number nor a run folder"),
        (["--expert", "-1000000", "--out", out], "is not above random"),
        (["--random", "--episodes", 0], "episodes = 0 is out of range"),
    ):
        refused = beeline.start("reference", WALK, *arguments)
        assert refused.wait() == 2 and message in refused.err


def test_the_references_of_a_matrix_file_lie_in_its_folder_and_a_run_can_be_the_expert(beeline: Zygote, tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(f'[reference."{WALK}"]\nrandom = -9.5\nexpert = 1\n')
    beeline.run(*words(tmp_path / "out", "sac", WALK), file)
    assert references.read(tmp_path / "out") == {WALK: Reference(-9.5, 1)}
    beeline.run("report", tmp_path / "out", "-o", tmp_path / "report.html")
    run = next((tmp_path / "out").glob("*/sac/seed0"))
    done = beeline.run("reference", WALK, "--expert", run, "--episodes", 2, "--out", tmp_path)
    assert "episodes of the best policy of" in done.out
    assert json.loads((tmp_path / references.FILE).read_text())["tasks"][WALK]["expert"] < 1


def test_a_reference_of_a_task_that_the_file_has_not_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text('tasks = ["toys:Walk-v0"]\n[reference."toys:Wolk-v0"]\nrandom = -9.5\n')
    with pytest.raises(ConfigError, match=r"'toys:Wolk-v0'\. Did you mean toys:Walk-v0"):
        bench_plan.read_file(file)
