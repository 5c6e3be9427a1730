"""The command line as a user meets it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from whole_runs import HERE, flags, same_run, small

from beeline import __version__, agents
from beeline.cli.commands import COMMANDS, main
from beeline.options import TrainConfig

WALK = "toys:Walk-v0"


def run(capsys: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> tuple[str, str]:
    """Run a command in this process; what it wrote to stdout and stderr."""
    try:
        found = main([str(word) for word in words])
    except SystemExit as error:
        found = int(error.code or 0)
    out, err = capsys.readouterr()
    assert found == code, err
    assert "Traceback" not in err
    return out, err


def test_help_is_quick() -> None:
    """Neither the help nor a mistake may wait for JAX."""
    code = (
        "import sys; from beeline.cli import main; codes = [main(['--help']), main(['--version']), main(['trian']), "
        "main(['train', 'bca', 'gym/Pendulum-v1']), main(['resume'])]; "
        "heavy = {'jax', 'gymnasium', 'mujoco', 'matplotlib', 'numpy'} & set(sys.modules); "
        "print(codes, heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("[0, 0, 2, 2, 2] set()")
    assert "unknown command 'trian'. Did you mean 'train'?" in done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "beeline", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, command, "--help")
    assert out.startswith(f"usage: beeline {command}") and COMMANDS[command][1] in " ".join(out.split())
    assert run(capsys, "help")[0] == run(capsys)[0] == run(capsys, "-h")[0]


@pytest.mark.parametrize("algo", agents.ALGORITHMS)
def test_every_option_is_in_the_help(algo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    out, _ = run(capsys, "train", "--seed", "3", algo, "--help")
    text = " ".join(out.split())
    for config in (TrainConfig, agents.get(algo).config):
        for name, rule in config.rules().items():
            assert f"--{name.replace('_', '-')}" in out
            assert " ".join(rule.doc.split()) in text
            assert rule.allowed.replace(" ", "") in text.replace(" ", "")
    light = agents.get(algo).preset("light", "gym/X-v0").get("random_steps")  # where presets differ, each is named
    assert (re.search(r"\blight 1000, paper ", text) is not None) == (light == 1000)


def test_film_shows_runs_as_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from PIL import Image

    from beeline.envs import rendering

    folder, out = tmp_path / "run", tmp_path / "strip.png"
    run(capsys, "train", "bac", "gym/Swimmer-v5?limit=20", "--out", folder, "--quiet", *flags(small()))
    assert "frames = 1 is out of range" in run(capsys, "film", folder, "--frames", 1, code=2)[1]
    assert "1 labels for 2 runs" in run(capsys, "film", folder, folder, "--label", "a", code=2)[1]
    assert "must end in .png" in run(capsys, "film", folder, "-o", "strip.jpg", code=2)[1]
    assert "there is no run folder" in run(capsys, "film", tmp_path / "nowhere", "-o", out, code=2)[1]
    if rendering.choose_backend().name is None:
        pytest.skip(rendering.INSTALL)
    words = ["--frames", 4, "-o", out, "--label", "latest", "--label", "best"]
    assert str(out) in run(capsys, "film", folder, folder / "policy-best.npz", *words)[0]
    assert Image.open(out).size == (4 * 200, 2 * 250)
    assert "does not fit" in run(capsys, "film", folder, "--env", "gym/Hopper-v5", "-o", out, code=2)[1]


def test_train_resume_and_evaluate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = small("bac")
    out, err = run(capsys, "train", *flags(options), "--lambda", "0.25", "bac", WALK, "--out", tmp_path / "run")
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "bac on toys:Walk-v0, seed 0, 120 environment steps"
    assert lines[1] == f"run folder: {tmp_path / 'run'}"
    assert re.fullmatch(r"step +60 \( ?50%\) +\d+ steps/s +ETA \d+:\d\d +return -?\d.* train -?\d.* Q .* λ 0\.25 +α .*", lines[6])
    assert re.fullmatch(r"return before training -[\d.]+, after 120 steps -[\d.]+ \(best -[\d.]+ at [\d,]+\)", lines[-3])
    assert lines[-2:] == [f"run folder: {tmp_path / 'run'}", f"curve: {tmp_path / 'run' / 'curve.png'}"]

    out, _ = run(capsys, "resume", tmp_path / "run", "--steps", "1.4e2", "--quiet")
    assert out.startswith("return before training") and "after 140 steps" in out
    run(capsys, "train", "bac", WALK, *flags(options | {"steps": 140}), "--lam", "0.25", "--quiet", "--out", tmp_path / "long")
    same_run(tmp_path / "long", tmp_path / "run")
    out, err = run(capsys, "resume", tmp_path / "run", "--quiet")
    assert err == "note: this run is finished; --steps N, more than it has, extends it.\n" and "after 140 steps" in out

    out, _ = run(capsys, "eval", tmp_path / "run", "--episodes", "3")
    assert re.match(
        r"bac on toys:Walk-v0, policy of step 140\nreturn -[\d.]+ ± [\d.]+ \(std\) over 3 episodes, length \d+\n$", out
    )
    assert "policy of step" in run(capsys, "eval", tmp_path / "run" / "policy-best.npz", "--episodes", "1")[0]
    assert "episodes = 0 is out of range; allowed: >= 1" in run(capsys, "eval", tmp_path / "run", "--episodes", "0", code=2)[1]
    assert "exists already" in run(capsys, "train", "bac", WALK, "--out", tmp_path / "run", code=2)[1]


def test_success_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "train", "sac", "toys:Goal-v0", *flags(small("sac")), "--quiet", "--out", tmp_path / "run")
    out, _ = run(capsys, "eval", tmp_path / "run", "--episodes", "4")
    assert re.search(r"success \d+% at the end, \d+% at any step", out)


MISTAKES = [
    (["train", "bac", "gym/Pendulum-v1", "--gama", "0.9"], r"unknown option --gama for bac\. Did you mean --gamma"),
    (["train", "bac", "gym/Pendulum-v1", "--xyz", "1"], r"unknown option --xyz for bac\. See: beeline train bac --help"),
    (["bench", "--total-timesteps", "5"], r"unknown option --total-timesteps\. Here it is --steps\."),
    (["train", "bac", "gym/Pendulum-v1", "--gamma", "1.5"], r"gamma = 1.5 is out of range; allowed: >= 0 and <= 1"),
    (["train", "bac", "gym/Pendulum-v1", "--steps", "many"], r"steps = 'many' is not a whole number; allowed: >= 1"),
    (["train", "bac", "gym/Pendulum-v1", "--network", "cnn"], r"network = 'cnn' is out of range; allowed: one of mlp, bac"),
    (["train", "bac", "gym/Pendulum-v1", "--steps", "500"], r"steps = 500 is not more than the warm-up \(random_steps = 2500\)"),
    (["train", "bac", "gym/Pendulm-v1"], r"unknown environment 'gym/Pendulm-v1'\. Did you mean 'gym/Pendulum-v1'"),
    (["train", "a2c", "gym/Pendulum-v1"], r"unknown algorithm 'a2c'.*Known: bac, sac, bee-td3, td3"),
    (["train", "bac", "gym/Pendulum-v1", "--preset", "papr"], r"unknown preset 'papr'\. Did you mean 'paper'"),
    (["train", "bac"], r"TASK is missing\. See: beeline train --help"),
    (["train"], r"ALGO and TASK are missing"),
    (["train", "bac", "gym/Pendulum-v1", "--seed"], r"--seed: expected one argument"),
    (["resume", "nowhere"], r"there is no run folder nowhere"),
    (["resume", "nowhere", "--steps", "1.5"], r"'1\.5' is not a whole number"),
    (["eval", "nowhere"], r"there is no run folder nowhere"),
    (["algos", "bacc"], r"unknown algorithm 'bacc'\. Did you mean 'bac'"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes_are_told_in_a_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, err = run(capsys, *words, code=2)
    assert re.search(message, err), err
    assert err.splitlines()[-1].startswith("beeline: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "said"), [
    (["eval", "run"], "stopped"), (["resume", "run"], "left at once, without a checkpoint of the last steps"),
])  # fmt: skip
def test_ctrl_c_speaks_of_checkpoints_only_where_something_is_trained(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("beeline.api.evaluate_run", interrupted)
    monkeypatch.setattr("beeline.run.folder.RunFolder.open", interrupted)
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *words, code=130)[1] == f"{said}\n"


def test_environments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "check-env", WALK)
    assert "ok      reset(seed=0) gives the same episode again" in out and "error" not in out
    out, _ = run(capsys, "check-env", "gym/CartPole-v1", code=1)
    assert out.startswith("error") and "continuous" in out


def test_default_folders_get_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run(capsys, "train", "sac", WALK, *flags(small("sac")), "--quiet")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["sac-toys-Walk-v0-seed0", "sac-toys-Walk-v0-seed0-2"]


def test_a_live_line_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """A real terminal, through the command: what is watched is there, and no line is longer than the terminal."""
    import fcntl
    import os
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "beeline", "train", "bac", WALK, *flags(small("bac")), "--out", str(tmp_path / "run")]
    env = os.environ | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent)))}
    done = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert done.wait() == 0, said.decode()
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()))
    live = [line for line in lines if "/120  " in line]
    assert re.fullmatch(r"([━╌]+  )?120/120  (.* steps/s  )?ETA 0:00  return .*  λ 0\.50  α .*", live[-1])
    assert max(map(len, live)) <= 80
    assert any("compiling" in line or "evaluating" in line for line in live)


@pytest.mark.parametrize("text", ["see [/x] there", "[bold]loud[/bold]", "a[link=http://x]b"])
def test_brackets_of_the_users_world_are_printed_as_they_are(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from beeline import envs
    from beeline.envs.check import Finding
    from beeline.run import diagnose as diagnostics

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(envs, "check", lambda env: [Finding("error", text)])
    assert f"error   {text}\n" in run(capsys, "check-env", "gym/A-v1", code=1)[0]
    nothing: dict[str, Any] = {"fitted_delta": {}, "sign_changes": {}}
    result = {"algo": text, "env": text, "seed": 0, "step": 5, "latest": {f"diag/{text}": 1.0}, **nothing}
    monkeypatch.setattr(diagnostics, "diagnose_run", lambda path, **options: result)
    out = " ".join(run(capsys, "diagnose", tmp_path)[0].split())
    assert f"{text} on {text}, seed 0, step 5" in out and f"{text} 1.000" in out


def test_a_name_that_the_terminal_cannot_write_is_no_error(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = "from beeline.cli import main; import os; main(['runs', os.fsdecode(b'" + str(tmp_path) + "/caf\\xe9')])"
    Path(str(tmp_path) + "/caf\udce9").mkdir()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONUTF8": "1"})
    assert done.stdout.endswith("caf? meets these conditions.\n")
