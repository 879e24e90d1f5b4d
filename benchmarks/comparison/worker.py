"""The child of one engine: reads requests, a line of JSON each, and answers with a line each.

``python -m benchmarks.comparison.worker MODULE``, where ``MODULE.create()`` returns the engine.
What the engine prints goes to the standard error, so that answers stay lines of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.comparison.interfaces import Case, Engine, ModelFiles, UnsupportedError

Request = dict[str, Any]


def answers(engine: Engine) -> dict[str, Callable[[Request], object]]:
    """What answers a request, by the name of the request."""

    def opened(request: Request) -> None:
        case, files = Case(**request["case"]), ModelFiles(**request["files"])
        engine.open(case, files, request["threads"])

    return {
        "version": lambda request: engine.version,
        "open": opened,
        "turn": lambda request: asdict(engine.turn(request["prompts"], request["steps"])),
        "nats": lambda request: engine.nats(request["windows"]),
    }


def answered(work: Callable[[], object]) -> dict[str, object]:
    """The answer to a request: a result, or the reason why there is none."""
    try:
        return {"result": work()}
    except UnsupportedError as refused:
        return {"unsupported": str(refused)}
    # Whatever another project's engine raises costs its rows, not those of the others.
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until the standard input ends."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(answer: dict[str, object]) -> None:
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    try:
        engine: Engine = importlib.import_module(sys.argv[1]).create()
    except ImportError as missing:
        send({"missing": str(missing)})
        return
    handlers = answers(engine)
    send({"result": engine.version})
    for line in sys.stdin:
        request = json.loads(line)
        send(answered(lambda request=request: handlers[request["do"]](request)))


if __name__ == "__main__":
    main()
