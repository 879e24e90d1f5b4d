"""The speed of this machine's memory."""

from __future__ import annotations

from inspect import signature

from graphgen.lowering.cpu.memory_bandwidth import read_bandwidth


def test_bytes_per_second_are_measured():
    assert 1e7 < read_bandwidth(1 << 24, repeats=1) < 1e14


def test_more_is_read_than_caches_hold():
    assert signature(read_bandwidth).parameters["size"].default >= 1 << 30
