"""Passes: graph rewrites, with the tools that run, verify and inspect them.

``pipelines.py`` has the phases of a compilation in their order, ``phases`` the passes of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphgen.passes.core.crash import Crash, register_reproducer
from graphgen.passes.core.instrument import PassInstrument, register_instruments
from graphgen.passes.core.settings import Debugging


def _instruments(settings: Debugging) -> Sequence[PassInstrument]:
    from graphgen.passes.inspect.debug_log import debug_instruments

    return debug_instruments(settings)


def _reproducer(crash: Crash, folder: str, error: Exception) -> Path:
    from graphgen.passes.validate.reproducer import write_reproducer

    return write_reproducer(crash, folder, error)


# The core knows neither package; both are imported on first use.
register_instruments(_instruments)
register_reproducer(_reproducer)
