"""The process that holds the device: requests come in as lines of JSON, answers go out so.

It is a process of its own, so that a runtime that crashes or hangs does not take the kit with it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Protocol, cast

from graphgen.runtime.kit_runner.execution_request import ExecutionAnswer, ExecutionRequest
from graphgen.runtime.kit_runner.jax_device import JaxDevice
from graphgen.runtime.kit_runner.log_text import without_names
from graphgen.runtime.kit_runner.nrt_device import NrtDevice

NRT, JAX = "nrt", "jax"


class Device(Protocol):
    """Runs compiled programs."""

    def run(self, request: ExecutionRequest) -> tuple[list[bytes], list[float]]:
        """The results of the first run in order, and the seconds of each run after it."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


def opened(name: str) -> Device:
    """The device of a name: ``nrt``, or ``jax`` with a platform after a colon."""
    kind, _, platform = name.partition(":")
    return JaxDevice(platform or "neuron") if kind == JAX else NrtDevice()


def answer(device: Device, request: ExecutionRequest) -> ExecutionAnswer:
    """Run a program and write its results."""
    try:
        results, times = device.run(request)
        for item, data in zip(request["outputs"], results):  # noqa: B905 - Python 3.9
            Path(item["path"]).write_bytes(data)
    except Exception as error:  # whatever a runtime raises is the result of this case
        folder = str(Path(request["hlo"]).parent)
        return {
            "why": without_names(f"{type(error).__name__}: {error}"[:2000], [folder]),
            "times_s": [],
        }
    return {"why": "", "times_s": [round(item, 7) for item in times]}


def main(name: str) -> None:
    """Answer until the input ends."""
    # Runtimes print to standard output, which belongs to the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        device = opened(name)
    except Exception as error:  # whatever is missing on this machine
        why = without_names(f"{type(error).__name__}: {error}"[:500])
        print(json.dumps({"why": why, "times_s": []}), file=out, flush=True)
        return
    print(json.dumps({"why": "", "times_s": []}), file=out, flush=True)
    for line in sys.stdin:
        made = answer(device, cast(ExecutionRequest, json.loads(line)))
        print(json.dumps(made), file=out, flush=True)
    device.close()


if __name__ == "__main__":
    main(sys.argv[1])
