"""Static analyses of a module: calls, fingerprints, symbols, work, traffic, memory, layers.

``calls.py`` inlines calls for the others.
"""

from __future__ import annotations

from graphgen.analysis.calls import called, has_effects, inlined, is_opaque, run_by_programs
from graphgen.analysis.fingerprint import fingerprint, function_fingerprint
from graphgen.analysis.symbols import free_symbols

__all__ = [
    "called",
    "fingerprint",
    "free_symbols",
    "function_fingerprint",
    "has_effects",
    "inlined",
    "is_opaque",
    "run_by_programs",
]
