"""A run that was killed, stopped, starved or damaged, and resumed, ends as the one that never was: bit for bit."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from whole_runs import Process, Zygote, flags, imagining, same_run, small, table, waits

import beeline as api  # `beeline` is the fixture that runs the command
from beeline.agents import get

ALGORITHMS = ("sac", "bac", "td3", "bee-td3")
OPTIONS: dict[str, Any] = {
    "hidden": (16, 16), "batch_size": 16, "random_steps": 50, "steps": 400, "eval_every": 130, "eval_episodes": 2,
    "log_every": 7, "checkpoint_every": 60, "replay_capacity": 100_000, "tensorboard": False,
}  # fmt: skip
WALK = "toys:Walk-v0"


def options(algo: str, preset: str = "light", **changes: Any) -> list[str]:
    own = OPTIONS | {"preset": preset} | ({"learn_after": 50} if waits(algo) or preset != "light" else {}) | imagining(algo)
    if "random_steps" not in get(algo).config.names():  # without a warm-up
        own.pop("random_steps")
    if algo in ("ppo", "trpo"):
        own |= {"rollout": 48, "epochs": 2}
    return flags(own | changes)


def rows(path: Path) -> int:
    """Lines of the metrics table of a live run."""
    file = path / "metrics.csv"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def kill_at_row(process: Process, path: Path, row: int, delay: float) -> None:
    process.until(lambda: rows(path) >= row)
    time.sleep(delay)
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("sac", "gym/Pendulum-v1", {}),
    ("bac", WALK, {"num_envs": 3, "steps": 600, "threads": 2, "hidden": (128, 128), "batch_size": 128}),
    ("td3", WALK, {"normalize_obs": True, "acting_noise": "pink", "n_step": 3, "critic_updates_per_step": 2}),
    ("bee-td3", "gym/Pendulum-v1", {"blend": "ada"}),
    ("bac", "gym/Pendulum-v1", {"preset": "best", "policy_hidden": (8,), "steps": 300}),
    ("bee-td3", WALK, {"preset": "best", "num_envs": 2, "policy_hidden": (8,), "steps": 300}),
    ("sac", WALK, {"preset": "wide", "policy_hidden": (8,), "num_envs": 2, "replay_decay": 0.01, "value_head": "hl_gauss",
                   "atoms": 21, "normalize_reward": True, "steps": 300}),
    ("ppo", "gym/Pendulum-v1", {"num_envs": 2, "steps": 1_200}),
    ("rrs", WALK, {"num_envs": 2, "steps": 600, "switch_every": 30, "normalize_obs": True}),
    ("bee-rrs", WALK, {"shifts": (-1.0, 0.5), "switch_every": 30, "blend": "ada"}),
    ("maxq", WALK, {"n_step": 3}),
    ("bee-maxq", "gym/Pendulum-v1", {}),
    ("bee-maxq-td3", WALK, {"num_envs": 2, "steps": 600, "acting_noise": "pink"}),
    ("trpo", "gym/Pendulum-v1", {"num_envs": 2, "steps": 1_200}),
    ("grac", "gym/Pendulum-v1", {}),
    ("bee-grac", WALK, {"num_envs": 2, "steps": 600, "normalize_obs": True, "acting_noise": "pink"}),
    ("dac", WALK, {"normalize_obs": True}),
    ("bee-dac", "gym/Pendulum-v1", {"blend": "ada"}),
    ("xql", WALK, {"policy_updates_per_step": 0.5, "target_interval": 2}),
    ("bee-xql", "gym/Pendulum-v1", {}),
    ("xtd3", WALK, {"acting_noise": "pink"}),
    ("bee-xtd3", "gym/Pendulum-v1", {"n_step": 3}),
    ("iql", WALK, {"num_envs": 2, "steps": 600}),
    ("obac", "gym/Pendulum-v1", {}),
    ("mbpo", WALK, {"num_envs": 2, "steps": 900, "epoch_steps": 200, "imagined_rows": 2_000}),
    ("mb-bac", "gym/Pendulum-v1", {"epoch_steps": 100, "imagined_rows": 2_000}),
    ("cmlo", WALK, {"epoch_steps": 100, "imagined_rows": 2_000}),
    ("pets", WALK, {"num_envs": 2, "steps": 300}),
    ("slbo", WALK, {"num_envs": 2, "steps": 300}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "task", "more"), CASES, ids=[f"{c[0]} {c[2].get('preset', '')}".strip() for c in CASES])
def test_three_sigkills_at_random_times_change_nothing(
    algo: str, task: str, more: dict[str, Any], beeline: Zygote, tmp_path: Path
) -> None:
    words = ["train", algo, task, *options(algo, **more)]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    beeline.run(*words, "--out", whole)
    chance = random.Random(algo)
    # A row in each part but the last, which is a margin, and a little later: in a step, an update, a checkpoint.
    parts = [chance.uniform(low, low + 0.2) for low in (0.05, 0.3, 0.55)]
    moments = [(1 + int(part * rows(whole)), chance.uniform(0, 0.01)) for part in parts]
    process = beeline.start(*words, "--out", broken)
    for moment in moments:
        kill_at_row(process, broken, *moment)
        process = beeline.start("resume", broken)
    assert process.wait() == 0, process.err
    assert "differ" not in process.err
    same_run(whole, broken)


@pytest.fixture(scope="module")
def walk(beeline: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SAC run that nobody disturbed."""
    path = tmp_path_factory.mktemp("reference") / "walk"
    beeline.run("train", "sac", WALK, *options("sac"), "--out", path)
    return path


