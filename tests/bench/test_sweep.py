"""An option with several values makes a variant of each, in a command and in a file; what is wrong is said before a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from matrices import words
from whole_runs import Zygote

from beeline.bench import plan as bench_plan
from beeline.bench.plan import BenchRun, value_name
from beeline.errors import BeelineError, ConfigError

WALK = "toys:Walk-v0"


def request(options: dict[str, Any], **changes: Any) -> list[BenchRun]:
    return bench_plan.expand({"algos": "bac", "tasks": "gym/A-v1", "seeds": 1, "steps": 20_000, "options": options} | changes)


def columns(options: dict[str, Any], name: str = "lam", **changes: Any) -> dict[str, Any]:
    return {run.variant: run.options.get(name) for run in request(options, **changes)}


@pytest.mark.parametrize("given", ["0,0.3,0.5", " 0 , .3, 5e-1,", [0, 0.3, 0.5], ["0", "0.3", 0.5], [0.0, 0.3, 0.5, 0]])
def test_values_of_an_option_make_variants_with_readable_names(given: Any) -> None:
    assert columns({"lam": given}) == {"bac-lam0": 0.0, "bac-lam0.3": 0.3, "bac-lam0.5": 0.5}


@pytest.mark.parametrize("given", ["8,8;16", [[8, 8], [16]], ["8,8", "16"]])
def test_an_option_that_is_a_list_is_swept_by_semicolons_or_by_lists(given: Any) -> None:
    assert columns({"hidden": given}, "hidden") == {"bac-hidden8x8": [8, 8], "bac-hidden16": [16]}


@pytest.mark.parametrize("given", ["8,8", [8, 8]])
def test_a_list_option_with_one_list_is_no_sweep(given: Any) -> None:
    assert columns({"hidden": given}, "hidden") == {"bac": [8, 8]}


def test_a_comma_in_free_text_is_no_sweep() -> None:
    assert columns({"wandb": True, "wandb_name": "first, small"}, "wandb_name") == {"bac": "first, small"}


def test_several_swept_options_make_the_product() -> None:
    found = request({"lam": "0,0.5", "hidden": "8;8,8", "batch_size": 32})
    assert [run.variant for run in found] == [
        "bac-lam0-hidden8", "bac-lam0-hidden8x8", "bac-lam0.5-hidden8", "bac-lam0.5-hidden8x8"
    ]  # fmt: skip
    assert [(run.options["lam"], run.options["hidden"], run.options["batch_size"]) for run in found] == [
        (0.0, [8], 32), (0.0, [8, 8], 32), (0.5, [8], 32), (0.5, [8, 8], 32)
    ]  # fmt: skip


def test_a_sweep_is_for_the_variants_that_have_the_option_and_no_word_of_their_own() -> None:
    own = {"mine": {"algo": "bac", "alpha": 0.9}, "two": {"algo": "bac", "alpha": [0.1, 0.2]}}
    found = columns({"alpha": "0.3,0.5"}, "alpha", algos="bac,td3,mine,two", variant=own, steps=50_000)
    assert found == {"bac-alpha0.3": 0.3, "bac-alpha0.5": 0.5, "td3": None, "mine": 0.9, "two-alpha0.1": 0.1, "two-alpha0.2": 0.2}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("lam", 0.3, "lam0.3"), ("actor_lr", 3e-4, "actor_lr0.0003"), ("actor_lr", 1e-5, "actor_lr1e-05"),
     ("gamma", "auto", "gamma=auto"), ("repeat", None, "repeat=none"),
     ("normalize_obs", True, "normalize_obs=on"), ("batch_size", 64, "batch_size64"),
     ("target_entropy", -3.0, "target_entropy=-3"), ("hidden", (8, 8), "hidden8x8"), ("k2", 1, "k2=1")],
)  # fmt: skip
def test_names_of_values_are_those_of_folders_and_tell_values_apart(name: str, value: Any, text: str) -> None:
    assert value_name(name, value) == text and bench_plan.NAME.fullmatch(f"bac-{text}")


BAD = [
    ({"options": {"lam": "0,2"}}, "lam = 2.0 is out of range; allowed: >= 0 and <= 1"),
    ({"options": {"lam": "0,x"}}, "lam = 'x' is not a number"),
    ({"options": {"lam": ","}}, "lam is swept over no value"),
    ({"options": {"lam": []}}, "lam is swept over no value"),
    ({"options": {"lam": [[0, 0.5]]}}, "lam = .* is a list of lists, but lam holds a single value"),
    ({"options": {"hidden": "8;x"}}, "hidden = 'x' is not whole numbers"),
    ({"options": {"hidden": [[8], 8.5]}}, "hidden = 8.5 is not whole numbers"),
    ({"options": {"threads": "1,2"}}, "threads is swept over 2 values, but it says nothing of what is trained"),
    ({"options": {"random_steps": "5,30000"}}, "bac-random_steps30000 on gym/A-v1: steps = 20000 is not more than the warm-up"),
    ({"algos": "bac,bac-lam0", "variant": {"bac-lam0": {"algo": "bac", "lam": 0.0}}, "options": {"lam": "0,1"}},
     "two variants bac-lam0: rename"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_is_wrong_with_a_sweep_is_said_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BeelineError, match=message):
        request(**{"options": {}} | changes)


def test_a_sweep_in_a_file_is_overridden_by_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text('algos = ["bac"]\ntasks = ["gym/A-v1"]\n[options]\nlam = [0, 0.3, 0.5]\nhidden = [[8], [16, 16]]\n')
    found = bench_plan.expand(bench_plan.merge(bench_plan.read_file(file), {"seeds": 1, "options": {"lam": "0.25"}}))
    assert {run.variant: (run.options["lam"], run.options["hidden"]) for run in found} == {
        "bac-hidden8": (0.25, [8]), "bac-hidden16x16": (0.25, [16, 16])
    }  # fmt: skip


def test_a_sweep_may_grow_and_a_recorded_value_may_not_go(tmp_path: Path) -> None:
    bench_plan.record(tmp_path, request({"lam": "0.3,"}))
    bench_plan.record(tmp_path, request({"lam": "0,0.3"}))
    with pytest.raises(BeelineError, match=r"bac-lam0\.3/seed0: it is not in this one"):
        bench_plan.record(tmp_path, request({"lam": "0,"}))


def test_a_swept_matrix_runs_is_gone_on_with_and_reported(beeline: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "matrix"
    beeline.run(*words(out, "bac", WALK, lam="0,0.3"))
    assert sorted(path.name for path in out.glob("*/*") if path.is_dir()) == ["bac-lam0", "bac-lam0.3"]
    for text, lam in (("bac-lam0", 0.0), ("bac-lam0.3", 0.3)):
        config = json.loads((next(out.glob(f"*/{text}")) / "seed0" / "config.json").read_text())
        assert config["agent"]["lam"] == lam
    assert "2 runs (2 finished)" in beeline.run("bench", "--out", out).out.splitlines()[0]
    page = tmp_path / "report.html"
    beeline.run("report", out, "-o", page)
    assert {"bac lam 0", "bac lam 0.3"} <= set(re.findall(r'"name":\s*"([^"]+)"', page.read_text()))
    refused = beeline.start(*words(tmp_path / "other", "bac", WALK, lam="0,1.5"))
    assert refused.wait() == 2 and "lam = 1.5 is out of range" in refused.err
    assert not (tmp_path / "other").exists()


def test_no_value_is_read_without_its_rule() -> None:
    with pytest.raises(ConfigError, match="gamma = 'never' is out of range; allowed: >= 0 and <= 1, or auto"):
        request({"gamma": "auto,never"})
