"""Policies as ONNX files: they do what ours do, and say what a controller must know."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from whole_runs import small

import beeline
from beeline import agents
from beeline.agents.base import Defaults, Spaces
from beeline.agents.options import BODIES
from beeline.cli.commands import main
from beeline.envs import registry
from beeline.errors import ExportError
from beeline.graph import Graph
from beeline.run import export as exporting
from beeline.run.policy import Policy, describe

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

SPACES = Spaces(5, (-2.0, 0.0, -1.0), (2.0, 0.5, 3.0))
TRIED = [
    *(("sac", {"network": body, "log_std": head}) for body in BODIES for head in ("clip", "tanh")),
    *(("bac", {"network": body, "log_std": head}) for body in BODIES for head in ("clip", "tanh")),
    *((algo, {"network": body}) for algo in ("td3", "bee-td3") for body in BODIES),
    *(("ppo", {"network": body}) for body in ("tanh", "mlp")),
    *((algo, {"network": "mlp"}) for algo in ("rrs", "maxq", "bee-maxq-td3", "grac", "bee-grac")),
    *((algo, {"network": "mlp"}) for algo in ("dac", "xql", "xtd3", "iql", "obac")),
    ("trpo", {"network": "tanh"}),
]


def untrained(algo: str, spaces: Spaces = SPACES, env: str = "gym/any", **options: Any) -> Policy:
    """A policy with weights as they are drawn, layer norms and biases moved, and statistics of something."""
    hidden = (16, 16) if options.get("network") == "simba" else (32, 16)
    config = agents.make_config(algo, env, "light", {"hidden": hidden, "initialiser": "orthogonal", **options})
    agent = agents.get(algo).build(config, spaces)
    policy, draw = agent.blank_policy(), np.random.default_rng(1)
    moved = jax.tree.map(
        lambda leaf: np.asarray(leaf) + (0.3 * draw.standard_normal(np.shape(leaf))).astype(np.float32),
        {name: part for name, part in policy.items() if name != "normaliser"},
    )
    statistics = policy["normaliser"]
    if statistics is not None:
        mean, variance = draw.normal(0.0, 5.0, spaces.obs_dim), np.exp(draw.normal(0.0, 3.0, spaces.obs_dim))
        statistics = {"count": np.array(100.0), "mean": mean, "variance": variance}
    return Policy(agent, moved | {"normaliser": statistics}, describe(algo, env, agent, step=7, repeat=1))


def session_of(policy: Policy) -> Any:
    model = exporting._model(policy, {})
    onnx.checker.check_model(model, full_check=True)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("scaled", [False, True], ids=["raw", "normalised"])
@pytest.mark.parametrize(("algo", "options"), TRIED, ids=[f"{algo}-{'-'.join(o.values())}" for algo, o in TRIED])
def test_actions_equal_ours(algo: str, options: dict[str, Any], scaled: bool) -> None:
    policy = untrained(algo, normalize_obs=scaled, **options)
    session = session_of(policy)
    draw = np.random.default_rng(2)
    # Ordinary observations, and some far away, which the scaling clips
    obs = draw.standard_normal((1_000, 5)) * np.where(np.arange(1_000) % 10, 2.0, 1e3)[:, None]
    obs = obs.astype(np.float32)
    theirs = session.run(["action"], {"observation": obs})[0]
    ours = policy.predict(obs)[0]
    assert theirs.dtype == np.float32 and theirs.shape == (1_000, 3)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
    assert np.ptp(ours, axis=0).min() > 0.1  # they depend on what is seen
    assert (theirs >= SPACES.action_low).all() and (theirs <= SPACES.action_high).all()


PLANS = {"pets"}  # their action is no function of weights and one observation


@pytest.mark.parametrize("algo", agents.OWN)
def test_every_algorithm_is_exported_or_says_why_it_is_not(algo: str) -> None:
    agent = agents.get(algo).build(agents.make_config(algo, "gym/any", "light", {}), SPACES)
    policy = Policy(agent, agent.blank_policy(), describe(algo, "gym/any", agent, step=0, repeat=1))
    if algo in PLANS:
        with pytest.raises(ExportError, match=rf"a policy of {algo} cannot be exported: {algo} has no policy network"):
            session_of(policy)
        return
    session = session_of(policy)
    assert exporting.difference(policy, lambda obs: session.run(["action"], {"observation": obs})[0]) <= 1e-5


def test_a_graph_by_hand() -> None:
    # obs 3 -> (3 - 1)/2 = 1; far away it is 10; tanh(0.5 · 1); the range 0 to 4 has its middle at 2
    policy = untrained("td3", Spaces(1, (0.0,), (4.0,)), hidden=(1,), network="mlp", normalize_obs=True)
    identity = {"w": np.ones((1, 1), np.float32), "b": np.zeros(1, np.float32)}
    policy.policy["actor"] = (identity, {"w": np.full((1, 1), 0.5, np.float32), "b": np.zeros(1, np.float32)})
    policy.policy["normaliser"] = {"count": np.array(1.0), "mean": np.array([1.0]), "variance": np.array([4.0])}
    out = session_of(policy).run(["action"], {"observation": np.array([[3.0], [1e6], [-5.0]], np.float32)})[0]
    np.testing.assert_allclose(out[:, 0], [2 + 2 * np.tanh(0.5), 2 + 2 * np.tanh(5.0), 2.0], atol=1e-6)


def test_the_metadata_says_what_a_controller_must_know(tmp_path: Any) -> None:
    env_id = "dkitty/walk-medium"
    with_env = registry.make(env_id, repeat=2)
    spaces = Spaces(52, (-1.0,) * 12, (1.0,) * 12)
    policy = untrained("bac", spaces, env_id, normalize_obs=True)
    worst = exporting.export(policy, tmp_path / "policy.onnx", with_env)
    assert worst <= 1e-5
    session = ort.InferenceSession(str(tmp_path / "policy.onnx"))
    meta = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    names = ["root_pos", "root_euler", "kitty_qpos", "root_vel", "root_angular_vel", "kitty_qvel", "last_action", "upright"]
    assert meta["observation"] == [[n, s] for n, s in zip([*names, "heading", "target_error"], [3, 3, 12, 3, 3, 12, 12, 1, 1, 2])]
    assert meta["action_low"] == [-1.0] * 12 and meta["action_high"] == [1.0] * 12
    assert meta["control_rate"] == 5.0 and meta["repeat"] == 2
    assert (meta["algo"], meta["env"], meta["step"], meta["beeline"]) == ("bac", env_id, 7, beeline.__version__)
    assert meta["config"] == json.loads(json.dumps(policy.agent.config.to_dict()))


@pytest.mark.parametrize(
    ("env", "parts", "rate"),
    [
        ("gym/Hopper-v5", [["observation", 11]], 125.0),
        ("gym/Pendulum-v1", [["observation", 3]], 20.0),
        ("gym/MountainCarContinuous-v0", [["observation", 2]], None),
    ],
)
def test_observations_and_rates_of_other_suites(env: str, parts: Any, rate: float | None) -> None:
    made = registry.make(env)
    assert (exporting._parts(made), exporting._rate(made)) == (parts, rate)


@pytest.mark.suite
def test_names_and_rate_of_a_dmcontrol_task() -> None:
    pytest.importorskip("dm_control")
    made = registry.make("dmc/walker-run", repeat=2)
    assert exporting._parts(made) == [["orientations", 14], ["height", 1], ["velocity", 9]]
    assert exporting._rate(made) == 20.0


class Planner(Defaults):
    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        raise ExportError("it plans anew at every step, with a model and random candidates.")


@pytest.mark.parametrize(("agent", "reason"), [(Planner, "plans anew"), (Defaults, "no `write`")])
def test_what_cannot_be_exported_says_why(agent: type, reason: str) -> None:
    policy = untrained("sac")
    made = agent()
    made.task = policy.agent.task
    with pytest.raises(ExportError, match=rf"policy of sac cannot be exported: .*{reason}"):
        exporting.graph_of(Policy(made, policy.policy, policy.meta))


def test_a_network_that_cannot_be_written_is_named() -> None:
    class Strange:
        def init(self, draw: Any, inputs: int, *outputs: int) -> Any: ...

        def apply(self, params: Any, x: Any) -> Any: ...

    policy = untrained("td3")
    actor = policy.agent.actor
    policy.agent.actor = dataclasses.replace(actor, learnable=dataclasses.replace(actor.learnable, net=Strange()))
    with pytest.raises(ExportError, match="network Strange has no `write`"):
        exporting.graph_of(policy)
    policy.agent.actor = actor


def test_a_file_that_differs_is_not_written(tmp_path: Any, monkeypatch: Any) -> None:
    policy = untrained("td3", Spaces(3, (-2.0,), (2.0,)))
    wrong = lambda self, graph, params, x: graph.add("ReduceMean", x, axes=[1], keepdims=1)  # noqa: E731
    monkeypatch.setattr(type(policy.agent.actor), "write", wrong)
    with pytest.raises(ExportError, match=r"does not do what the policy does.*Nothing was written"):
        exporting.export(policy, tmp_path / "policy.onnx", registry.make("gym/Pendulum-v1"))
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Any, capsys: Any) -> None:
    run = beeline.train("sac", "gym/Pendulum-v1", out=tmp_path / "run", **small("sac"))
    assert main(["export", str(run.path), "--onnx", str(tmp_path / "p.onnx")]) == 0
    assert "sac on gym/Pendulum-v1, policy of step 120" in capsys.readouterr().out
    session = ort.InferenceSession(str(tmp_path / "p.onnx"))
    obs = np.array([[0.3, -0.9, 1.0]], np.float32)
    np.testing.assert_allclose(session.run(None, {"observation": obs})[0], run.policy().predict(obs)[0], atol=2e-5)
    assert main(["export", str(run.path), "--onnx", str(tmp_path / "p.txt")]) == 2
    assert "must end in .onnx" in capsys.readouterr().err
