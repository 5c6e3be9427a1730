"""A matrix is planned, recorded, killed, stopped and gone on with; what fails is shown and stops nothing else."""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from matrices import TASKS, lines_in, uninterrupted, words, workers_of
from whole_runs import Process, Zygote, no_longer_than, same_run

from beeline.bench import execute as bench_execute
from beeline.bench import matrix as bench
from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch
from beeline.bench import worker as bench_worker
from beeline.bench.plan import BenchRun
from beeline.bench.watch import View
from beeline.bench.worker import failure_path, log_path
from beeline.errors import BeelineError, ConfigError, RunFolderError
from beeline.run.metrics import parse

HERE = Path(__file__).parents[1]


# --- plans ------------------------------------------------------------------------------------------------------------


def request(**changes: Any) -> dict[str, Any]:
    return {"algos": "bac,sac", "tasks": "gym/A-v1,dmc/walker-run?repeat=2", "seeds": 2, "steps": 5_000, **changes}


def test_a_matrix_is_every_combination_with_seeds_slowest() -> None:
    runs = bench_plan.expand(request())
    assert [run.folder for run in runs] == [
        f"{task}/{algo}/seed{seed}"
        for seed in (0, 1) for task in ("gym-A-v1", "dmc-walker-run-repeat-2") for algo in ("bac", "sac")
    ]  # fmt: skip
    assert {(run.steps, run.preset, run.threads) for run in runs} == {(5_000, "best", 1)}


def test_an_option_goes_to_the_variants_that_have_it_as_the_value_it_stands_for() -> None:
    options = {"lambda": "0.25", "alpha": "0.5", "batch-size": "1e2", "hidden": "8,8"}
    sac, td3 = bench_plan.expand(request(algos="sac,td3", tasks="gym/A-v1", seeds=1, options=options))
    assert sac.options == {"threads": 1, "lam": 0.25, "alpha": 0.5, "batch_size": 100, "hidden": [8, 8]}
    assert td3.options == {"threads": 1, "lam": 0.25, "batch_size": 100, "hidden": [8, 8]}


@pytest.mark.parametrize(
    ("given", "found"), [(3, [0, 1, 2]), ("3", [0, 1, 2]), ("0,7", [0, 7]), ("3,", [3]), ([4], [4]), ([1, 1, 0], [1, 0])]
)
def test_seeds(given: Any, found: list[int]) -> None:
    assert bench_plan.seeds(given) == found


TOML = """
algos = ["sac"]
tasks = ["gym/A-v1"]
seeds = [3, 5]
steps = 2000
preset = "paper"
[options]
random_steps = 100
batch_size = 64
[variant.bac-lam0]
algo = "bac"
preset = "light"
lam = 0.0
batch_size = 32
"""


def from_file(folder: Path, text: str, **given: Any) -> list[BenchRun]:
    (folder / "matrix.toml").write_text(text)
    return bench_plan.expand(bench_plan.merge(bench_plan.read_file(folder / "matrix.toml"), given))


def test_a_file_with_a_variant(tmp_path: Path) -> None:
    sac, bac, *others = from_file(tmp_path, TOML)
    assert (sac.variant, sac.algo, sac.seed, sac.steps, sac.preset) == ("sac", "sac", 3, 2000, "paper")
    assert sac.options == {"threads": 1, "random_steps": 100, "batch_size": 64}
    assert (bac.variant, bac.algo, bac.seed, bac.preset) == ("bac-lam0", "bac", 3, "light")
    assert bac.options == {"threads": 1, "random_steps": 100, "batch_size": 32, "lam": 0.0}
    assert [(run.variant, run.seed) for run in others] == [("sac", 5), ("bac-lam0", 5)]


def test_flags_override_the_file(tmp_path: Path) -> None:
    options = {"random_steps": "200", "learn_after": "9"}
    runs = from_file(tmp_path, TOML, algos="bac-lam0,td3", seeds="1", steps="3e3", options=options)
    assert [(run.variant, run.seed, run.steps) for run in runs] == [("bac-lam0", 0, 3000), ("td3", 0, 3000)]
    assert [run.options["random_steps"] for run in runs] == [200, 200]
    assert [run.options["batch_size"] for run in runs] == [32, 64]  # the variant's own word is the last


