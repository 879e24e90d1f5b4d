"""What can be said about a graph without running it: identity, symbols, work, memory."""

from __future__ import annotations

from graphgen.analysis.calls import inlined
from graphgen.analysis.fingerprint import fingerprint, function_fingerprint
from graphgen.analysis.symbols import free_symbols

__all__ = ["fingerprint", "free_symbols", "function_fingerprint", "inlined"]
