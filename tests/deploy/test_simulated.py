"""The simulated robot under the controller: the same walk as in the environment, without JAX and Gymnasium."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from policies import small_policy

import beeline
from beeline.cli.commands import main
from beeline.deploy import Controller, OnnxPolicy, TickLog
from beeline.deploy.simulated import SimulatedRobot, task_of, variant_of
from beeline.envs import registry
from beeline.envs.dkitty.options import SimToReal
from beeline.envs.dkitty.tasks import VARIANTS
from beeline.errors import ConfigError, ExportError, RobotError, UnknownNameError

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
SAFE = np.tile([0.0, np.pi / 4, -1.57], 4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.onnx"
    small_policy(path)
    return path


def walked(robot: SimulatedRobot, policy: Any, path: Path, ticks: int) -> tuple[Any, list[dict[str, Any]]]:
    log = TickLog(path)
    outcome = Controller(policy, robot, robot.clock, robot.goal, log=log).run(ticks)
    log.close()
    return outcome, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "query", "options"),
    [
        ("walk-fixed", "", {}),
        ("walk-medium", "", {}),
        ("walk-grassland", "", {}),
        ("walk-smooth-road", "?latency=0.02&payload=0.3&push=0.5&motor=0.2&sense=0.05&offset=0.02",
         {"latency": 0.02, "payload": 0.3, "push": 0.5, "motor": 0.2, "sense": 0.05, "offset": 0.02}),
    ],
)  # fmt: skip
def test_the_controller_walks_as_the_environment_does(
    exported: Path, tmp_path: Path, name: str, query: str, options: dict[str, Any]
) -> None:
    policy, ticks = OnnxPolicy(exported), 45
    env = registry.make(f"dkitty/{name}{query}")
    obs, _ = env.reset(seed=3)
    robot = SimulatedRobot(VARIANTS[name], 3, options=SimToReal(**options))
    outcome, log = walked(robot, policy, tmp_path / "log.jsonl", ticks)
    info: dict[str, Any] = {}
    for line in log[1 : 1 + outcome.ticks]:
        np.testing.assert_array_equal(np.array(line["observation"], np.float32), obs)
        obs, _, fallen, _, info = env.step(np.array(line["action"], np.float32))
    assert outcome.ticks >= 5 and (outcome.kind == "fallen") == fallen and (fallen or outcome.ticks == ticks)
    if "sense" not in options:  # with it, the controller knows the distance no better than its sensors
        assert outcome.walked == info["distance_walked"] and outcome.success == info["success"]
    assert outcome.safe
    np.testing.assert_allclose(log[-2]["command"], SAFE)


def test_a_decision_of_two_steps(tmp_path: Path) -> None:
    small_policy(tmp_path / "p.onnx", repeat=2)
    policy = OnnxPolicy(tmp_path / "p.onnx")
    assert (policy.rate, policy.repeat) == (5.0, 2)
    env = registry.make("dkitty/walk-fixed", repeat=2)
    obs, _ = env.reset(seed=0)
    _, log = walked(SimulatedRobot(VARIANTS["walk-fixed"], 0), policy, tmp_path / "log.jsonl", 10)
    for line in log[1:11:2]:
        np.testing.assert_array_equal(np.array(line["observation"], np.float32), obs)
        obs = env.step(np.array(line["action"], np.float32))[0]


def test_lost_commands_leave_the_motors_with_the_one_before() -> None:
    robot = SimulatedRobot(VARIANTS["walk-fixed"], 0, options=SimToReal(drop=1.0))
    robot.write(np.full(12, 0.1))
    assert not robot.world.data.ctrl.any()


def test_a_stop_takes_the_power() -> None:
    robot = SimulatedRobot(VARIANTS["walk-fixed"], 0)
    robot.stop()
    robot.stop()
    with pytest.raises(RobotError, match="no power"):
        robot.write(np.zeros(12))
    robot.world.advance(np.ones(12))
    assert not robot.world.data.actuator_force.any()


def test_targets() -> None:
    assert SimulatedRobot(variant_of("walk-grassland", 2.0), 0).goal == pytest.approx([0.0, 2.0])
    with pytest.raises(UnknownNameError, match="walk-grassland"):
        variant_of("walk-grass")
    with pytest.raises(ConfigError, match="draws its own goal"):
        variant_of("walk-medium", 1.0)
    with pytest.raises(ConfigError, match="out of range"):
        variant_of("walk-grassland", 9.0)


def test_a_task_may_come_with_what_a_real_robot_adds() -> None:
    variant, options = task_of("dkitty/walk-grassland?latency=0.02&payload=0.3", 2.0)
    assert variant == variant_of("walk-grassland", 2.0) and options == SimToReal(latency=0.02, payload=0.3)
    assert task_of("walk-medium") == (VARIANTS["walk-medium"], SimToReal())
    for name in ("walk-medium?repeat=2", "walk-medium?wide=1", "walk-medium?noise=0.1"):
        with pytest.raises(ConfigError, match=r"has the options latency, .*drop; others belong to a policy's training"):
            task_of(name)
    with pytest.raises(ConfigError, match="out of range"):
        task_of("walk-medium?latency=1")


# --- files that are no policy of a D'Kitty ------------------------------------------------------------------------------


def unsealed(model: Any, path: Path) -> None:
    """Write a model that somebody has changed, as one would who knows of the seal."""
    kept = [prop for prop in model.metadata_props if prop.key != "sha256"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, str(path))


def test_a_weight_that_is_another_is_seen(exported: Path, tmp_path: Path) -> None:
    model = onnx.load(str(exported))
    weights = max(model.graph.initializer, key=lambda each: len(each.raw_data)).raw_data
    data = bytearray(exported.read_bytes())
    data[data.index(weights) + 2] ^= 1
    (tmp_path / "p.onnx").write_bytes(data)
    with pytest.raises(ExportError, match="is not as it was written"):
        OnnxPolicy(tmp_path / "p.onnx")
    assert OnnxPolicy(exported).meta["sha256"]  # any reader of ONNX finds the entry
    unsealed(model, tmp_path / "p.onnx")
    assert "sha256" not in OnnxPolicy(tmp_path / "p.onnx").meta


def test_a_graph_is_tried_before_a_robot_has_power(exported: Path, tmp_path: Path) -> None:
    for name, message in (("wide", "cannot decide at an observation of 52 zeros"), ("nan", "not finite")):
        model = onnx.load(str(exported))
        if name == "wide":
            model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 51
            for each in model.graph.initializer:
                if list(each.dims)[:1] == [52]:
                    array = onnx.numpy_helper.to_array(each)[:51]
                    each.CopyFrom(onnx.numpy_helper.from_array(array, each.name))
        else:
            each = max(model.graph.initializer, key=lambda each: len(each.raw_data))
            each.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(each) * np.float32("nan"), each.name))
        unsealed(model, tmp_path / "p.onnx")
        with pytest.raises(ExportError, match=message):
            OnnxPolicy(tmp_path / "p.onnx")


def test_what_is_no_policy_is_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="there is no exported policy"):
        OnnxPolicy(tmp_path / "none.onnx")
    for run in (tmp_path, tmp_path / "policy.npz"):
        with pytest.raises(ExportError, match=rf"is not an exported policy. Make one with: beeline export {run} --onnx"):
            OnnxPolicy(run)
    (tmp_path / "bad.onnx").write_bytes(exported.read_bytes()[:500])
    with pytest.raises(ExportError, match=r"bad\.onnx is not an intact ONNX file"):
        OnnxPolicy(tmp_path / "bad.onnx")


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("observation", None, "not as `beeline export` writes it"),
        ("observation", [["upright", 1], ["root_pos", 51]], "does not see what a D'Kitty's task shows"),
        ("control_rate", 50.0, "decides 50 times a second"),
        ("control_rate", None, "not as `beeline export` writes it"),
        ("repeat", 0, "0 control steps each"),
        ("action_low", [-2.0] * 12, "not those of a D'Kitty"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(exported: Path, tmp_path: Path, entry: str, value: Any, words: str) -> None:
    model = onnx.load(str(exported))
    for prop in model.metadata_props:
        if prop.key == entry:
            prop.value = json.dumps(value)
    unsealed(model, tmp_path / "p.onnx")
    with pytest.raises(ExportError, match=words):
        OnnxPolicy(tmp_path / "p.onnx")


def test_the_order_of_observations_must_be_ours(exported: Path, tmp_path: Path) -> None:
    model = onnx.load(str(exported))
    for prop in model.metadata_props:
        if prop.key == "observation":
            parts = json.loads(prop.value)
            prop.value = json.dumps([parts[1], parts[0], *parts[2:]])
    unsealed(model, tmp_path / "p.onnx")
    with pytest.raises(ExportError, match="does not see what a D'Kitty's task shows"):
        OnnxPolicy(tmp_path / "p.onnx")


def test_the_wide_span_of_actions_is_in_the_id(tmp_path: Path) -> None:
    small_policy(tmp_path / "p.onnx", "dkitty/stand-random?wide=1")
    policy = OnnxPolicy(tmp_path / "p.onnx")
    assert policy.kind == "stand" and policy.command_range[1, 0] == -2.14


# --- the command ------------------------------------------------------------------------------------------------------

WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Refuse())
from beeline.cli.commands import main
code = main({words})
assert not set(sys.modules) & {refused}
sys.exit(code)
"""
JAX = {"jax", "jaxlib", "optax", "gymnasium", "onnx", "matplotlib", "rich", "imageio"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which nothing is installed but Beeline, numpy, onnxruntime, mujoco
    and what these need; the command there."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    assert site.is_relative_to(folder)
    (site / "beeline").symlink_to(Path(beeline.__file__).parent)
    wanted, found = ["onnxruntime", "mujoco", "typing_extensions"], set()  # the last is asked for by an extra of an extra
    while wanted:
        name = wanted.pop()
        found.add(name)
        package = metadata.distribution(name)
        needed = [re.match(r"[\w.-]+", line)[0].lower() for line in package.requires or [] if "extra ==" not in line]
        wanted += set(needed) - found - set(wanted)
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))
    assert not found & JAX
    script = folder / "bin" / "beeline"
    script.write_text(f"#!{python}\nimport sys\nfrom beeline.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return script


def test_deploying_in_an_environment_without_jax(bare: Path, exported: Path, tmp_path: Path) -> None:
    """From an empty folder, by the installed command: nobody can import what is not there."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    missing = [f"import importlib.util; print(*map(importlib.util.find_spec, {sorted(JAX)}))"]
    shown = subprocess.run([bare.with_name("python"), "-c", *missing], capture_output=True, text=True, env=environment)
    assert set(shown.stdout.split()) == {"None"}, shown.stdout + shown.stderr
    words = ["deploy", exported, "--robot", "sim", "--terrain", "walk-grassland", "--target", "1.0", "--seconds", "0.3",
             "--log", "walk.jsonl"]  # fmt: skip
    done = subprocess.run([bare, *words], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "time: 0.3 s are over\n3 ticks, 0 late; in the safe pose\nwalked " in done.stdout and not done.stderr
    log = [json.loads(line) for line in (tmp_path / "walk.jsonl").read_text().splitlines()]
    assert [line["tick"] for line in log if "tick" in line] == [0, 1, 2] and log[-1]["end"] == "time"


def test_deploying_needs_neither_jax_nor_gymnasium(exported: Path, tmp_path: Path) -> None:
    words = ["deploy", str(exported), "--robot", "sim", "--terrain", "walk-grassland", "--target", "1.0", "--seconds", "0.3",
             "--log", str(tmp_path / "log.jsonl")]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(refused=JAX, words=words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "time: 0.3 s are over\n3 ticks, 0 late; in the safe pose" in done.stdout
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert log[0]["policy"]["env"] == "dkitty/walk-medium" and log[-1]["end"] == "time"


def test_the_controller_itself_needs_numpy_and_onnxruntime_alone(exported: Path) -> None:
    refused = JAX | {"mujoco", "dynamixel_sdk", "serial"}
    act = f"from beeline.deploy import *\ncode = OnnxPolicy({str(exported)!r})(numpy.zeros(52, 'f')).shape != (12,)"
    code = WITHOUT.format(refused=refused, words=[]).replace("from beeline.cli.commands import main", "import numpy")
    code = code.replace("code = main([])", act)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_says_what_does_not_fit(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for words, message in (
        (["--robot", "dynamixel", "--seed", "1"], "--seed is no option of --robot dynamixel"),
        (["--port", "/dev/ttyUSB0"], "--port is no option of --robot sim"),
        (["--robot", "dynamixel"], "a real robot needs --port"),
        (["--terrain", "stand-fixed"], "trained to walk"),
        (["--seconds", "0"], "out of range"),
        (["--terrain", "walk-grassland", "--target", "-1"], "out of range"),
    ):
        assert main(["deploy", str(exported), *words]) == 2
        assert message in capsys.readouterr().err


def test_the_command_takes_the_disturbances_of_an_id(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    walks = {}
    for query in ("", "?payload=0.5"):
        log = tmp_path / f"log{len(query)}.jsonl"
        words = ["--terrain", f"walk-smooth-road{query}", "--seconds", "0.5", "--seed", "3", "--log", str(log)]
        assert main(["deploy", str(exported), *words]) == 0
        walks[query] = [json.loads(line).get("joints") for line in log.read_text().splitlines()]
    assert walks[""][1] == walks["?payload=0.5"][1] and walks[""][5] != walks["?payload=0.5"][5]


def test_a_closing_terminal_does_what_ctrl_c_does(exported: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def hang_up(self: Any, obs: np.ndarray) -> np.ndarray:
        signal.raise_signal(signal.SIGHUP)
        return np.zeros(12)

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(OnnxPolicy, "__call__", hang_up)
    assert main(["deploy", str(exported), "--log", str(tmp_path / "log.jsonl")]) == 1
    assert "interrupted: Ctrl-C\n0 ticks, 0 late; in the safe pose" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGHUP) is before


def test_real_time_is_the_computers_clock(exported: Path, monkeypatch: Any, capsys: Any) -> None:
    from beeline import deploy

    clock = deploy.ManualClock(100.0)
    monkeypatch.setattr(deploy, "Monotonic", lambda: clock)
    assert main(["deploy", str(exported), "--real-time", "--seconds", "0.5", "--seed", "3"]) == 0
    assert clock.now() > 100.5 and "5 ticks, 0 late" in capsys.readouterr().out
