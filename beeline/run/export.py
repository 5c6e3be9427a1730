"""A policy as an ONNX file that runs without Beeline and without JAX.

The graph takes raw observations and gives actions in the environment's own units: the scaling of observations, the network, and
the rescaling of actions are inside. What a controller must know beside it is in the file's metadata (docs/export.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import __version__, files
from beeline.errors import ExportError, MissingExtraError
from beeline.exported import seal
from beeline.graph import Graph

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.run.policy import Policy

OPSET, IR_VERSION = 17, 8  # of 2022: what a runtime must know at least
INPUT, OUTPUT = "observation", "action"
CHECKED = 1_000  # observations at which a written file is held against the policy
TOLERANCE = 1e-5  # of half the width of an action's range


def export(policy: Policy, path: Path, env: Adapter) -> float:
    """Write the policy; the largest difference between the file's actions and ours, in halves of the action's range."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("export to ONNX", "onnx", str(error)) from error
    model = _model(policy, describe(policy, env))
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    worst = difference(policy, lambda obs: session.run([OUTPUT], {INPUT: obs})[0])
    if not worst <= TOLERANCE:
        raise ExportError(
            f"the graph of this policy does not do what the policy does: at {CHECKED:,} observations its actions differ by up to "
            f"{worst:.2g} of half their range, where {TOLERANCE:g} is allowed. Nothing was written."
        )
    files.write_atomic(path, data + seal(data))
    return worst


def graph_of(policy: Policy) -> tuple[Graph, str]:
    """The operations from raw observations to actions in the environment's units, and the name of these."""
    graph, spaces = Graph(), policy.agent.task.spaces
    try:
        action = policy.agent.write(graph, policy.policy, INPUT)
    except ExportError as error:
        raise ExportError(f"a policy of {policy.meta['algo']} cannot be exported: {error}") from None
    low, high = np.array(spaces.action_low), np.array(spaces.action_high)
    scaled = graph.add("Add", graph.add("Mul", action, graph.constant((high - low) / 2)), graph.constant((low + high) / 2))
    return graph, graph.bounded(scaled, low, high)


def describe(policy: Policy, env: Adapter) -> dict[str, Any]:
    """What the file says of itself: everything that a controller has to know, and where the policy comes from."""
    spaces, meta = policy.agent.task.spaces, policy.meta
    return {
        "format": 1,
        "beeline": __version__,
        "algo": meta["algo"],
        "env": meta["env"],
        "step": meta.get("step"),
        "eval_return": meta.get("eval_return"),
        "observation": _parts(env),
        "action_low": list(map(float, spaces.action_low)),
        "action_high": list(map(float, spaces.action_high)),
        "control_rate": _rate(env),
        "repeat": env.facts.repeat,
        "config": meta["agent"],
    }


def difference(policy: Policy, act: Any) -> float:
    """How far actions are from the policy's own at random observations of three deviations, in halves of the range."""
    spaces = policy.agent.task.spaces
    obs = 3.0 * np.random.default_rng(0).standard_normal((CHECKED, spaces.obs_dim), np.float32)
    statistics = _statistics(policy.policy, spaces.obs_dim)
    if statistics is not None:
        obs = (statistics["mean"] + obs * np.sqrt(statistics["variance"])).astype(np.float32)
    half = np.array(spaces.action_scale)
    return float(np.max(np.abs(act(obs) - policy.predict(obs)[0]) / half))


def _statistics(policy: Any, width: int) -> Any:
    """The statistics of observations among what a policy holds, so that it is tried where it works."""
    found = policy.get("normaliser") if isinstance(policy, dict) else None
    return found if isinstance(found, dict) and np.shape(found.get("mean", ())) == (width,) else None


def _parts(env: Adapter) -> list[list[Any]]:
    """Names and sizes of what an observation is made of, in order."""
    from beeline.envs.adapter import key_order

    inner = env.env.unwrapped
    parts = getattr(inner, "observation_parts", None)
    spaces = getattr(env.env.observation_space, "spaces", None)
    if parts is None and isinstance(spaces, dict):
        parts = {key: int(np.prod(spaces[key].shape)) for key in key_order(spaces)}
    return [[name, size] for name, size in (parts or {"observation": env.facts.obs_dim}).items()]


def _rate(env: Adapter) -> float | None:
    """Decisions per second; None where the environment does not say how long a step takes."""
    step = getattr(env.env.unwrapped, "dt", None)
    if not isinstance(step, int | float) or not 0 < step < float("inf"):
        return None
    return round(1.0 / (float(step) * env.facts.repeat), 9)


def _model(policy: Policy, meta: dict[str, Any]) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    graph, action = graph_of(policy)
    spaces = policy.agent.task.spaces
    nodes = [helper.make_node(n.operation, list(n.inputs), [n.output], **n.attributes) for n in graph.nodes]
    nodes.append(helper.make_node("Identity", [action], [OUTPUT]))
    made = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", spaces.obs_dim])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", spaces.action_dim])],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opset, producer_name="beeline", producer_version=__version__)
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {name: json.dumps(value) for name, value in meta.items()})
    return model
