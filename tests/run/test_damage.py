"""What may happen to a run folder between two commands, and what `resume` makes of it: it mends, or refuses and leaves all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import Walk
from whole_runs import same_run, small

import beeline
from beeline.errors import BeelineError, CheckpointError, ConfigError, RunFolderError

WALK = "toys:Walk-v0"


class Stop(beeline.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, event: beeline.StepEvent) -> bool:
        return event.step != self.step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    return beeline.train("sac", WALK, out=tmp_path_factory.mktemp("whole") / "run", **small("sac")).path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped after 70 steps; checkpoints of 30, 60 and 70."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    return beeline.train("sac", WALK, out=path, callbacks=[Stop(70)], **small("sac")).path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(path: Path) -> dict[str, str]:
    files = (each for each in path.rglob("*") if each.is_file() and each.name != ".lock")
    return {str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def resumed(path: Path, **more: Any) -> list[str]:
    said: list[str] = []
    beeline.resume(path, report=said.append, **more)
    return said


# --- the table --------------------------------------------------------------------------------------------------------


def flip(path: Path, place: int, bit: int = 7) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(bytes(data))


def lose(path: Path, place: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:place] + data[place + 1 :])


def replace(path: Path, old: bytes, new: bytes) -> None:
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


TABLES: dict[str, Callable[[Path], object]] = {
    "flipped high bit": lambda path: flip(path, 300),
    "flipped digit": lambda path: flip(path, path.read_bytes().index(b"\n20,") + 1, 0),
    "lost byte": lambda path: lose(path, 400),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "empty": lambda path: path.write_bytes(b""),
    "header": lambda path: replace(path, b"eval/return,", b"eval/retusn,"),
    "CRLF": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("harm", TABLES.values(), ids=TABLES.keys())
def test_a_damaged_table_is_rebuilt(harm: Callable[[Path], object], run: Path, whole: Path) -> None:
    harm(run / "metrics.csv")
    left = (run / "metrics.csv").read_bytes() if (run / "metrics.csv").exists() else b""
    [said] = resumed(run)
    assert "metrics.csv was damaged and is rebuilt from what the checkpoint of step 70 vouches for" in said
    same_run(whole, run)
    kept = [path.read_bytes() for path in run.glob("metrics-cut-70.csv")]
    assert kept == ([left] if left else [])


def test_a_model_is_loaded_from_a_run_with_a_damaged_table(run: Path) -> None:
    before = beeline.load(run).metrics
    flip(run / "metrics.csv", 300)
    assert beeline.load(run).metrics == before and len(before) == 5


def test_where_table_and_copy_are_damaged_an_older_checkpoint_is_taken(run: Path, whole: Path) -> None:
    for path in (run / "metrics.csv", run / "checkpoints" / "metrics.csv"):
        text = path.read_bytes()
        flip(path, text.index(b"\n40,") + 1, 0)  # after the checkpoint of step 30
    said = resumed(run)
    assert "step 70 is damaged: its rows of the record are lost (metrics.csv has another SHA-256" in said[0]
    assert len(said) == 2 and "step 60 is damaged" in said[1]
    assert (run / "metrics-cut-30.csv").read_bytes().count(b"\n") == 4  # the header and the rows of steps 40, 50 and 60
    same_run(whole, run)


def test_where_the_rows_are_lost_for_good_nothing_is_touched(run: Path) -> None:
    for path in (run / "metrics.csv", run / "checkpoints" / "metrics.csv"):
        path.write_bytes(b"step\n")
    before = contents(run)
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is intact: .*has 5 of \d+ bytes.*left as it is.*beeline eval"):
        resumed(run)
    assert contents(run) == before


def test_rows_that_are_cut_are_kept_beside_the_table(run: Path, whole: Path) -> None:
    with (run / "metrics.csv").open("ab") as file:
        file.write(b"80,1,2\n100,")  # what a run wrote between its last checkpoint and its end
    header = (run / "metrics.csv").read_bytes().partition(b"\n")[0]
    assert resumed(run) == []
    assert (run / "metrics-cut-70.csv").read_bytes() == header + b"\n80,1,2\n100,"
    same_run(whole, run)
    for _ in range(5):  # each time the closing evaluation is cut and made again
        resumed(run)
    assert len(list(run.glob("metrics-cut-*.csv"))) == 3
    same_run(whole, run)


def test_a_saved_model_goes_on_as_a_run(tmp_path: Path, whole: Path) -> None:
    model = beeline.SAC(WALK, **small("sac")).learn(70)
    model.save(tmp_path / "model")
    assert resumed(tmp_path / "model") == []
    same_run(whole, tmp_path / "model")


def test_a_hard_linked_copy_is_its_own(stopped: Path, whole: Path, tmp_path: Path) -> None:
    ours = Path(shutil.copytree(stopped, tmp_path / "ours"))
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs", copy_function=os.link))
    before = contents(ours)
    assert resumed(theirs) == []
    same_run(whole, theirs)
    assert contents(ours) == before
    assert resumed(ours) == []
    same_run(whole, ours)


# --- no checkpoint ----------------------------------------------------------------------------------------------------


def test_a_run_without_its_checkpoints_is_not_begun_again(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "replay")
    before = contents(run)
    message = (
        r"no checkpoint to go on from, .* had begun: status\.json says finished at step 120, metrics\.csv has 9 rows, there is "
        r"policy\.npz, there is policy-best\.npz\. It is left as it is\. .*beeline eval .*run --video.*beeline train sac toys"
    )
    with pytest.raises(CheckpointError, match=message):
        resumed(run, steps=1000)
    assert contents(run) == before
    traces: dict[str, bytes] = {
        "status.json": b'{"state": "running", "step": 30}', "metrics.csv": b"step\n0\n", "policy.npz": b"",
        "policy-best.npz": b"", "replay/segment-000000000000.npz": b"",
    }  # fmt: skip
    for name, content in traces.items():  # any one of them will do
        alone = tmp_path / name.replace("/", "-")
        alone.mkdir()
        shutil.copy(run / "config.json", alone)
        (alone / name).parent.mkdir(exist_ok=True)
        (alone / name).write_bytes(content)
        with pytest.raises(CheckpointError, match="had begun"):
            resumed(alone)


def test_a_run_that_never_began_begins(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(whole / "config.json", run)
    (run / "metrics.csv").write_text("step\n")
    (run / "status.json").write_text(json.dumps({"state": "running", "step": 0}))
    [said] = resumed(run)
    assert "starts from the beginning" in said
    same_run(whole, run)


def test_where_every_checkpoint_is_damaged_nothing_is_touched(run: Path) -> None:
    for state in run.glob("checkpoints/step-*/state.npz"):
        flip(state, 1000)
    before = contents(run)
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is intact: .* The run is left as it is\. Evaluate or film"):
        resumed(run, steps=1000)
    assert contents(run) == before


# --- things in the place of files -------------------------------------------------------------------------------------

FILES = ["metrics.csv", "policy.npz", "status.json", ".lock"]


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file(name: str, run: Path) -> None:
    (run / name).unlink()
    (run / name).mkdir()
    with pytest.raises(RunFolderError, match=rf"{name}.*There is a folder where a file belongs: move it away"):
        resumed(run)


@pytest.mark.parametrize("name", ["checkpoints", "replay"])
def test_a_file_or_a_link_in_place_of_a_folder(name: str, run: Path, stopped: Path) -> None:
    shutil.rmtree(run / name)
    (run / name).write_text("")
    with pytest.raises(BeelineError):
        resumed(run)
    (run / name).unlink()
    (run / name).symlink_to(stopped / name)
    before = contents(stopped)
    with pytest.raises(BeelineError, match="is a link"):
        resumed(run)
    assert contents(stopped) == before


@pytest.mark.parametrize("name", [*FILES, "config.json"])
def test_no_file_is_read_or_written_through_a_link(name: str, run: Path, whole: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    shutil.move(run / name, precious)
    before = precious.read_bytes()
    (run / name).symlink_to(precious)
    if name in (".lock", "config.json"):
        with pytest.raises(RunFolderError, match="link"):
            resumed(run)
    else:
        resumed(run)
        same_run(whole, run)
    assert precious.read_bytes() == before


@pytest.mark.parametrize("name", [*FILES, "config.json"])
def test_no_pipe_is_waited_for(name: str, run: Path, whole: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    if name in (".lock", "config.json"):
        with pytest.raises(RunFolderError, match=r"not a regular file|no config"):
            resumed(run)
    else:
        resumed(run)
        same_run(whole, run)


def test_a_policy_is_read_from_a_file_of_its_own(run: Path, tmp_path: Path) -> None:
    (tmp_path / "named.npz").symlink_to(run / "policy.npz")
    assert beeline.load(tmp_path / "named.npz").meta["step"] == 70  # a link that the user names is meant
    shutil.move(run / "policy.npz", tmp_path / "elsewhere.npz")
    (run / "policy.npz").symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        beeline.Run(run).policy()
    (run / "policy.npz").unlink()
    os.mkfifo(run / "policy.npz")
    with pytest.raises(CheckpointError, match="not a regular file"):
        beeline.Run(run).policy()


def test_a_folder_that_cannot_be_written_is_left_with_advice_that_resume_has(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(operation: str, path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("beeline.files.fault", refuse)
    before = contents(run)
    with pytest.raises(RunFolderError, match=r"Read-only file system\. .*copied and resumed elsewhere") as caught:
        resumed(run)
    assert "--out" not in str(caught.value) and contents(run) == before


# --- the plan ---------------------------------------------------------------------------------------------------------


def edit(path: Path, change: Callable[[Any], object]) -> None:
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


OPTIONS: dict[str, Any] = {
    "agent.gamma": 0.9, "agent.alpha_lr": 3.0003, "agent.batch_size": 9, "agent.n_step": 2, "agent.normalize_obs": True,
    "agent.hidden": [8, 9], "train.seed": 1, "train.num_envs": 2, "train.repeat": 2, "train.eval_every": 40,
    "train.eval_episodes": 2, "train.log_every": 10, "train.diagnose": 50, "train.replay_capacity": 9_000, "train.threads": 3,
    "train.device": "gpu", "init_from": "/a/policy.npz", "preset": "paper",
}  # fmt: skip


def set_option(config: Any, name: str, value: Any) -> Any:
    *above, last = name.split(".")
    for key in above:
        config = config[key]
    before, config[last] = config[last], value
    return before


@pytest.mark.parametrize("name", OPTIONS)
def test_a_changed_option_is_refused_by_name_with_both_values(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beeline.runtime.configure", lambda threads, device: 1)
    before = set_option(json.loads((run / "config.json").read_text()), name, None)
    edit(run, lambda config: set_option(config, name, OPTIONS[name]))
    files = contents(run)
    told = f"{name.split('.')[-1]} was {json.dumps(before)} and is {json.dumps(OPTIONS[name])}. Put back what was"
    for act in (resumed, beeline.load):
        with pytest.raises(CheckpointError) as caught, pytest.MonkeyPatch.context() as quiet:
            quiet.setattr("warnings.warn", lambda *args, **more: None)
            act(run)  # type: ignore[operator]
        assert told in str(caught.value) and "--accept-config" in str(caught.value)
    assert contents(run) == files


def test_every_option_is_either_covered_or_decides_nothing() -> None:
    from beeline.options import TrainConfig
    from beeline.run.plan import Plan
    from beeline.run.vouched import FREE, decisive

    covered = decisive(Plan.make("sac", WALK, "light", {}))
    assert set(TrainConfig.names()) - set(covered) == set(FREE)
    assert {"algo", "env", "preset", "init_from", "seed", "repeat", "gamma", "hidden"} <= set(covered)


def test_options_that_decide_nothing_may_change(run: Path, whole: Path) -> None:
    free = {"checkpoint_every": 11, "keep_checkpoints": 1, "tensorboard": True}
    edit(run, lambda config: config["train"].update(free))
    assert resumed(run) == []
    same_run(whole, run)


def test_a_changed_option_can_be_accepted_and_is_written_down(run: Path, stopped: Path) -> None:
    edit(run, lambda config: set_option(config, "agent.gamma", 0.9))
    [said] = resumed(run, accept_config=True)
    assert said == "accepted at step 70: gamma was 0.99 and is 0.9."
    entry = {"step": 70, "option": "gamma", "from": 0.99, "to": 0.9}
    assert beeline.Run(run).config["accepted"] == [entry] and beeline.Run(run).config["agent"]["gamma"] == 0.9
    assert resumed(run, steps=130) == []
    for newer in run.glob("checkpoints/step-*"):  # where only a checkpoint from before the change is left, it holds on
        shutil.rmtree(newer)
    shutil.rmtree(run / "replay")
    for name in ("checkpoints", "replay"):
        shutil.copytree(stopped / name, run / name, dirs_exist_ok=True)
    assert all("accepted" not in line for line in resumed(run))
    edit(run, lambda config: set_option(config, "agent.gamma", 0.8))
    with pytest.raises(CheckpointError, match=r"gamma was 0\.9 and is 0\.8"):
        resumed(run)
    model = beeline.load(run, report=lambda message: None, accept_config=True)
    model.save(run.parent / "model")
    last = beeline.Run(run.parent / "model").config["accepted"]
    assert [each["to"] for each in last] == [0.9, 0.8]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("train.num_envs", 2, "of 1 environments side by side, and num_envs is 2"), ("agent.hidden", [8, 9], "other networks"),
     ("train.replay_capacity", 9_000, "its replay has 10000 rows, and replay_capacity is 9000")],
)  # fmt: skip
def test_what_cannot_be_accepted_says_so(name: str, value: Any, message: str, run: Path) -> None:
    edit(run, lambda config: set_option(config, name, value))
    with pytest.raises(CheckpointError, match=message):
        resumed(run, accept_config=True)


def test_saved_statistics_are_not_left_behind(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[Stop(70)], **small("sac", normalize_obs=True)).path
    edit(run, lambda config: set_option(config, "agent.normalize_obs", False))
    with pytest.raises(CheckpointError, match=r"an array .agent\.host.* that has no place here"):
        resumed(run, accept_config=True)


def test_the_version_is_in_the_record(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert beeline.Run(run).config["versions"]["beeline"] == beeline.__version__
    monkeypatch.setattr("beeline.__version__", "9.9")
    assert any("this is Beeline 9.9, the checkpoint was made with" in line for line in resumed(run))


def rewrite_meta(run: Path, change: Callable[[Any], object]) -> None:
    """Change the description in every manifest, with a right SHA-256."""
    from beeline.run.checkpoint import _render

    for path in run.glob("checkpoints/step-*/manifest.json"):
        content = json.loads(path.read_text())["content"]
        change(content["meta"])
        path.write_bytes(_render(content))


def test_checkpoints_without_a_plan_go_on_with_a_note(run: Path, whole: Path) -> None:
    def older(meta: Any) -> None:
        meta["metrics_bytes"] = meta.pop("table")["bytes"]
        del meta["plan"]

    rewrite_meta(run, older)
    [said] = resumed(run)
    assert "whether config.json has changed since is not known" in said
    same_run(whole, run)


def test_lost_rows_of_an_older_checkpoint_are_noticed(run: Path) -> None:
    rewrite_meta(run, lambda meta: meta.update(metrics_bytes=meta.pop("table")["bytes"]))
    lose(run / "metrics.csv", 400)
    with pytest.raises(CheckpointError, match="its rows of the record are lost"):
        resumed(run)


METAS: dict[str, Callable[[Any], object]] = {
    "no spaces": lambda meta: meta.pop("spaces"),
    "odd spaces": lambda meta: meta["spaces"].update(action_low=3),
    "no actions": lambda meta: meta["spaces"].update(action_low=[], action_high=[]),
    "no progress": lambda meta: meta.pop("progress"),
    "odd progress": lambda meta: meta.update(progress=[1]),
    "unknown progress": lambda meta: meta["progress"].update(more=1),
    "text in progress": lambda meta: meta["progress"].update(step="70"),
    "decisions beyond their counter": lambda meta: meta["progress"].update(decisions=2**31),
    "no collector": lambda meta: meta.pop("collector"),
    "no lanes": lambda meta: meta["collector"].update(lanes=[]),
    "odd lane": lambda meta: meta["collector"].update(lanes=[{"episode": None}]),
    "too many lanes": lambda meta: meta["collector"].update(lanes=meta["collector"]["lanes"] * 2),
    "odd episodes": lambda meta: meta["collector"].update(finished=[{"ret": 1.0}]),
    "no table": lambda meta: meta.pop("table"),
    "odd table": lambda meta: meta.update(table={"bytes": "x", "sha256": 3}),
    "nothing of a table": lambda meta: meta.update(table=None),
    "odd rows": lambda meta: meta.update(rows=[{"step": "x"}]),
    "odd plan": lambda meta: meta.update(plan=[]),
    "odd identity": lambda meta: meta.update(identity=None),
}


@pytest.mark.parametrize("change", METAS.values(), ids=METAS.keys())
def test_an_odd_description_is_a_sentence(change: Callable[[Any], object], run: Path) -> None:
    rewrite_meta(run, change)
    before = contents(run)
    for act in (resumed, lambda path: beeline.load(path, report=lambda message: None)):
        with pytest.raises(CheckpointError):
            act(run)
    assert contents(run) == before


@pytest.mark.parametrize("remark", [{"versions": [1]}, {"accepted": 3}, {"cpu": None}], ids=str)
def test_odd_remarks_in_the_config_harm_nobody(remark: dict[str, Any], run: Path, whole: Path) -> None:
    edit(run, lambda config: config.update(remark))
    resumed(run)
    same_run(whole, run)


def test_a_damaged_seed_on_top_of_the_config_is_mended(run: Path) -> None:
    edit(run, lambda config: config.update(seed=7))
    assert resumed(run) == [] and beeline.Run(run).config["seed"] == 0


def test_an_error_in_the_config_names_the_file(run: Path) -> None:
    edit(run, lambda config: set_option(config, "agent.gamma", 7.0))
    with pytest.raises(BeelineError, match=r"config\.json: gamma = 7\.0 is out of range"):
        resumed(run)


# --- length -----------------------------------------------------------------------------------------------------------


def test_a_run_longer_than_its_counters_is_refused_at_the_start(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ConfigError, match=r"steps = 2147483648 is too much"):
        beeline.train("sac", WALK, out=tmp_path / "long", **small("sac", steps=2**31))
    with pytest.raises(ConfigError, match=r"steps = 1000000000000 is too much: 1,000,000,000,000 decisions"):
        beeline.train("sac", WALK, out=tmp_path / "long", **small("sac", steps=10**12))
    assert not (tmp_path / "long").exists()
    with pytest.raises(ConfigError, match="is too much"):
        resumed(run, steps=10**12)


def test_steps_of_more_than_twelve_digits_are_found_again(tmp_path: Path) -> None:
    import numpy as np

    from beeline.run.checkpoint import CheckpointStore

    store = CheckpointStore(tmp_path, keep=2)
    for step in (10**12 - 1, 10**12, 10**14):
        store.save(step, {"a": np.ones(1)}, {})
    assert store.steps() == [10**12, 10**14] and store.load(print).step == 10**14


# --- ends -------------------------------------------------------------------------------------------------------------


def test_an_environment_that_does_not_close_spoils_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = beeline.train("sac", lambda: Walk(fault="raise in close"), out=tmp_path / "run", **small("sac"))
    assert json.loads((run.path / "status.json").read_text())["state"] == "finished"
    assert sum("failed in close(): RuntimeError: the motor is stuck" in str(each.message) for each in told) == 2


def test_a_run_that_is_moved_away_ends_with_a_sentence_and_goes_on_there(tmp_path: Path, whole: Path) -> None:
    class Move(beeline.Callback):
        def on_step(self, event: beeline.StepEvent) -> None:
            if event.step == 75:
                (tmp_path / "run").rename(tmp_path / "moved")

    with pytest.raises(RunFolderError, match=r"metrics\.csv: No such file.*moved, resume it where it is now"):
        beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[Move()], **small("sac"))
    assert not (tmp_path / "run").exists()
    assert resumed(tmp_path / "moved") == []
    same_run(whole, tmp_path / "moved")


def test_a_changed_plan_is_refused_before_anything_is_built_from_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(run, lambda config: set_option(config, "agent.hidden", [10**9]))
    for place in ("beeline.training.build", "beeline.api.Model._set_up"):
        monkeypatch.setattr(place, lambda *args, **more: pytest.fail("networks were made"))
    for act in (resumed, beeline.load):
        with pytest.raises(CheckpointError, match=r"hidden was \[8, 8\] and is \[1000000000\]"):
            act(run)  # type: ignore[operator]


# --- records that are shown -------------------------------------------------------------------------------------------


def test_a_digit_of_a_record_that_is_another_is_said(whole: Path, tmp_path: Path) -> None:
    from beeline.report.runs import read_one

    def said(path: Path) -> str:
        found: list[Any] = []
        assert read_one(path, found.append) is not None
        return " ".join(map(str, found))

    assert said(whole) == ""
    changed = {"config.json": b'"gamma": 0.99', "status.json": b'"step": 120', "metrics.csv": b"\n20,"}
    for name, old in changed.items():
        run = Path(shutil.copytree(whole, tmp_path / name))
        shutil.rmtree(run / "checkpoints")  # it is seen without them
        replace(run / name, old, old.replace(b"0", b"1"))
        assert f"{name} is" in said(run) and "SHA-256" in said(run)
