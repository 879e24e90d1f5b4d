"""PyHLO, the language transformers-neuronx writes its models in, as a way to make our graphs.

A program is a Python function of one argument, the scribe; ops are written with the shape of their
result, ``f32[2,3].Add(x, y)``, which is compared with what the operands give.
"""

from __future__ import annotations

from graphgen.lowering.pyhlo.compiled import Compiled, compile_py_func
from graphgen.lowering.pyhlo.scribe import Scribe

__all__ = ["Compiled", "Scribe", "compile_py_func"]
