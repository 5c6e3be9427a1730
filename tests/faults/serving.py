"""The live server as strangers meet it: addresses, host names, methods, and markup in everything that a page shows."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report_browser
from outcome import Outcome, Trial
from trials import Case, Place

from beeline import files, report
from beeline.report.live import make_server
from beeline.run import reading

KIND = "serving"
SECRET = b"secret"
PATHS = (
    "/video/../videos/secret.mp4", "/video/%2e%2e/videos/secret.mp4", "/video/..%2fvideos%2fsecret.mp4", "/video//etc/passwd",
    "/video/one/config.json", "/video/one/videos/../config.json", "/one/config.json", "/etc/passwd", "/video/", "/video/%00",
    "/video/one/videos/none.mp4", "/video/one/videos/a%00.mp4", "/video/" + "x" * 5000 + ".mp4", "/video/one/videos/%ff.mp4",
    "/video/one/videos", "/video/one/videos/loop.mp4", "/video/one/videos/out.mp4", "//evil.example/", "/data.json/..",
    "/video/one/videos/%252e%252e/%252e%252e/secret.mp4", "/?" + "q" * 9000, "/\\..\\secret",
)  # fmt: skip
HOSTS = (
    "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[::ffff:10.0.0.1]", "10.0.0.1", "",
    "0.0.0.0", "127.0.0.1@evil.example", "169.254.169.254", "[::]", "localhost:1:2", "\u2024localhost",
)  # fmt: skip
METHODS = ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "ODD")
MARKUP = '<img src=x onerror="window.broken=1"></script><script>window.broken=1</script>{{7*7}}[/x]'


def cases(seed: int) -> Iterator[Case]:
    """Every address, host name, method, some raw bytes, and markup in a browser where there is one."""
    for path in PATHS:
        yield _asked(f"path {path[:60]!r}", "GET", path, None, (200, 404) if path.startswith("/?") else (404, 414, 400, 403))
    for host in HOSTS:
        yield _asked(f"host {host!r}", "GET", "/data.json", host, (400, 403))
    for method in METHODS:
        yield _asked(f"method {method}", method, "/", None, (400, 403, 405, 501))
    for name, data in RAW.items():
        yield Case(KIND, f"bytes: {name}", lambda place, name=name, data=data: raw(place, f"bytes: {name}", data))  # type: ignore[misc]
    if report_browser.CHROMIUM and report_browser.DRIVER:
        for live in (False, True):
            name = f"markup in every field, {'live' if live else 'static'}"
            yield Case(KIND, name, lambda place, name=name, live=live: markup(place, name, live))  # type: ignore[misc]


RAW = {
    "nothing": b"", "no request": b"\r\n\r\n", "no HTTP": b"\x16\x03\x01\x02\x00", "a long line": b"GET /" + b"a" * 70_000,
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n", "no host": b"GET / HTTP/1.0\r\n\r\n",
    "an odd version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", "null": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}  # fmt: skip


def _asked(name: str, method: str, path: str, host: str | None, good: tuple[int, ...]) -> Case:
    return Case(KIND, name, lambda place: asked(place, name, method, path, host, good))


@contextlib.contextmanager
def served(place: Place, root: Path) -> Iterator[tuple[int, io.StringIO]]:
    """A server of a folder, and what it says on standard error."""
    said = io.StringIO()
    server = make_server(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with contextlib.redirect_stderr(said):
        thread.start()
        try:
            yield server.server_address[1], said
        finally:
            server.shutdown()
            server.server_close()


def _root(place: Place) -> Path:
    def make(path: Path) -> None:
        shutil.copytree(place.whole("sac"), path / "one", symlinks=True)
        videos = path / "one" / "videos"
        videos.mkdir()
        (videos / "a.mp4").write_bytes(b"film")
        (videos / "loop.mp4").symlink_to("loop.mp4")
        (path.parent / "videos").mkdir()
        (path.parent / "videos" / "secret.mp4").write_bytes(SECRET)
        (videos / "out.mp4").symlink_to(path.parent / "videos" / "secret.mp4")

    return place.made(("served",), make)


def _judged(name: str, status: int, body: bytes, good: tuple[int, ...], said: str, port: int) -> Trial:
    """A refusal is a refusal, nothing leaks, nothing is raw, and the server still answers."""
    if "Traceback" in said or "Traceback" in body.decode(errors="replace"):
        return Trial(name, Outcome.RAW, said[-300:])
    if SECRET in body or status not in good:
        return Trial(name, Outcome.SILENT, f"status {status}, {body[:80]!r}")
    after = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    after.request("GET", "/version")
    return Trial(name, Outcome.HELD if after.getresponse().status == 200 else Outcome.LOST)


def asked(place: Place, name: str, method: str, path: str, host: str | None, good: tuple[int, ...]) -> Trial:
    """One request."""
    with served(place, _root(place)) as (port, said):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.putrequest(method, "/", skip_host=True)
        connection._buffer[0] = f"{method} {path} HTTP/1.1".encode()  # type: ignore[attr-defined]
        connection._buffer.append(f"Host: {f'127.0.0.1:{port}' if host is None else host}".encode())  # type: ignore[attr-defined]
        connection.endheaders()
        try:
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except TimeoutError:
            return Trial(name, Outcome.HANG, "no answer")
        except http.client.HTTPException as error:
            return Trial(name, Outcome.RAW, f"no answer: {error!r}")
        return _judged(name, status, body, good, said.getvalue(), port)


def raw(place: Place, name: str, data: bytes) -> Trial:
    """Bytes that are no request."""
    with served(place, _root(place)) as (port, said):
        with socket.create_connection(("127.0.0.1", port), 20) as line, contextlib.suppress(ConnectionError):
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            answer = line.recv(1 << 16)
        status = int(answer.split()[1]) if answer.startswith(b"HTTP") and answer.split()[1].isdigit() else 400
        return _judged(name, status, answer, (200, 400, 403, 404, 414, 431, 505), said.getvalue(), port)


def _marked(place: Place) -> Path:
    """A run whose every text is markup."""

    def make(path: Path) -> None:
        run = Path(shutil.copytree(place.whole("sac"), path / "one<b>x"))
        config = json.loads((run / "config.json").read_text())
        texts: dict[str, Any] = {"env": MARKUP, "algo": MARKUP, "preset": MARKUP, "created": MARKUP, "cpu": MARKUP}
        config["versions"] = {MARKUP: MARKUP}
        config["agent"] = config["agent"] | {MARKUP: MARKUP}
        (run / "config.json").write_bytes(files.sealed(config | texts))
        status = json.loads((run / "status.json").read_text())
        told = {"state": "failed", "reason": MARKUP, "config": reading.identity(config | texts)}
        (run / "status.json").write_bytes(files.sealed(status | told))

    return place.made(("marked",), make)


def markup(place: Place, name: str, live: bool) -> Trial:
    """Nothing that a run's files say is run by the page, and the page asks nobody else for anything."""
    root = _marked(place)
    browser = place.kept(("browser",), lambda: report_browser.Browser(place.folder("profile")))
    if live:
        with served(place, root) as (port, _):
            browser.requests()
            browser.open(f"http://127.0.0.1:{port}/")
            return _looked(name, browser)
    page = report.build([root], root.parent / "report.html", note=lambda damage: None)
    browser.requests()
    browser.open(page.as_uri())
    return _looked(name, browser)


def _looked(name: str, browser: Any) -> Trial:
    browser.wait("return document.readyState === 'complete' && document.body.innerText.length > 100")
    if browser.run("return window.broken || document.querySelector('img[src=x]')"):
        return Trial(name, Outcome.SILENT, "markup of a file was run by the page")
    shown = browser.run("return document.body.innerText")
    away = [url for url in browser.requests() if not url.startswith(("http://127.0.0.1", "file:", "data:", "blob:", "chrome"))]
    if away:
        return Trial(name, Outcome.SILENT, f"the page asked for {away[0]}")
    return Trial(name, Outcome.HELD) if "onerror" in shown else Trial(name, Outcome.SILENT, "the text is not shown")