# Instance 0 is the one that `train` looks at before it begins.
KILLS = {"in the first reset": "1:0", "in the first evaluation": "2:3", "in an episode": "1:101", "in an evaluation": "2:45"}


@pytest.mark.parametrize("moment", KILLS.values(), ids=KILLS.keys())
def test_sigkill_at_a_chosen_moment(moment: str, beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    process = beeline.start("train", "sac", WALK, *options("sac"), "--out", tmp_path / "run", env={"TOY_KILL": moment})
    assert process.wait() == -signal.SIGKILL
    beeline.run("resume", tmp_path / "run")
    same_run(walk, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 6, 11, 24, 40, 61, 90, 130])
def test_exit_at_a_file_operation(n: int, beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    words = ["train", "sac", WALK, *options("sac"), "--out", tmp_path / "run"]
    assert beeline.start(*words, fault={"n": n}).wait() == 77
    if (tmp_path / "run" / "config.json").exists():
        beeline.run("resume", tmp_path / "run")
    else:  # it had not begun, and what it left does not stand in the way of beginning again
        beeline.run(*words)
    same_run(walk, tmp_path / "run")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_a_checkpoint_and_say_how_to_go_on(
    number: int, code: int, beeline: Zygote, walk: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = beeline.start("train", "sac", WALK, *options("sac", checkpoint_every=1_000_000), "--out", run)
    process.until(lambda: rows(run) >= 20)
    process.signal(number)
    assert process.wait() == code
    assert f"beeline resume {run}" in process.err
    assert "Traceback" not in process.err
    assert f"stopped by {signal.Signals(number).name} at step" in process.err
    [_, last] = sorted((run / "checkpoints").glob("step-*"))
    assert int(last.name[5:]) > 50
    assert '"stopped"' in (run / "status.json").read_text()
    beeline.run("resume", run)
    assert '"finished"' in (run / "status.json").read_text()
    same_run(walk, run)


@pytest.mark.parametrize("moment", [KILLS["in the first evaluation"], KILLS["in an evaluation"]])
def test_ctrl_c_ends_an_evaluation_which_leaves_no_row_and_is_done_again(
    moment: str, beeline: Zygote, walk: Path, tmp_path: Path
) -> None:
    """The signal comes from inside the evaluation's own environment."""
    run, interrupt = tmp_path / "run", {"TOY_KILL": moment, "TOY_SIGNAL": str(int(signal.SIGINT))}
    words = [*options("sac", checkpoint_every=1_000_000), "--out", run]
    process = beeline.start("train", "sac", WALK, *words, env=interrupt)
    assert process.wait() == 130
    assert '"stopped"' in (run / "status.json").read_text() and "Traceback" not in process.err
    before, whole = table(run), table(walk)
    assert before == whole[: len(before)] and whole[len(before)][whole[0].index("eval/return")], "the next row is the evaluation"
    beeline.run("resume", run)
    same_run(walk, run)


def test_ctrl_c_ends_a_diagnosis_which_is_done_again(beeline: Zygote, tmp_path: Path) -> None:
    words = [*options("sac", steps=200), "--diagnose", "60"]
    beeline.run("train", "sac", WALK, *words, "--out", tmp_path / "whole")
    interrupt = {"TOY_KILL": "3:1500", "TOY_SIGNAL": str(int(signal.SIGINT))}  # in the second of three
    process = beeline.start("train", "sac", WALK, *words, "--out", tmp_path / "run", env=interrupt)
    assert process.wait() == 130, process.err
    assert '"step": 120' in (tmp_path / "run" / "status.json").read_text()
    beeline.run("resume", tmp_path / "run")
    same_run(tmp_path / "whole", tmp_path / "run")


def test_second_ctrl_c_does_not_wait(beeline: Zygote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = beeline.start("train", "sac", f"{WALK}?fault=hang&at=30", *options("sac", eval_episodes=0), "--out", run)
    process.until(lambda: rows(run) >= 1)
    process.until(lambda: asleep(process.pid))
    process.signal(signal.SIGINT)
    process.until(lambda: "Ctrl-C again" in process.err)
    assert process.alive()
    process.signal(signal.SIGINT)
    assert process.wait() == 130
    assert f"stopped by SIGINT at step 0; a checkpoint is written. Go on with: beeline resume {run}" in process.err
    assert '"stopped"' in (run / "status.json").read_text()


def asleep(pid: int) -> bool:
    """Whether the main thread of a process waits in a sleep."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


def test_extending_equals_having_planned_it(beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    """Also where the shorter run's end is no multiple of eval_every, so that its last evaluation is not the plan's."""
    run = tmp_path / "run"
    beeline.run("train", "sac", WALK, *options("sac", steps=200), "--out", run)
    assert table(run)[-1][0] == "200"
    beeline.run("resume", run, "--steps", "400")
    same_run(walk, run)


def test_resuming_a_finished_run_changes_nothing(beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(walk, run)
    beeline.run("resume", run)
    same_run(walk, run)


def test_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(walk, run)
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    data = bytearray((newest / "state.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (newest / "state.npz").write_bytes(bytes(data))
    process = beeline.run("resume", run)
    assert "step 400 is damaged" in process.err
    same_run(walk, run)


def test_live_run_is_not_resumed(beeline: Zygote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = beeline.start("train", "sac", WALK, *options("sac", steps=1_000_000), "--out", run)
    process.until(lambda: rows(run) >= 3)
    second = beeline.start("resume", run)
    assert second.wait() == 2
    assert f"in use by process {process.pid}" in second.err
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert beeline.start("resume", run, "--steps", "10").wait() == 2  # fewer than planned


def test_same_seed_same_bytes_and_another_seed_others(beeline: Zygote, walk: Path, tmp_path: Path) -> None:
    beeline.run("train", "sac", WALK, *options("sac"), "--out", tmp_path / "again")
    same_run(walk, tmp_path / "again")
    beeline.run("train", "sac", WALK, *options("sac", seed=1), "--out", tmp_path / "other")
    assert table(walk)[1:] != table(tmp_path / "other")[1:]
    with pytest.raises(AssertionError):
        same_run(walk, tmp_path / "other")


SIMULATORS = ["gym/Hopper-v5", "gym/Humanoid-v5", "dmc/walker-run?limit=50&repeat=2", "dmc/cartpole-swingup?limit=60&noise=0.2"]


@pytest.mark.parametrize("task", SIMULATORS)
def test_simulators_come_back_to_the_same_bytes(task: str, tmp_path: Path) -> None:
    """After other episodes, in the middle of one: whatever a simulator carries from step to step is rebuilt."""
    if task.startswith("dmc/"):
        pytest.importorskip("dm_control")

    class Stop(api.Callback):
        def on_step(self, event: api.StepEvent) -> bool:
            lane = event.trainer.collector.lanes[0]
            return not (lane.episode >= 2 and lane.decisions >= 7)

    more = small("sac", steps=240, log_every=10, eval_every=240, checkpoint_every=1000)
    whole = api.train("sac", task, out=tmp_path / "whole", **more).path
    run = api.train("sac", task, out=tmp_path / "run", callbacks=[Stop()], **more).path
    assert 0 < max(row["step"] for row in api.Run(run).metrics) < 240
    said: list[str] = []
    api.resume(run, report=said.append)
    assert said == []
    same_run(whole, run)
