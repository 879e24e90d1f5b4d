"""The runner's side of the device: starts its process, limits its time, starts it again."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from graphgen.runtime.kit_runner.device_worker import JAX, NRT
from graphgen.runtime.kit_runner.execution_request import (
    ArrayFile,
    ExecutionAnswer,
    ExecutionRequest,
)
from graphgen.runtime.kit_runner.jax_device import is_importable
from graphgen.runtime.kit_runner.kit_types import Execution, KitCase, KitTensor
from graphgen.runtime.kit_runner.nrt_device import library_path
from graphgen.runtime.kit_runner.numbers import compared

AUTO, NONE = "auto", "none"
_START_SECONDS = 300.0
_ATTEMPTS, _WAIT_SECONDS = 3, 3.0
NOT_RUN: Execution = {"end": "not run", "why": "", "times_s": [], "outputs": []}


def not_run(why: str) -> Execution:
    """The end of a program that was not executed."""
    return {**NOT_RUN, "why": why}


def choose_device(wanted: str) -> tuple[str, str]:
    """The name of the device, empty for none; and why there is none."""
    if wanted not in (AUTO, NONE):
        return wanted, ""
    if wanted == NONE:
        return "", "--device none"
    if library_path():
        return NRT, ""
    if is_importable():
        return JAX, ""
    return "", "neither libnrt.so (aws-neuronx-runtime-lib) nor JAX with libneuronxla is here"


class DeviceProcess:
    """The device, used by one program at a time; it is started when it is first needed.

    Attributes:
        name: of the device; empty for none, also after one could not be opened again.
        first_name: the name at first.

    Args:
        name: of the device; empty for none.
        why_none: the reason, where there is none.
        environment: of its process.
        timeout: seconds of a program.
        repeat: runs to be timed.
    """

    def __init__(
        self,
        name: str,
        why_none: str,
        environment: Mapping[str, str],
        timeout: float,
        repeat: int,
    ) -> None:
        self.name = self.first_name = name
        self.why_none = why_none
        self._environment = {**os.environ, **environment}
        self._timeout = timeout
        self._repeat = repeat
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[ExecutionAnswer | None] = queue.Queue()

    def check(self) -> None:
        """Start the device once, to detect missing parts before the first case."""
        with self._lock:
            if self.name and self._process is None:
                self._start(1)
                self.first_name = self.name

    def run(self, case: KitCase, folder: Path, kit: Path) -> Execution:
        """Execute a compiled case and compare its results."""
        with self._lock:
            if case["why_not_run"]:
                return not_run(case["why_not_run"])
            if self.name and self._process is None:
                self._start(_ATTEMPTS)
            if not self.name:
                return not_run(self.why_none)
            answer = self._asked(_request(case, folder, kit, self._repeat))
        if answer is None:
            return {**NOT_RUN, "end": "time-out", "why": f"no answer in {self._timeout:g} s"}
        if answer["why"]:
            return {**NOT_RUN, "end": "failed", "why": answer["why"]}
        outputs = [
            compared(item, _result(folder, at).read_bytes(), (kit / item["data"]).read_bytes())
            for at, item in enumerate(case["outputs"])
            if item["data"]
        ]
        return {"end": "ran", "why": "", "times_s": answer["times_s"], "outputs": outputs}

    def _start(self, attempts: int) -> None:
        """Start the process; a device that does not open is none from then on.

        After a crash it may take a while until the driver gives the cores back.
        """
        why = ""
        for attempt in range(attempts):
            time.sleep(attempt * _WAIT_SECONDS)
            why = self._opened()
            if not why:
                return
        self.why_none, self.name = f"{self.name} cannot be used: {why}", ""

    def _opened(self) -> str:
        """Start the process once; why that failed, or nothing."""
        root = Path(__file__).resolve().parent
        words = [sys.executable, "-m", f"{root.name}.device_worker", self.name]
        answers: queue.Queue[ExecutionAnswer | None] = queue.Queue()
        self._answers = answers
        self._process = process = subprocess.Popen(
            words,
            cwd=root.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            text=True,
        )
        threading.Thread(target=_listen, args=(process, answers), daemon=True).start()
        try:
            first = answers.get(timeout=_START_SECONDS)
        except queue.Empty:
            first = None
        if first is not None and not first["why"]:
            return ""
        self._end()
        return first["why"] if first else "it does not start"

    def _asked(self, request: ExecutionRequest) -> ExecutionAnswer | None:
        """The answer; ``None`` for none in time. After either failure the process is ended."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            found = self._answers.get(timeout=self._timeout or None)
        except queue.Empty:
            self._end()
            return None
        except OSError:
            found = None
        if found is None:
            self._end()
            return {"why": "the runtime crashed", "times_s": []}
        return found

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the process."""
        self._end()


def _listen(process: subprocess.Popen[str], answers: queue.Queue[ExecutionAnswer | None]) -> None:
    """Put answers into the queue, and ``None`` when there will be no more."""
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(cast(ExecutionAnswer, json.loads(line)))
    answers.put(None)


def _result(folder: Path, at: int) -> Path:
    return folder / f"result{at}.bin"


def _request(case: KitCase, folder: Path, kit: Path, repeat: int) -> ExecutionRequest:
    def array(item: KitTensor, path: Path) -> ArrayFile:
        return {
            "name": item["name"],
            "dtype": item["dtype"],
            "dims": item["dims"],
            "path": str(path),
        }

    return {
        "neff": str(folder / "graph.neff"),
        "hlo": str(kit / case["hlo"]),
        "words": case["words"],
        "inputs": [array(item, kit / item["data"]) for item in case["inputs"]],
        "outputs": [array(item, _result(folder, at)) for at, item in enumerate(case["outputs"])],
        "aliases": case["aliases"],
        "repeat": repeat,
    }
