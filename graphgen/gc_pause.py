"""Work without the collector of cyclic garbage, for large graphs of which nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

# Objects of ended pauses that no collection has looked at; beyond MOST_KEPT the next pause begins
# with one. Python's own rule, a quarter of all older objects, does not see them.
MOST_KEPT = 1_000_000
_kept = 0


@contextmanager
def paused_collector() -> Generator[None]:
    """Pause the collector, which otherwise walks over the whole graph again and again.

    Afterwards all that was made is of the oldest generation, as what survives collections is: the
    next collection, of young objects, does not walk over the graph either.
    """
    running = gc.isenabled()
    if running:
        _collect_kept()
    gc.disable()
    try:
        yield
    finally:
        if running:
            _keep()
            gc.enable()


def _collect_kept() -> None:
    """Collect all generations where pauses left much: graphs are cyclic."""
    global _kept
    if _kept > MOST_KEPT:
        gc.collect()
        _kept = 0


def _keep() -> None:
    """Move all young objects to the oldest generation, but for an application's frozen ones."""
    global _kept
    if not gc.get_freeze_count():
        _kept += gc.get_count()[0]
        gc.freeze()
        gc.unfreeze()
