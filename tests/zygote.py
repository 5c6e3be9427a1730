"""Forks a child per `beeline` command; see whole_runs.Zygote. JAX is imported here but must not have started."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any


def child(order: dict[str, Any]) -> int:
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1) for descriptor in (1, 2))
    os.environ.update(order["env"])
    if order["fault"]:
        die_at(**order["fault"])
    from beeline.cli import main

    try:
        return main(order["argv"])
    except SystemExit as error:
        return int(error.code or 0)


def die_at(n: int) -> None:
    """End the process at the n-th file operation, as if the power went."""
    from beeline import files

    count = 0

    def fault(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == n:
            os._exit(77)

    files.fault = fault


def serve() -> None:
    import jax
    import matplotlib.backends.backend_agg
    import matplotlib.figure
    import optax
    import tensorboardX
    import toys

    import beeline.agents.make
    import beeline.api
    import beeline.display
    from beeline import runtime

    assert not runtime.started(), "importing Beeline must not start JAX: threads and device are chosen later"
    unused = (jax, optax, tensorboardX, matplotlib, beeline, toys)
    del unused
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any]
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        elif "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nothing runs here that a fork could break
                pid = os.fork()
            if not pid:
                code = 70
                try:
                    code = child(order)
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
