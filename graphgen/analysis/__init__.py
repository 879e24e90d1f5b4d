"""Static analyses of a module: calls, fingerprints, symbols, work, traffic, memory, layers.

``calls.py`` inlines calls for the others.
"""

from __future__ import annotations

from graphgen.analysis.calls import acts, called, inlined, is_foreign, run_by_programs
from graphgen.analysis.fingerprint import fingerprint, function_fingerprint
from graphgen.analysis.symbols import free_symbols

__all__ = [
    "acts",
    "called",
    "fingerprint",
    "free_symbols",
    "function_fingerprint",
    "inlined",
    "is_foreign",
    "run_by_programs",
]
