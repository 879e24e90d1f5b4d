"""Clients of servers in this process."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from tests.runtime.server.served import URL, Live, live, service_of


@pytest.fixture(scope="package")
def client() -> Generator[TestClient]:
    """A client of a server with default options."""
    with TestClient(make_application(service_of()), base_url=URL) as made:
        yield made


@pytest.fixture(scope="package")
def server() -> Generator[Live]:
    """A server on a port, with default options."""
    with live() as made:
        yield made
