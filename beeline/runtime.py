"""What must be decided before JAX starts: threads, device, and where compiled programs are kept."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from beeline import __version__
from beeline.errors import ConfigError


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def started() -> bool:
    """Whether JAX has chosen its devices and threads already."""
    if "jax" not in sys.modules:
        return False
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def configure(threads: int | None, device: str | None) -> int:
    """Fix the thread count and the device for this process; return the thread count in force.

    The XLA CPU client reads NPROC when it starts, so a later call cannot change it: it then returns what is in force.
    """
    if not started():
        if threads is not None:
            os.environ["NPROC"] = str(threads)
        import jax

        # Through the config, not the environment: JAX read its variables when it was imported, which may be long ago.
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
            jax.config.update("jax_compilation_cache_dir", str(home / "beeline" / "xla"))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        if device is not None:
            jax.config.update("jax_platforms", {"gpu": "cuda"}.get(device, device))
        try:
            jax.devices()
        except Exception as error:  # JAX asserts, raises or says, by the device that was asked for
            raise _unavailable(device, error) from error
    elif device is not None:
        import jax

        if jax.default_backend() not in (device, {"gpu": "cuda"}.get(device)):
            raise ConfigError(
                f"device = {device!r} comes too late: JAX has started on {jax.default_backend()!r} in this process. Choose the "
                "device before anything is trained or loaded."
            )
    return int(os.environ.get("NPROC", cores()))


def _unavailable(device: str | None, error: Exception) -> ConfigError:
    """What is missing for a device, and what goes without it."""
    said = str(error).partition("\n")[0].strip()
    advice = {"gpu": " For an NVIDIA GPU, install JAX with CUDA: pip install 'jax[cuda12]'."}.get(device or "", "")
    why = f" ({said})" if said else ""
    return ConfigError(f"device = {device!r} is not available here{why}.{advice} Without the option, JAX takes what there is.")


def versions() -> dict[str, str]:
    """Versions of Beeline itself, of Python, and of every installed package."""
    found = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    return {"beeline": __version__, "python": platform.python_version(), **dict(sorted(found.items()))}


def processor() -> str:
    """The CPU's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def free_memory() -> int | None:
    """Bytes that this process may still take: what the system has, or less where its cgroup allows less; None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, LookupError):
        table = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(table["MemAvailable"].split()[0]))
    group = Path("/sys/fs/cgroup")  # as a container sees its own
    with contextlib.suppress(OSError, ValueError):  # "max" is no number
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        found.append(max(0, limit - used + int(statistics.get("inactive_file", 0))))
    return min(found, default=None)


def machine() -> dict[str, Any]:
    """CPU and platform, as stored with every run."""
    return {"cpu": processor(), "cores": cores(), "platform": platform.platform()}
