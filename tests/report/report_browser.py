"""A browser for tests: Chromium through its WebDriver, with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    """One Chromium with its own profile; `close` ends it."""

    def __init__(self, folder: Path, dark: bool = False) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        self._session = ""
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={folder}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        try:
            for _ in range(100):
                try:
                    if self._call("GET", "/status")["ready"]:
                        break
                except OSError:
                    time.sleep(0.1)
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.close()
            raise
        self._session = f"/session/{made['sessionId']}"
        self.scheme("dark" if dark else "light")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:600]) from error

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Run one DevTools command."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def scheme(self, name: str) -> None:
        """Pretend that the system asks for light or dark, on screen."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        """Set the size of the page, not of the window."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def open(self, url: str) -> None:
        """Load a page and wait for its load event."""
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Evaluate the body of a function in the page."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """Click where a reader would: scroll to the element and press the pointer on it."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        found = self._call("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._call("POST", f"{self._session}/element/{next(iter(found.values()))}/click")

    def point(self, selector: str, right: float, down: float) -> None:
        """Move the pointer to a place inside an element, given as shares of its width and height."""
        box = self.run("const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
                       "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height];", selector)
        self.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + right * box[2], y=box[1] + down * box[3])

    def wait(self, script: str, seconds: float = 10.0) -> Any:
        """Wait until a script returns something true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.1)
        return found

    def console(self) -> list[str]:
        """Console messages since the last call."""
        return [f"{one['level']}: {one['message']}" for one in self._call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that the page asked for since the last call."""
        log = self._call("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(one["message"])["message"] for one in log]
        return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Save a PNG of the whole page."""
        extra = {}
        if whole:
            box = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
            extra = {"clip": {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1},
                     "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", format="png", **extra)["data"]))

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(10)
