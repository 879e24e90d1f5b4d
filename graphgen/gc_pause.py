"""Work without the collector of cyclic garbage, for large graphs of which nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

# Objects of ended pauses that no collection has looked at; beyond MOST_KEPT the next pause begins
# with one. Python's own rule, a quarter of all older objects, does not see them.
MOST_KEPT = 1_000_000
_kept = 0
# Whether the application has frozen objects, which stay frozen. Not asked again once it has: the
# answer counts them.
_has_frozen = False


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
    """Move all young objects to the oldest generation; not where an application froze others."""
    global _kept, _has_frozen
    _has_frozen = _has_frozen or gc.get_freeze_count() > 0
    if not _has_frozen:
        _kept += gc.get_count()[0]
        gc.freeze()
        gc.unfreeze()
