"""Ending a run from outside: Ctrl-C and SIGTERM finish the decision under way and leave a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.loop import Trainer


GRACE = 2.0  # seconds between the second SIGTERM and the end


class Stopped(KeyboardInterrupt):
    """A signal ended the training after a checkpoint; not an Exception, so that it is not swallowed on its way out."""

    def __init__(self, signal_number: int, folder: Path | None, step: int) -> None:
        self.signal_number, self.folder, self.step = signal_number, folder, step
        super().__init__(f"stopped by {signal.Signals(signal_number).name} at step {step:,}")


@contextlib.contextmanager
def graceful_stop(trainer: Trainer, give_up: Callable[[signal.Signals], None] = lambda number: None) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the loop at the next decision, with a checkpoint; yields the signals that came.

    A second Ctrl-C raises KeyboardInterrupt wherever the loop is. After a second SIGTERM the loop has `GRACE` seconds, then the
    process is ended from a thread: an environment that hangs does not let any code of the main thread run. `give_up` is called
    before that, to leave word.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def handler(number: int, frame: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        if not caught and number == signal.SIGINT:
            # os.write, because a print that was interrupted by this very signal must not be entered again.
            _say(b"\nstopping after this step; Ctrl-C again leaves at once\n")
        caught.append(number)

    with _watched_from_a_thread(give_up):
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


@contextlib.contextmanager
def _watched_from_a_thread(give_up: Callable[[signal.Signals], None]) -> Iterator[None]:
    """See signals without the main thread: the interpreter writes the number of each into a pipe at once."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    left = threading.Event()

    def watch() -> None:
        terminations = 0
        while number := os.read(reading, 1)[0]:
            terminations += number == signal.SIGTERM
            if terminations < 2:
                continue
            if not left.wait(GRACE):
                give_up(signal.SIGTERM)
                _say(b"SIGTERM twice, and the step under way does not end: left without a checkpoint of it\n")
                os._exit(128 + signal.SIGTERM)
            return

    watcher = threading.Thread(target=watch, daemon=True, name="signals")
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        left.set()
        os.write(writing, b"\0")
        watcher.join()
        os.close(reading)
        os.close(writing)


def _say(words: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, words)