BAD_FILES = [
    ("algos = [", "is not TOML"),
    ('algo = ["sac"]', "unknown entry of .*'algo'. Did you mean algos"),
    ("variant = 3", "variant must be a table"),
    ("[variant.x]\nlam = 0.5", "must say its algorithm"),
    ('tasks = ["gym/A-v1"]\n[variant.x]\nalgo = "bac"\nsteps = 5', "x. has steps, which is the same for the whole"),
    ('tasks = ["gym/A-v1"]\n[variant.x]\nalgo = "sac"\nsmoothing_clip = 0.5', "x on gym/A-v1: unknown option 'smoothing_clip'"),
    ('tasks = ["gym/A-v1"]\n[variant."a/b"]\nalgo = "sac"', "'a/b': a name is made of"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_what_is_wrong_with_a_file_is_said(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        from_file(tmp_path, text)


BAD_REQUESTS = [
    ({"algos": "bac,sax"}, "unknown algorithm 'sax'. Did you mean 'sac'"),
    ({"algos": ""}, "the matrix has no algos"),
    ({"tasks": []}, "the matrix has no tasks"),
    ({"seeds": 0}, "seeds = 0 is neither"),
    ({"seeds": "x"}, "seeds = 'x' is neither"),
    ({"seeds": [-1]}, "seed = -1 is out of range"),
    ({"steps": 500}, "bac on gym/A-v1: steps = 500 is not more than the warm-up"),
    ({"preset": "heavy"}, "unknown preset 'heavy'"),
    ({"algos": "sac", "options": {"smoothing_clip": 0.5}}, "unknown option of sac 'smoothing_clip'"),
    ({"options": {"batch_sise": 1}}, "Did you mean batch_size"),
    ({"options": {"seed": 1}}, "give seeds"),
    ({"options": {"gamma": 2}}, "bac on gym/A-v1: gamma = 2.0 is out of range"),
    ({"tasks": "gym/A-v1,gym-A-v1"}, "would have the same folder gym-A-v1/bac/seed0"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_REQUESTS)
def test_what_is_wrong_with_a_matrix_is_said_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BeelineError, match=message):
        bench_plan.expand(request(**changes))


def test_a_recorded_plan_may_only_grow(tmp_path: Path) -> None:
    bench_plan.record(tmp_path, bench_plan.expand(request()))
    assert bench_plan.recorded(tmp_path) == bench_plan.expand(request())
    larger = bench_plan.expand(request(seeds=3, steps=6_000, algos="bac,sac,td3"))
    bench_plan.record(tmp_path, larger)
    assert bench_plan.recorded(tmp_path) == larger
    short = {"random_steps": 9, "learn_after": 9}
    for changes, message in (
        ({"algos": "bac,sac"}, "td3/seed0: it is not in this one"),
        ({"steps": 5_000}, "steps was 6000, now 5000"),
        ({"options": {"gamma": 0.9}}, "gamma was not given, now 0.9"),
        ({"preset": "paper", "options": short}, "preset was best, now paper"),
    ):
        plan = request(**{"seeds": 3, "steps": 6_000, "algos": "bac,sac,td3"} | changes)
        with pytest.raises(RunFolderError, match=message):
            bench_plan.record(tmp_path, bench_plan.expand(plan))
    assert bench_plan.recorded(tmp_path) == larger


def test_runs_of_unknown_origin_are_left_alone(tmp_path: Path) -> None:
    runs = bench_plan.expand(request())
    (tmp_path / runs[0].folder).mkdir(parents=True)
    (tmp_path / runs[0].folder / "config.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"has no matrix\.json"):
        bench_plan.record(tmp_path, runs)


def test_a_damaged_plan_is_said(tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text('{"format": 1, "runs": [{"algo": "bac"}]}')
    with pytest.raises(RunFolderError, match="cannot be read"):
        bench_plan.recorded(tmp_path)


ENTRY = {"variant": "bac", "algo": "bac", "task": "gym/A-v1", "seed": 0, "steps": 2000, "preset": "light", "options": {}}
BAD_PLANS = [
    (json.dumps({"format": 1, "runs": [ENTRY | change]}), message)
    for change, message in (
        ({"variant": "../../.."}, "variant '../../..': a name is made of"),
        ({"variant": "/abs"}, "variant '/abs': a name is made of"),
        ({"task": ".."}, "task '..' would leave the folder of the matrix"),
        ({"task": ""}, "task = '' is not a name"),
        ({"task": 5}, "task = 5 is not a name"),
        ({"options": ["lam", 0.5]}, "options = .* are not names with values"),
        ({"options": {"threads": "x"}}, "threads = 'x' is not a whole number"),
        ({"options": {"threads": 10**6}}, "threads = 1000000 is out of range"),
        ({"seed": "0/../.."}, "seed = '0/../..' is not a whole number"),
        ({"seed": -1}, "seed = -1 is out of range"),
        ({"steps": float("nan")}, "steps = nan is not a whole number"),
    )
] + [
    ("[" * 100_000, "nested too deeply"),
    ("[]", "holds no JSON object"),
    ('{"format": 1}', "it has no 'runs'"),
    ('{"format": 1, "runs": 5}', "cannot be read"),
    ('{"format": 1, "runs": [5]}', "cannot be read"),
    (json.dumps({"format": 1, "runs": [ENTRY, ENTRY]}), "two of its runs have one folder"),
    ('{"format": [1]}', r"has format \[1\]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_PLANS)
def test_a_crafted_plan_is_refused_by_what_is_wrong_and_leads_nowhere_else(text: str, message: str, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "matrix"
    out.mkdir(parents=True)
    (out / "matrix.json").write_text(text)
    with pytest.raises(RunFolderError, match=message):
        bench_plan.recorded(out)


def test_no_task_of_a_command_leaves_the_folder_of_the_matrix() -> None:
    with pytest.raises(ConfigError, match=r"task '\.\.' would leave"):
        bench_plan.expand(request(tasks=".."))


# --- watching ---------------------------------------------------------------------------------------------------------

RUN = BenchRun("bac", "bac", "gym/A-v1", 0, 1_000, "light", {"threads": 1})


def view(state: str, step: int = 0, rate: float | None = None, **run: Any) -> View:
    return View(dataclasses.replace(RUN, **run), state, step, rate)


def test_rate_is_steps_over_seconds() -> None:
    table = b"step,time/steps_per_second\n0,\n100,100.0\n400,50.0\n"
    assert bench_watch.rate(parse(table)) == pytest.approx(400 / (1 + 6))
    assert bench_watch.rate(parse(table + b"400,0.0\n")) == pytest.approx(400 / 7)
    assert bench_watch.rate(parse(table + b"500,inf\n600,nan\n")) == pytest.approx(400 / 7)
    assert bench_watch.rate(parse(b"step,time/steps_per_second\n0,\n")) is None
    assert bench_watch.rate(parse(b"step\n0\n5\n")) is None


def test_eta_takes_the_rates_of_like_runs_and_at_least_the_longest_run() -> None:
    a, b = view("running", 500, 10.0), view("running", 900, 50.0, seed=1)  # 50 s, 2 s
    assert bench_watch.eta([a, b], 2) == pytest.approx(50)  # not (50 + 2) / 2
    waiting = view("waiting", seed=2)  # 1000 / mean(10, 50) = 33.3 s
    other = view("waiting", seed=3, task="gym/B-v1")  # nothing of this task is known: the mean of all
    assert bench_watch.eta([a, b, waiting, other], 2) == pytest.approx((50 + 2 + 2 * 1000 / 30) / 2)
    assert bench_watch.eta([view("waiting")], 2) is None
    assert bench_watch.eta([view("finished", 1000, 10.0), view("failed", 3, seed=1)], 2) == 0


def test_look_tells_states_from_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / RUN.folder
    folder.mkdir(parents=True)
    assert bench_watch.look(tmp_path, RUN).state == "waiting"
    (folder / "config.json").write_text("{}")
    (folder / "metrics.csv").write_text("step,eval/return,time/steps_per_second\n0,1.5,0\n200,,50\n400,2.5,50\n60")
    found = bench_watch.look(tmp_path, RUN)
    assert (found.state, found.step, found.rate, found.score) == ("stopped", 400, 50.0, 2.5)
    failure_path(folder).write_text('{"reason": "too hot"}')
    assert (bench_watch.look(tmp_path, RUN).state, bench_watch.look(tmp_path, RUN).reason) == ("failed", "too hot")
    (folder / "status.json").write_text('{"state": "finished", "step": 1000}')
    assert bench_watch.look(tmp_path, RUN).state == "finished"
    longer = dataclasses.replace(RUN, steps=1_001)
    failure_path(folder).unlink()
    assert bench_watch.look(tmp_path, longer).state == "stopped"


DAMAGE = [
    ("metrics.csv", "step,eval/return\ninf,1.0\n", "line 2 has no number of steps"),
    ("metrics.csv", "step,eval/return\n1,1.0\nnan,1.0\n", "line 3 has no number of steps"),
    ("metrics.csv", "stap,eval/return\n1,1.0\n", "no column 'step'"),
    ("metrics.csv", "step,eval/return\n1,1.0,\n", "line 2 has 3 cells where the header has 2"),
    ("metrics.csv", f"step,eval/return\n{'1' * 200_000},1.0\n", "line 2 has no number under 'step'"),
    ("status.json", '{"state": "finished", "step": "600"}', "step is '600', no number of steps"),
    ("status.json", '{"state": "finished", "step": 1e999}', "step is inf, no number of steps"),
    ("status.json", "[" * 100_000, "nested too deeply"),
    ("status.json", '{"state": ["finished"], "step": 5}', "state is a list, none of running"),
]


@pytest.mark.parametrize(("name", "text", "message"), DAMAGE)
def test_a_damaged_folder_is_a_warning_of_its_own_run(name: str, text: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / RUN.folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / name).write_text(text)
    found = bench_watch.look(tmp_path, RUN)
    assert found.state == "stopped" and message in found.warning and name in found.warning
    assert "\n" not in found.remark


@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "status.json", "../seed0.failed.json"])
def test_a_pipe_in_place_of_a_file_does_not_make_the_matrix_wait(name: str, tmp_path: Path) -> None:
    folder = tmp_path / RUN.folder
    folder.mkdir(parents=True)
    os.mkfifo(folder / name)
    with no_longer_than(20):
        found = bench_watch.look(tmp_path, RUN)
        bench.write_results(tmp_path, [RUN])
    assert found.state == {"config.json": "stopped", "../seed0.failed.json": "failed"}.get(name, "waiting")
    assert name == "config.json" or "not a regular file" in found.warning


def test_a_rate_from_a_damaged_table_does_not_break_the_clock() -> None:
    slow = view("running", 0, 1e-300)
    assert "ETA –" in bench_watch.whole([slow], bench_watch.eta([slow], 1))


def test_a_run_whose_log_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    runs = [dataclasses.replace(RUN, seed=seed) for seed in (0, 1)]
    log_path(tmp_path / runs[0].folder).parent.mkdir(parents=True)
    os.mkfifo(log_path(tmp_path / runs[0].folder))
    taken = []

    class Executor(bench_execute.LocalProcesses):
        def submit(self, run: BenchRun) -> None:
            with bench_worker.open_log(self.out / run.folder):
                taken.append(run.seed)

    crew = bench.Crew(tmp_path, runs, Executor(tmp_path, ["0", "1"], 0), False)
    with no_longer_than(20):
        crew.work()
    assert taken == [1]
    assert crew.views[runs[0].folder].state == "failed"
    assert f"cannot write {log_path(tmp_path / runs[0].folder)}" in crew.views[runs[0].folder].reason


def test_a_worker_without_space_for_its_reason_ends_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(operation: str, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("beeline.files.fault", full)
    run = BenchRun("sac", "sac", TASKS[0], 0, 2000, "light", {})
    assert bench_worker.run_one(tmp_path / "seed0", run) == 1
    assert capsys.readouterr().err.count("no space left") == 2


def test_a_run_that_gets_no_process_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*words: Any, **more: Any) -> Any:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(bench_execute.subprocess, "Popen", none)
    executor = bench_execute.LocalProcesses(tmp_path, ["0"], 0)
    with pytest.raises(RunFolderError, match=r"no process can be started for .*: Resource temporarily"):
        executor.submit(BenchRun("sac", "sac", TASKS[0], 0, 2000, "light", {}))
    assert executor.free() and not executor.busy()


def test_a_plan_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    bench_plan.record(tmp_path, bench_plan.expand({"algos": "sac", "tasks": [TASKS[0]], "seeds": 1, "steps": 5000}))
    path = tmp_path / "matrix.json"
    path.write_text(path.read_text().replace("5000", "5001"))
    with pytest.raises(RunFolderError, match="not as it was written"):
        bench_plan.recorded(tmp_path)


def test_the_lock_of_a_matrix_follows_no_link_and_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / "matrix").mkdir()
    (tmp_path / "matrix" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RunFolderError, match="link"):
        bench.lock_matrix(tmp_path / "matrix")
    with pytest.raises(RunFolderError, match="link"):
        bench_worker._last_writer_is_gone(tmp_path / "matrix", 0)
    (tmp_path / "cores").mkdir()
    for core in ["choosing", *map(str, os.sched_getaffinity(0))]:
        (tmp_path / "cores" / core).symlink_to(tmp_path / "precious")
    with pytest.raises(RunFolderError, match="link"):
        bench_worker.free_cores(1, tmp_path / "cores")
    assert (tmp_path / "precious").read_text() == "years of work"


def test_a_folder_that_another_user_made_gives_no_cores(tmp_path: Path) -> None:
    (tmp_path / "cores").symlink_to(tmp_path)
    assert bench_worker.free_cores(1, tmp_path / "cores") == set()
    assert not (tmp_path / "choosing").exists()


def test_a_worker_takes_its_cores_before_numpy_counts_them() -> None:
    code = "import sys, beeline.bench.worker; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lines_say_damage_once_and_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = bench_watch.Lines()
    damaged = dataclasses.replace(view("running", 100), warning="metrics.csv is [bold]damaged[/]\x1b[31m.")
    for views in ([view("running", 100)], [damaged], [damaged]):
        lines.show(views, 5.0)
    assert capsys.readouterr().out.splitlines() == [
        "gym-A-v1/bac/seed0: running at step 100",
        "gym-A-v1/bac/seed0: running at step 100: metrics.csv is [bold]damaged[/]\ufffd[31m.",
    ]


def test_lines_say_what_changed_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = bench_watch.Lines()
    running = dataclasses.replace(view("running", 100), score=3.0)
    for views in ([view("waiting")], [running], [running], [dataclasses.replace(running, state="failed", reason="too hot")]):
        lines.show(views, 5.0)
    folder = "gym-A-v1/bac/seed0"
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}: running at step 100, return 3.0", f"{folder}: failed at step 100, return 3.0: too hot",
    ]  # fmt: skip


def test_the_table_fits_the_screen_and_shows_first_what_runs_or_failed() -> None:
    from rich.console import Console

    views = [view("finished" if n < 30 else "running" if n == 30 else "waiting", 100, 7.0, seed=n) for n in range(40)]
    views[35] = dataclasses.replace(view("failed", seed=35, task="my[/x]:A-v1"), reason="too [hot] in [/x]\nTraceback")
    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(bench_watch.table(views, 65.0, 6))
    text = console.export_text()
    assert len(text.splitlines()) == 7  # header, five runs, the whole
    assert [line.split()[3] for line in text.splitlines()[1:4]] == ["running", "failed", "finished"]
    assert "too [hot] in [/x]" in text and "my[/x]:A-v1" in text and "Traceback" not in text
    assert "40 runs: 1 running, 1 failed, 30 finished, 8 waiting" in text and "ETA 0:01:05" in text
    assert "not shown: 27 finished, 8 waiting" in text
    narrow = bench_watch.table(views, 65.0, 6, 80).plain.splitlines()
    assert max(map(len, narrow)) <= 80 and narrow[-1].endswith("8 waiting") and len(narrow) == 8  # no word of the whole is cut


def test_slots_share_out_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5, 7, 11}, raising=False)
    assert bench_execute.slots(1, None) == ["2", "3", "5", "7", "11"]
    assert bench_execute.slots(2, None) == ["2,3", "5,7"]
    assert bench_execute.slots(8, None) == ["2,3,5,7,11"]
    assert bench_execute.slots(1, 7) == ["2", "3", "5", "7", "11", "2", "3"]
    with pytest.raises(ConfigError, match="workers = 0 is out of range"):
        bench_execute.slots(1, 0)


# --- real processes ---------------------------------------------------------------------------------------------------


BROKEN = """
import gymnasium
from toys import Walk
gymnasium.register("Nan-v0", lambda: Walk(fault="nan obs", at=50))
"""


def test_failures_have_reasons_stop_nothing_and_are_tried_again_when_asked(beeline: Zygote, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE), str(HERE.parent)])}
    out = tmp_path / "matrix"
    process = beeline.start(*words(out, "sac", "gym/Nope-v1,broken:Nan-v0", steps=60, eval_every=100), env=env)
    assert process.wait() == 1, process.err
    assert "0 of 2 runs are finished" in process.out
    assert "gym-Nope-v1/sac/seed0: unknown environment 'gym/Nope-v1'" in process.out
    nan = out / "broken-Nan-v0" / "sac" / "seed0"
    assert "at step 50 of the run" in json.loads(failure_path(nan).read_text())["reason"]
    assert "at step 50 of the run" in process.out and f"beeline bench --out {out} --retry-failed" in process.out

    size = log_path(nan).stat().st_size
    process = beeline.start("bench", "--out", out, env=env)
    assert process.wait() == 1
    assert "2 runs (2 failed)" in process.out and log_path(nan).stat().st_size == size  # nothing was started

    process = beeline.start("bench", "--out", out, "--retry-failed", "--workers", 1, env=env)
    assert process.wait() == 1
    assert "1 of 2 runs are finished" in process.out and "broken-Nan-v0/sac/seed0: finished at step 60" in process.out
    assert json.loads((nan / "config.json").read_text())["train"]["threads"] == 1
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert {(row["run"], row["variant"], row["task"]) for row in rows} == {("broken-Nan-v0/sac/seed0", "sac", "broken:Nan-v0")}
    assert [row["step"] for row in rows] == ["0", "60"]
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(out / "results.parquet")["step"].to_list() == [0, 60]
    assert f"beeline report {out}" in process.out


