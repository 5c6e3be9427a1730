"""An exported policy, run by onnxruntime. Nothing in the file is executed but operations on arrays."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from beeline import exported, files
from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import COMMON, OWN
from beeline.errors import BeelineError, ExportError, MissingExtraError, copyable

LARGEST = 1 << 28  # bytes of a file that is read
PATIENCE = 5.0  # seconds in which a policy must decide once


class OnnxPolicy:
    """A policy of the D'Kitty: from observations to actions in [-1, 1]^12, with what its file says of it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("running an exported policy", "onnx", str(error)) from error
        if self.path.is_dir() or self.path.suffix == ".npz":
            again = copyable("export", path, "--onnx", "policy.onnx")
            raise ExportError(f"{path} is not an exported policy. Make one with: {again}")
        try:
            data = files.read_regular(Path(os.path.realpath(self.path)), LARGEST)
        except FileNotFoundError:
            again = copyable("export", "RUN", "--onnx", path)
            raise ExportError(f"there is no exported policy {path}. Make one with: {again}") from None
        if not exported.is_as_written(data):
            raise ExportError(f"{path} is not as it was written (its SHA-256 is another): export the policy again.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # a small network gains nothing, and jitters, with more
        options.log_severity_level = 4
        try:
            # From bytes, so that a file cannot name others that hold its arrays
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            texts = self._session.get_modelmeta().custom_metadata_map
            self.meta: dict[str, Any] = {name: json.loads(text) for name, text in texts.items()}
            self._read()
        except BeelineError as error:
            raise ExportError(f"{path} cannot be used: {error}") from None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ExportError(f"{path} cannot be used: it is not as `beeline export` writes it ({error!r}).") from None
        except Exception as error:  # onnxruntime's own, which have no common base that could be imported
            raise ExportError(f"{path} is not an intact ONNX file ({error}).") from None

    def _read(self) -> None:
        meta = self.meta
        parts = [(name, size) for name, size in meta["observation"]]
        self.kind = next((kind for kind, own in OWN.items() if [*(COMMON | own).items()] == parts), "")
        names = [put.name for put in (*self._session.get_inputs(), *self._session.get_outputs())]
        if not self.kind or names != ["observation", "action"]:
            raise ExportError(f"it is a policy of {meta['env']!r} and does not see what a D'Kitty's task shows.")
        self.low, self.high = np.array(meta["action_low"], float), np.array(meta["action_high"], float)
        if self.low.shape != (12,) or (self.low != -1).any() or (self.high != 1).any():
            raise ExportError("its actions are not those of a D'Kitty, twelve numbers in [-1, 1].")
        self.rate, self.repeat = float(meta["control_rate"]), int(meta["repeat"])
        if self.repeat < 1 or not math.isclose(self.rate * self.repeat * robot.CONTROL_STEP, 1.0, rel_tol=1e-6):
            raise ExportError(
                f"it decides {self.rate:g} times a second for {self.repeat} control steps each, but a D'Kitty has "
                f"{1 / robot.CONTROL_STEP:g} control steps a second."
            )
        self.command_range = robot.WIDE_RANGE if self._wide() else robot.COMMAND_RANGE
        self._try(sum(size for _, size in parts))

    def _try(self, width: int) -> None:
        """Decide once, before a robot has power: a graph may want something else, give something else, or never end."""
        import onnxruntime

        run = onnxruntime.RunOptions()
        run.log_severity_level = 4
        timer = threading.Timer(PATIENCE, setattr, (run, "terminate", True))
        timer.daemon = True
        timer.start()
        try:
            action = self._session.run(["action"], {"observation": np.zeros((1, width), np.float32)}, run)[0]
        except Exception as error:  # onnxruntime's own, see above
            raise ExportError(f"its graph cannot decide at an observation of {width} zeros ({error}).") from None
        finally:
            timer.cancel()
        if not isinstance(action, np.ndarray) or action.shape != (1, 12) or action.dtype != np.float32:
            raise ExportError("its graph does not give twelve numbers in single precision at one observation.")
        if not np.isfinite(action).all():
            raise ExportError("its graph gives actions that are not finite.")

    def _wide(self) -> bool:
        """Whether the policy was trained with the wide span of actions."""
        from beeline.envs import ids

        if not str(self.meta["env"]).startswith("dkitty/"):
            return False
        return bool(dict(ids.split(self.meta["env"])[2].own).get("wide", False))

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action at one observation."""
        return self._session.run(["action"], {"observation": obs.reshape(1, -1)})[0][0]
