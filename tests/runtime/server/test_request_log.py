"""The log of a server: lines of JSON on the present standard error."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from graphgen.runtime.server.request_log import LOG, start_log


@pytest.fixture
def loggers() -> Iterator[None]:
    """The loggers of a server, as they were afterwards."""
    names = ("graphgen.server", "uvicorn", "uvicorn.error")
    before = [(logging.getLogger(name), vars(logging.getLogger(name)).copy()) for name in names]
    yield
    for logger, attributes in before:
        vars(logger).update(attributes)


def test_records_follow_a_replaced_standard_error(
    loggers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    start_log()
    LOG.info("one", extra={"facts": {"status": 200}})
    first_text = first.getvalue()
    first.close()
    monkeypatch.setattr(sys, "stderr", second)
    LOG.info("two")
    assert json.loads(first_text)["status"] == 200
    assert json.loads(second.getvalue())["message"] == "two"
