"""Ending a run from outside: Ctrl-C and SIGTERM finish the decision under way and leave a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.loop import Trainer


class Stopped(KeyboardInterrupt):
    """A signal ended the training after a checkpoint; not an Exception, so that it is not swallowed on its way out."""

    def __init__(self, signal_number: int, folder: Path | None, step: int) -> None:
        self.signal_number, self.folder, self.step = signal_number, folder, step
        super().__init__(f"stopped by {signal.Signals(signal_number).name} at step {step:,}")


@contextlib.contextmanager
def graceful_stop(trainer: Trainer) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the loop at the next decision, with a checkpoint; yields the signals that came."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def handler(number: int, frame: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        if not caught and number == signal.SIGINT:
            # os.write, because a print that was interrupted by this very signal must not be entered again.
            os.write(2, b"\nstopping after this step; Ctrl-C again leaves at once\n")
        caught.append(number)

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    trainer.stop_requested = lambda: bool(caught)
    if trainer.diagnoser is not None:
        trainer.diagnoser.stop = lambda: trainer.stop_requested()
    try:
        yield caught
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
        trainer.stop_requested = lambda: False
