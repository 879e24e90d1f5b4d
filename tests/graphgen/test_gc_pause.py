"""Pauses of the collector: graphs of the past are collected, and the caller's settings stay."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from graphgen.gc_pause import paused_collector

# 100 pauses of 1,000 objects that only the collector frees, with a limit of 5,000. A process of its
# own: that of the tests has frozen objects.
MANY_PAUSES = """
from graphgen import gc_pause

class Cyclic:
    count = 0

    def __init__(self):
        self.itself = self
        Cyclic.count += 1

    def __del__(self):
        Cyclic.count -= 1

gc_pause.MOST_KEPT = 5_000
for _ in range(100):
    with gc_pause.paused_collector():
        for _ in range(1_000):
            Cyclic()
print(Cyclic.count)
"""

# Objects that are frozen after the first pause.
FROZEN = """
import gc
from graphgen.gc_pause import paused_collector

with paused_collector():
    pass
gc.freeze()
frozen = gc.get_freeze_count()
with paused_collector():
    pass
assert gc.get_freeze_count() == frozen > 0
"""


def test_garbage_of_many_pauses_is_collected():
    made = subprocess.run(
        [sys.executable, "-c", MANY_PAUSES], capture_output=True, text=True, check=True
    )
    assert int(made.stdout) <= 6_000


def test_objects_that_an_application_froze_stay_frozen():
    subprocess.run([sys.executable, "-c", FROZEN], check=True)


def test_the_collector_runs_again_after_an_error():
    def fails() -> None:
        with paused_collector():
            assert not gc.isenabled()
            raise ValueError("inside")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"):
        fails()
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
