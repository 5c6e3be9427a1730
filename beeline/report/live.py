"""The report as a page that follows the runs: the standard library's server, on the loopback address only."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import shutil
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from beeline.errors import BeelineError, ConfigError, RunFolderError, UnreadableError
from beeline.files import open_regular
from beeline.report import published
from beeline.report.model import Data, model
from beeline.report.page import newest_videos, render
from beeline.report.references import above
from beeline.report.runs import Run, find, read_one
from beeline.run.reading import Damage, own_file

FILES = ("config.json", "metrics.csv", "status.json", "videos")


class Seen(NamedTuple):
    """A run folder as it was when it was read: what its files were, the run if it could be read, and its damage."""

    stamp: str
    run: Run | None
    damage: list[Damage]


class Watched:
    """The runs below a root, read again only where a file has changed."""

    def __init__(self, root: Path, overlay: Sequence[str] = ()) -> None:
        if not root.is_dir():
            raise RunFolderError(f"{root} does not exist.")
        self.root = root.resolve()
        published.choose(overlay)  # a wrong name is an error now, not at the first request
        self.overlay = list(overlay)
        self._seen: dict[Path, Seen] = {}
        self._lock = threading.Lock()
        self._page: tuple[str, Data] | None = None

    def _stamp(self, run: Path) -> str:
        parts = []
        for name in FILES:
            try:
                stat = (run / name).stat()
                parts.append(f"{stat.st_mtime_ns}:{stat.st_size}")
            except OSError:
                parts.append("-")
        return " ".join(parts)

    def version(self) -> str:
        """A short name for what the folders hold now; it changes when any run has written something."""
        unlisted: list[Damage] = []
        text = "\n".join(f"{path} {self._stamp(path)}" for path in find([self.root], unlisted.append))
        return hashlib.sha256(f"{text}\n{unlisted}".encode(errors="surrogateescape")).hexdigest()[:16]

    def data(self) -> Data:
        """The report's data as of now."""
        with self._lock:
            version = self.version()
            if self._page is None or self._page[0] != version:
                self._page = (version, self._read(version))
            return self._page[1]

    def _read(self, version: str) -> Data:
        damaged: list[Damage] = []
        seen: dict[Path, Seen] = {}
        for path in find([self.root], damaged.append):
            stamp, before = self._stamp(path), self._seen.get(path)
            if before is None or before.stamp != stamp:
                own: list[Damage] = []
                before = Seen(stamp, read_one(path, own.append), own)
            seen[path] = before
            damaged += before.damage
        self._seen = seen
        found = [each.run for each in seen.values() if each.run]
        references = above(((run.path, run.task) for run in found), damaged.append)
        data = model(found, self.overlay, damaged, references)
        for _, video, entry in newest_videos(data, found):
            source = "video/" + quote(os.fsencode(video.path.relative_to(self.root).as_posix()))
            data["videos"].append(entry | {"embedded": True, "src": source})
        return data | {"live": True, "version": version}

    def video(self, relative: str) -> Path | None:
        """A video below the root; nothing else is ever served, and no path leads outside."""
        try:
            path, _ = own_file(self.root, self.root / relative)
        except UnreadableError:
            return None
        return path if path.parent.name == "videos" and path.suffix == ".mp4" else None


class Handler(BaseHTTPRequestHandler):
    """Answers `/`, `/data.json`, `/version` and `/video/…`; refuses everything else."""

    watched: Watched
    server_version = "beeline"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request; what goes wrong is the answer, never silence."""
        try:
            self._answer(unquote(urlsplit(self.path).path, errors="surrogateescape"))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the reader has left
        except (BeelineError, OSError, ValueError) as error:  # ValueError: an address that is none
            self._send(500, str(error).encode(errors="replace"), "text/plain; charset=utf-8")

    def _answer(self, path: str) -> None:
        if not self._local():
            self._send(403, b"this page answers on the local address only", "text/plain")
        elif path == "/":
            self._send(200, render(self.watched.data()).encode(), "text/html; charset=utf-8")
        elif path == "/data.json":
            self._send(200, json.dumps(self.watched.data(), allow_nan=False).encode(), "application/json")
        elif path == "/version":
            self._send(200, self.watched.version().encode(), "text/plain")
        elif path.startswith("/video/") and (file := self.watched.video(path.removeprefix("/video/"))):
            self._video(file)
        else:
            self._send(404, b"not found", "text/plain")

    def _local(self) -> bool:
        """A foreign host name would mean that another site's page reached us through its own DNS."""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
        return host == "localhost" or _loopback(host)

    def _video(self, file: Path) -> None:
        with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as source:
            self.send_response(200)
            self.send_header("Content-Type", "video/mp4")
            self.send_header("Content-Length", str(os.fstat(source.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(source, self.wfile)

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not worth a line each."""


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_server(root: Path, host: str = "127.0.0.1", port: int = 0, overlay: Sequence[str] = ()) -> ThreadingHTTPServer:
    """A server for the runs below `root`, not yet serving; port 0 takes a free one."""
    if host != "localhost" and not _loopback(host):
        raise ConfigError(
            f"host = {host!r} would show the report to other machines; allowed: 127.0.0.1. "
            "From elsewhere, forward the port: ssh -L PORT:127.0.0.1:PORT THIS_MACHINE."
        )
    handler = type("BoundHandler", (Handler,), {"watched": Watched(root, overlay)})
    try:
        return ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
