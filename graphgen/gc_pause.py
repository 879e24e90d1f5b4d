"""Work without the collector of cyclic garbage, for large graphs of which nothing is garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Generator[None]:
    """Pause the collector, which otherwise walks over the whole graph again and again.

    Afterwards all that was made is of the oldest generation, as what survives collections is: the
    next collection, of young objects, does not walk over the graph either.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            # Objects that the application has frozen stay so.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
