"""The log: one JSON object a line on standard error, one line a request."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphgen.json_value import Json

LOG = logging.getLogger("graphgen.server")
# The key of the facts of a request in its ASGI scope.
FACTS = "graphgen.facts"
_PROBES = ("/health", "/ready", "/metrics")
# Counts a request that has ended: its endpoint and its status.
Count = Callable[[str, int], None]


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; facts of a request are keys of their own."""
        facts: dict[str, Json] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts, ensure_ascii=False)


class StandardError(logging.Handler):
    """Writes to ``sys.stderr`` as it is when a record comes; a program may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)


def start_log() -> None:
    """Send the records of the server and of uvicorn to standard error."""
    handler = StandardError()
    handler.setFormatter(JsonLines())
    for name in ("graphgen.server", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").handlers = []
    logging.getLogger("uvicorn.error").propagate = True
    # Its startup is complete before the programs are compiled.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class RequestLog:
    """Middleware that names each request, logs it when it has ended, and counts it.

    The name is the header ``x-request-id`` of the response. Endpoints add facts to the dictionary
    ``scope[FACTS]``.

    Args:
        app: the application.
        count: notified of each request.
        endpoints: paths that are counted under their own name; others are ``other``.
    """

    def __init__(self, app: ASGIApp, count: Count, endpoints: frozenset[str]) -> None:
        self._app = app
        self._count = count
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, start = secrets.token_hex(8), time.monotonic()
        facts: dict[str, Json] = {"request": name, "method": scope["method"]}
        facts["path"] = scope["path"][:200]
        scope[FACTS] = facts
        # 499: the client left before an answer.
        status: int = 499

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except asyncio.CancelledError:
            # The server ends, and the client has not sent its request, or not read the answer.
            facts["cancelled"] = True
        except Exception:
            status = 500
            raise
        finally:
            path = scope["path"]
            self._count(path if path in self._endpoints else "other", status)
            facts |= {"status": status, "seconds": round(time.monotonic() - start, 6)}
            LOG.log(_level(path, status), "request", extra={"facts": facts})


def _level(path: str, status: int) -> int:
    """Probes come every second, and are of interest where they end otherwise."""
    return logging.DEBUG if path in _PROBES and status in (200, 503) else logging.INFO
