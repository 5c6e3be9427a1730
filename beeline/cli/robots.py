"""Commands that take a policy out of the laboratory: `export` and `deploy`."""

from __future__ import annotations

import argparse
from pathlib import Path

from beeline.errors import ConfigError


def fill_export(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline export`."""
    parser.add_argument("run", type=Path, help="run folder or policy file")
    parser.add_argument("--onnx", type=Path, metavar="FILE", required=True, help="the file to write, such as policy.onnx")
    parser.add_argument("--best", action="store_true", help="the best evaluated policy instead of the latest")
    parser.add_argument("--env", help="the run's task again, if you have not named its Python module before")


def export(given: argparse.Namespace) -> int:
    """Write the policy of a run as ONNX and hold it against ours."""
    if given.onnx.suffix.lower() != ".onnx":
        raise ConfigError(f"the exported policy {given.onnx} must end in .onnx.")
    from beeline import api, runtime

    runtime.configure(None, None)
    path, policy, worst = api.export(given.run, given.onnx, best=given.best, env=given.env)
    print(f"{policy.meta['algo']} on {policy.meta['env']}, policy of step {policy.meta.get('step')}")
    print(f"{path}: its actions differ from ours by at most {worst:.1e} of half their range")
    return 0
