"""A headless Chromium to look at a page with, over its debugging pipe: no driver, no network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

SECONDS = 60.0
WINDOW = "1280,800"
NO_BROWSER = "no Chromium is installed (Debian: apt-get install chromium)"
# A change of the hash is an event of its own, which the page answers in turn.
_ROUTED = "new Promise((done) => setTimeout(() => routing.then(done), 30))"


def program() -> str | None:
    """Where Chromium is installed, under Debian's name or another one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Page:
    """One page in one browser.

    Args:
        path: the file to open, or the URL of a page.
        folder: for the browser's profile.
        address: what follows the path, such as ``#op=dot.3``.

    Attributes:
        complaints: exceptions and errors of the console.
        requests: what the page has asked for.
    """

    def __init__(self, path: Path | str, folder: Path, address: str = "") -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._loaded = False
        to_read, self._to_write = os.pipe()
        self._from_read, from_write = os.pipe()
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
        more = f"--remote-debugging-pipe --window-size={WINDOW} --user-data-dir={folder}"
        command = f"exec {program()} {options} {more} 3<&{to_read} 4>&{from_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._session = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        url = path if isinstance(path, str) else path.resolve().as_uri()
        self._ask("Page.navigate", url=url + address)
        while not self._loaded:
            self._hear(self._read())

    def run(self, script: str) -> Any:
        """What a JavaScript expression gives; a promise is waited for."""
        found = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        found = self._ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def go(self, address: str) -> None:
        """Follow a deep link: the part of an address after ``#``, on a page that has routes."""
        self.run(f"location.hash = {json.dumps(address)}; {_ROUTED}")

    def reload(self) -> None:
        """Load the page again, without what was clicked before and without a deep link."""
        self.run("history.replaceState(null, '', location.pathname)")
        self.requests.clear()
        self._loaded = False
        self._ask("Page.reload")
        while not self._loaded:
            self._hear(self._read())

    def settle(self) -> None:
        """Wait until what was clicked is drawn, on a page that has routes."""
        self.run(_ROUTED)

    def dark(self) -> None:
        """Have the page drawn as on a dark screen."""
        self._prefer("dark")

    def light(self) -> None:
        """Have the page drawn as on a light screen."""
        self._prefer("light")

    def _prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._ask("Emulation.setEmulatedMedia", features=[feature])

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Give the window a size in CSS pixels, each of ``scale`` pixels of a picture."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._to_write)
        os.close(self._from_read)

    def _ask(self, method: str, **params: object) -> Any:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._hear(answer)

    def _hear(self, event: Any) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _read(self) -> Any:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._from_read], [], [], max(left, 0))
            assert ready, "the browser says nothing"
            piece = os.read(self._from_read, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
