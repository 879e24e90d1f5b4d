"""The stand-ins for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphgen.runtime import aws_tnx as stand_ins


@pytest.fixture
def installed() -> Iterator[None]:
    stand_ins.install()
    yield
    stand_ins.uninstall()
