"""Work that is done once, in a thread of its own, before it is needed: compiling, while a run still warms up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Ahead:
    """At most one piece of work, started once and waited for by whoever would otherwise do it again."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin, if nothing was begun before.

        An error is not told: what fails ahead of time fails again where it is needed, and is understood there. The thread is no
        daemon, because a compiler that loses its interpreter half-way brings the process down: one that ends early waits for it.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=_quietly, args=(work,), name="beeline-ahead")
            self._thread.start()

    def wait(self) -> None:
        """Return when the work is done, if there is any; the work itself may ask."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        work()