def test_a_crash_hurts_one_run_and_sigterm_leaves_checkpoints(beeline: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "matrix"
    first, run = (out / "toys-Walk-v0" / "sac" / f"seed{seed}" for seed in (0, 1))
    process = beeline.start(*words(out, "sac", "toys:Walk-v0", seeds=2, steps=10**6, checkpoint_every=10**6), "--workers", 1)
    process.until(lambda: lines_in(out) > 4)
    second = beeline.start("bench", "--out", out)
    assert second.wait() == 2
    assert f"{out} is in use by process {process.pid}" in second.err
    [worker] = workers_of(out)
    assert len(os.sched_getaffinity(worker)) == 1
    os.kill(worker, signal.SIGKILL)
    process.until(lambda: (run / "metrics.csv").exists() and (run / "metrics.csv").read_bytes().count(b"\n") > 4)
    assert "seed0: failed at step" in process.out and f"was ended by SIGKILL; see {log_path(first)}" in process.out
    process.signal(signal.SIGTERM)
    assert process.wait() == 143
    assert f"Go on with: beeline bench --out {out}" in process.err
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("stopped", "SIGTERM")
    assert sorted((run / "checkpoints").iterdir())[-1].name.endswith(str(status["step"]))
    assert [bench_watch.look(out, each).state for each in bench_plan.recorded(out)] == ["stopped", "stopped"]
    process = beeline.start(*words(out, "sac", "toys:Walk-v0", seeds=2, steps=10**6))
    assert process.wait() == 2
    assert "toys-Walk-v0/sac/seed0: checkpoint_every was 1000000, now 30" in process.err


def kill_when(process: Process, out: Path, lines: int, delay: float) -> None:
    """SIGKILL the matrix alone: its workers must end by themselves."""
    process.until(lambda: lines_in(out) >= lines)
    time.sleep(delay)
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    end = time.monotonic() + 20
    while workers_of(out):
        assert time.monotonic() < end, "workers outlive the process that started them"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_matrix_killed_twice_equals_one_that_was_not(beeline: Zygote, tmp_path: Path) -> None:
    changes = {"steps": 240, "log_every": 12, "eval_every": 110, "checkpoint_every": 36}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    runs = uninterrupted(whole, **changes)
    total = lines_in(whole)
    command = words(broken, "bac,sac", ",".join(TASKS), seeds=2, **changes)
    chance = random.Random()  # any moment will do, in each half of the matrix
    moments = [(int(total * chance.uniform(low, low + 0.4)), chance.uniform(0, 0.5)) for low in (0.02, 0.5)]
    print("killed at", moments)
    process = beeline.start(*command)
    kill_when(process, broken, *moments[0])
    process = beeline.start("bench", "--out", broken)
    kill_when(process, broken, *moments[1])
    finished = [run.folder for run in runs if bench_watch.look(broken, run).state == "finished"]
    process = beeline.start(*command)
    assert process.wait() == 0, process.err + process.out
    assert "8 of 8 runs are finished." in process.out
    for run in runs:
        same_run(whole / run.folder, broken / run.folder)
        if run.folder in finished:
            assert f"{run.folder}: running" not in process.out, "a finished run was repeated"
    rows = list(csv.DictReader((broken / "results.csv").open()))
    assert {row["run"] for row in rows} == {run.folder for run in runs} and len(rows) == 8 * 4  # steps 0, 110, 220, 240
