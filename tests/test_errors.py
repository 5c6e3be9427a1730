"""Everything that can be wrong with an environment, a folder, a disk or a file, and what the user is told."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from toys import Walk
from whole_runs import same_run, small, table

import beeline
from beeline import files
from beeline.errors import (
    BeelineError,
    CheckpointError,
    ConfigError,
    DiskFullError,
    EnvError,
    MissingExtraError,
    NonFiniteError,
    RunFolderError,
    UnknownNameError,
    copyable,
    notes,
)
from beeline.run.checkpoint import CheckpointStore

WALK = "toys:Walk-v0"


def status(path: Path) -> dict[str, Any]:
    return json.loads((path / "status.json").read_text())


def broken(fault: str, at: int) -> Callable[[], Walk]:
    return lambda: Walk(fault=fault, at=at)


FAULTS = [
    ("nan reward", 75, NonFiniteError, r"at step 75 of the run: environment 'Walk', step \d+: the reward is nan"),
    ("inf reward", 75, NonFiniteError, r"at step 75 of the run: .*the reward is inf"),
    ("nan obs", 75, NonFiniteError, r"at step 75 of the run: .*observation\[0\] is nan \(1 of 2"),
    ("inf obs", 75, NonFiniteError, r"at step 75 of the run: .*observation\[0\] is -inf"),
    ("raise", 75, EnvError, r"at step 75 of the run: environment 'Walk' failed in step\(\): RuntimeError: the motor is hot"),
    ("large reward", 75, NonFiniteError, r"at step 75 of the run: .*the reward is 1e\+39, more than float32 holds"),
    ("one number", 75, EnvError, r"at step 75 of the run: .*the observation has the shape \(1,\), expected is an array of 2"),
    ("a scalar", 75, EnvError, r"at step 75 of the run: .*the observation is 0.5 \(float\), expected is an array of 2"),
    ("a row", 75, EnvError, r"at step 75 of the run: .*the observation has the shape \(1, 2\), expected is an array of 2"),
    ("no info", 75, EnvError, r"at step 75 of the run: .*info is None, expected is a dict"),
    ("text flag", 75, EnvError, r"at step 75 of the run: .*terminated is 'False' \(str\), expected is True or False"),
    ("four values", 75, EnvError, r"at step 75 of the run: .*four values were returned"),
    ("array reward", 75, EnvError, r"at step 75 of the run: .*the reward is an array of shape \(1,\)"),
    ("nan in reset", 3, NonFiniteError, r"at step \d+ of the run: .*'Walk', reset: observation\[1\] is nan"),
    ("raise in reset", 3, EnvError, r"at step \d+ of the run: .* failed in reset\(\): RuntimeError: the motor is cold"),
]


@pytest.mark.parametrize(("fault", "at", "kind", "message"), FAULTS, ids=[case[0] for case in FAULTS])
def test_a_failing_environment_stops_the_run_with_a_checkpoint(
    fault: str, at: int, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = small("sac", checkpoint_every=1000, eval_episodes=0)
    with pytest.raises(kind, match=message) as caught:
        beeline.train("sac", broken(fault, at), out=run, **options)
    assert f"beeline resume {run}" in str(caught.value)
    told = status(run)
    assert told["state"] == "failed" and told["reason"] == str(caught.value)
    said: list[str] = []
    assert beeline.resume(run, env=Walk, report=said.append).metrics[-1]["step"] == 120
    assert status(run)["state"] == "finished"
    # After a failed step the lane was in a new episode, which is replayed; after a failed reset there was none.
    assert len(said) == (1 if "reset" in fault else 0), said
    assert "no episode was open" in said[0] if said else True


@pytest.mark.parametrize("fault", ["large reward", "one number", "a scalar", "a row", "nan obs"])
def test_what_is_refused_is_in_no_replay_and_no_checkpoint(fault: str, tmp_path: Path) -> None:
    """With a checkpoint after every step and three lanes: the last one is as good as any."""
    options = small("sac", checkpoint_every=1, keep_checkpoints=1, eval_episodes=0, num_envs=3)
    with pytest.raises(EnvError, match=r"of the run: in lane 0: environment 'Walk', step \d+: "):
        beeline.train("sac", broken(fault, 30), out=tmp_path / "run", **options)
    ring = CheckpointStore(tmp_path / "run").load(pytest.fail).restore_replay()
    for lane in range(3):
        rows = ring.export(lane, ring.oldest(lane), ring.rows(lane))
        assert np.isfinite(rows["reward"]).all() and np.isfinite(rows["obs"]).all()
        assert (rows["obs"][:, 0] != rows["obs"][:, 1]).all(), "one number was written to both places"
    beeline.resume(tmp_path / "run", env=Walk)
    assert status(tmp_path / "run")["state"] == "finished"


def test_an_exception_of_the_user_is_shown_with_its_own_lines_and_kept_whole(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"the motor is hot \(.*toys\.py, line \d+\)") as caught:
        beeline.train("sac", broken("raise", 30), out=tmp_path / "run", **small("sac", eval_episodes=0))
    frame, where = notes(caught.value)
    assert re.fullmatch(r'  .*toys\.py, line \d+, in step\n    raise RuntimeError\("the motor is hot"\)', frame)
    assert where == f"The whole traceback is in {tmp_path / 'run' / 'error.txt'}"
    kept = (tmp_path / "run" / "error.txt").read_text()
    assert kept.startswith("Traceback") and "boundary.py" in kept and 'raise RuntimeError("the motor is hot")' in kept
    beeline.resume(tmp_path / "run", env=Walk)
    assert not (tmp_path / "run" / "error.txt").exists(), "it is not the story of this run any more"


def test_a_failing_evaluation_stops_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    message = r"at step 50 of the run: in an evaluation episode: .*the reward is nan"
    with pytest.raises(NonFiniteError, match=message):
        beeline.train("sac", Walk, eval_env=broken("nan reward", 25), out=tmp_path / "run", **small("sac"))
    beeline.resume(tmp_path / "run", env=Walk)
    assert status(tmp_path / "run")["state"] == "finished"
    with pytest.raises(EnvError, match=r"in an evaluation episode: .*failed in step\(\): RuntimeError: the motor is hot"):
        beeline.train("sac", Walk, eval_env=broken("raise", 2), out=tmp_path / "other", **small("sac"))


def test_a_model_goes_on_after_a_failed_reset() -> None:
    model = beeline.SAC(broken("raise in reset", 3), **small("sac", eval_episodes=0))
    with pytest.raises(EnvError, match="the motor is cold"):
        model.learn(120)
    before = model.step
    assert model.learn(40).step == before + 40


class Endless(Walk):
    """Never ends by itself."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


