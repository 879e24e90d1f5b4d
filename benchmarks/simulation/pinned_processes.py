"""Run a task in several processes at once, each pinned to one core and with one thread.

Core ``index % cores`` is that of process ``index``: with more processes than cores some share one.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from graphgen.runtime.distributed.launch_plan import free_port


def run_pinned(task: str, count: int, used: int = 0, **options: object) -> list[Any]:
    """The results of all processes, in order.

    Args:
        task: ``MODULE:FUNCTION``, called with an object of ``options`` and of ``count``, ``index``
            and the ``address`` of a coordinator, after all processes have come so far.
        count: of processes.
        used: cores that are used; 0 for all.
        **options: JSON.
    """
    given = {
        "task": task,
        "count": count,
        "used": used,
        "address": f"127.0.0.1:{free_port()}",
        **options,
    }
    running: list[subprocess.Popen[str]] = []
    try:
        for index in range(count):
            words = [sys.executable, "-m", __spec__.name, json.dumps({**given, "index": index})]
            pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            env = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            running.append(subprocess.Popen(words, env=env, text=True, **pipes))
        return [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()


def cores() -> list[int]:
    """The cores of this machine that a process may run on."""
    return sorted(os.sched_getaffinity(0))


def _main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    available = cores()[: given["used"] or None]
    # Before jaxlib is loaded, which makes as many threads as a process may use cores.
    os.sched_setaffinity(0, {available[given["index"] % len(available)]})
    module, _, name = given["task"].partition(":")
    out = os.fdopen(os.dup(1), "w")
    # gloo's messages are not results, and of no use to a reader.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    result = getattr(importlib.import_module(module), name)(given)
    out.write(f"{json.dumps(result)}\n")
    out.flush()
    # Not waiting for the coordinator, which may be gone.
    os._exit(0)


if __name__ == "__main__":
    _main()
