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


def program() -> str | None:
    """Where Chromium is installed, under Debian's name or another one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Page:
    """One page in one browser.

    Args:
        path: the file to open.
        folder: for the browser's profile.

    Attributes:
        complaints: exceptions and errors of the console.
        requests: what the page has asked for.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._loaded = False
        to_read, self._to_write = os.pipe()
        self._from_read, from_write = os.pipe()
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
        more = f"--remote-debugging-pipe --window-size=1400,900 --user-data-dir={folder}"
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
        self._ask("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._hear(self._read())

    def run(self, script: str) -> Any:
        """What a JavaScript expression gives."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        found = self._ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

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