def test_an_environment_without_a_limit_is_told_of_at_once_and_gets_one() -> None:
    assumed = r"'Endless' declares no time limit: its episodes are cut after 1,000 decisions\. .*limit=N"
    with pytest.warns(UserWarning, match=assumed):
        model = beeline.SAC(Endless, **small("sac", eval_episodes=2))
    assert model.trainer.collector.spec.limit == 1000 and model.trainer.collector.spec.max_episode_steps is None
    assert model.evaluate(1).lengths == [1000]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = beeline.SAC(Endless, limit=30, **small("sac"))
    model.learn(70)
    assert [row["eval/length"] for row in model.metrics if "eval/length" in row] == [30, 30]
    assert model.trainer.collector.episodes == 2, "training is cut at the same limit"
    with pytest.raises(ConfigError, match="has the limit 40, but limit=30 was given as well"):
        beeline.SAC("toys:Walk-v0?limit=40", limit=30, **small("sac"))


def test_a_limit_is_part_of_the_run_and_of_its_policy(tmp_path: Path) -> None:
    run = beeline.train("sac", Endless, out=tmp_path / "run", limit=25, **small("sac", steps=60))
    assert run.config["train"]["limit"] == 25 and run.policy().meta["limit"] == 25
    evaluation, _ = beeline.evaluate_run(run.path, episodes=1, env=lambda: Endless())
    assert evaluation.lengths == [1000], "another environment has its own limit"
    by_id = beeline.train("sac", WALK, out=tmp_path / "other", limit=7, **small("sac", steps=60))
    assert beeline.evaluate_run(by_id.path, episodes=2)[0].lengths == [7, 7]


def test_diverged_networks_are_not_blamed_on_the_environment() -> None:
    import jax

    model = beeline.SAC(WALK, **small("sac"))
    model.learn(40)
    nan = jax.tree.map(lambda x: x * np.nan, model.trainer.state.actor)
    model.trainer.state = __import__("dataclasses").replace(model.trainer.state, actor=nan)
    with pytest.raises(BeelineError, match="at step 40 of the run: the policy's action is not finite") as caught:
        model.learn(10)
    assert not isinstance(caught.value, EnvError)


REPLAYS: list[tuple[str, Callable[[], gymnasium.Env], dict[str, Any], str]] = [
    ("drift", lambda: Walk(fault="drift"), {}, "the environment is not deterministic"),
    ("hardware", lambda: Walk(replayable=False), {}, "declares that it must not be replayed"),
    ("small ring", Walk, {"replay_capacity": 12, "batch_size": 4}, "the start of its open episode is no longer in the replay"),
    ("fails", broken("raise", 2), {}, "its open episode cannot be replayed (environment 'Walk' failed in step(): RuntimeError: "),
]


@pytest.mark.parametrize(("env", "more", "message"), [case[1:] for case in REPLAYS], ids=[case[0] for case in REPLAYS])
def test_an_episode_that_cannot_be_replayed_is_reported_and_training_goes_on(
    env: Callable[[], gymnasium.Env], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    class Stop(beeline.Callback):
        def on_step(self, event: beeline.StepEvent) -> bool:
            lane = event.trainer.collector.lanes[0]
            return not (event.step > 40 and lane.decisions == 15)

    run = tmp_path / "run"
    options = small("sac", eval_episodes=0, **more)
    started = Walk if message.startswith("its open") else env
    beeline.train("sac", started, out=run, callbacks=[Stop()], **options)
    stopped = status(run)
    assert stopped["state"] == "stopped"
    said: list[str] = []
    beeline.resume(run, env=env, report=said.append)
    assert len(said) == 1 and message in said[0] and "a new episode begins" in said[0]
    assert beeline.Run(run).metrics[-1]["step"] == 120


def test_existing_folders_are_refused(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    before = table(run.path)
    with pytest.raises(RunFolderError, match=r"run exists already. Go on with it \(beeline resume .*--out"):
        beeline.train("sac", WALK, out=run.path, **small("sac"))
    assert table(run.path) == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"notes exists already\. Choose another folder"):
        beeline.train("sac", WALK, out=tmp_path / "notes", **small("sac"))
    with pytest.raises(RunFolderError, match="save the model elsewhere"):
        beeline.SAC(WALK, **small("sac")).save(run.path)


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot .*file/run.*--out"):
        beeline.train("sac", WALK, out=tmp_path / "file" / "run", **small("sac"))
    with pytest.raises(RunFolderError, match="file exists already"):
        beeline.train("sac", WALK, out=tmp_path / "file", **small("sac"))
    with pytest.raises(RunFolderError, match="is not a folder"):
        beeline.SAC(WALK, **small("sac")).save(tmp_path / "file")

    def refuse(self: Path, *args: Any, **more: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunFolderError, match=r"cannot write .*Permission denied.*--out"):
        beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))


@pytest.mark.parametrize(("file", "at"), [("metrics.csv", 5), ("state.npz", 2), ("policy-best.npz", 2), ("policy.npz", 2)])
def test_full_disk(file: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = beeline.train("sac", WALK, out=tmp_path / "whole", **small("sac")).path
    seen = 0

    def full(operation: str, path: Path) -> None:
        nonlocal seen
        seen += operation == "write" and file in path.name
        if seen >= at:  # the disk stays full
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(files, "fault", full)
        with pytest.raises(DiskFullError, match=f"no space left while writing .*{file}"):
            beeline.train("sac", WALK, out=run, **small("sac"))
    said: list[str] = []
    beeline.resume(run, report=said.append)
    assert said == []
    same_run(whole, run)


def test_checkpoints_of_another_algorithm_or_environment(tmp_path: Path) -> None:
    made: dict[str, tuple[str, str, dict[str, Any]]] = {
        "sac": ("sac", WALK, {}), "td3": ("td3", WALK, {}), "goal": ("sac", "toys:Goal-v0", {}),
        "wide": ("sac", WALK, {"hidden": 9}),
    }  # fmt: skip
    for name, (algo, task, more) in made.items():
        beeline.train(algo, task, out=tmp_path / name, **small(algo, **more))
    messages = {
        "td3": 'algo was "td3" and is "sac"', "goal": 'env was "toys:Goal-v0" and is "toys:Walk-v0"',
        "wide": r"hidden was \[9\] and is \[8, 8\]",
    }  # fmt: skip
    for name, message in messages.items():
        mixed = tmp_path / f"mixed-{name}"
        mixed.mkdir()
        for file in ("config.json", "metrics.csv"):
            shutil.copy(tmp_path / "sac" / file, mixed)
        for part in ("checkpoints", "replay"):
            shutil.copytree(tmp_path / name / part, mixed / part)
        with pytest.raises(CheckpointError, match=message):
            beeline.resume(mixed)
        with pytest.raises(CheckpointError, match=message):
            beeline.load(mixed)
    with pytest.raises(CheckpointError, match="trained on 'toys:Walk-v0', not on 'gym/Pendulum-v1'"):
        beeline.resume(tmp_path / "sac", env="gym/Pendulum-v1")
    with pytest.raises(CheckpointError, match=r"with 2 observations and 2 actions in \[-2, 3\], this one has 3 obs"):
        beeline.load(tmp_path / "sac", env=lambda: gymnasium.make("Pendulum-v1"))
    with pytest.raises(CheckpointError, match="does not fit 'gym/Pendulum-v1'"):
        beeline.evaluate_run(tmp_path / "sac", env="gym/Pendulum-v1")


def test_missing_and_damaged_runs(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "walk-seed0", **small("sac")).path
    with pytest.raises(RunFolderError, match=r"there is no run folder .*walk-seed1. Did you mean .*walk-seed0"):
        beeline.resume(tmp_path / "walk-seed1")
    with pytest.raises(RunFolderError, match=r"not a run folder: it has no config\.json"):
        beeline.resume(tmp_path)
    with pytest.raises(CheckpointError, match="there is nothing at"):
        beeline.load(tmp_path / "nowhere")
    incomplete = '{"format": 1, "algo": "sac"}'
    for content in ("{", incomplete, incomplete[:-1] + ', "agent": [], "train": {}, "env": 3, "preset": ""}'):
        (run / "config.json").write_text(content)
        with pytest.raises(RunFolderError, match=r"config\.json is damaged"):
            beeline.resume(run)
    (run / "config.json").write_text('{"format": 99}')
    with pytest.raises(CheckpointError, match="format 99"):
        beeline.resume(run)


def test_bad_environments_leave_no_folder(tmp_path: Path) -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        ("gym/Pendulm-v1", UnknownNameError, "gym/Pendulum-v1"),
        ("gymm/Pendulum-v1", UnknownNameError, "gym"),
        ("gym/CartPole-v1", EnvError, "continuous actions only"),
        ("no_such_module:X-v0", EnvError, "cannot be imported"),
        (lambda: 3, EnvError, "not a gymnasium.Env"),
    ]
    for env, kind, message in cases:
        with pytest.raises(kind, match=message):
            beeline.train("sac", env, out=tmp_path / "run", **small("sac"))
        assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="steps = 20 is not more than the warm-up"):
        beeline.train("sac", WALK, out=tmp_path / "run", **small("sac", steps=20))
    with pytest.raises(CheckpointError, match="there is no policy file"):
        beeline.train("sac", WALK, out=tmp_path / "run", init_from=tmp_path / "none.npz", **small("sac"))
    assert not (tmp_path / "run").exists()


def test_the_same_environment_twice_is_refused() -> None:
    env = Walk()
    with pytest.raises(EnvError, match="the same environment object would be used twice"):
        beeline.SAC(env, eval_env=env, **small("sac"))
    with pytest.raises(EnvError, match="a factory must make a new one"):
        beeline.SAC(lambda: env, **small("sac", num_envs=2, eval_episodes=0))
    with pytest.raises(EnvError, match="num_envs > 1 needs an env id or a factory"):
        beeline.SAC(env, **small("sac", num_envs=2))


def test_missing_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e .*\[wandb\]'"):
        beeline.train("sac", WALK, out=tmp_path / "run", wandb=True, **small("sac"))
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("beeline.envs.registry.installed", lambda suite: suite.name != "dmc")
    with pytest.raises(MissingExtraError, match=r"pip install -e .*\[dmc\]'"):
        beeline.train("sac", "dmc/walker-run", out=tmp_path / "run", **small("sac"))


def test_a_device_that_is_not_there() -> None:
    import subprocess

    code = "import beeline; beeline.SAC('gym/Pendulum-v1', device='tpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: device = 'tpu' is not available here" in done.stderr


def test_printed_commands_are_quoted_in_one_place(tmp_path: Path) -> None:
    """Whoever copies a command from a message copies it whole: `copyable` quotes names, and nothing else prints any."""
    from beeline.cli.commands import COMMANDS

    assert copyable("resume", tmp_path / "my run's") == f"beeline resume '{tmp_path}/my run'\"'\"'s'"
    assert copyable("train", "bac", "tank:Tank-v0?size=3", "--seed", 1) == "beeline train bac 'tank:Tank-v0?size=3' --seed 1"
    by_hand = re.compile(rf'f".*\bbeeline ({"|".join(COMMANDS)}) [^"]*\{{')
    found = [f"{path.name}: {line.strip()}" for path in sorted(Path(beeline.__file__).parent.rglob("*.py"))
             for line in path.read_text().splitlines() if by_hand.search(line)]  # fmt: skip
    assert not found
