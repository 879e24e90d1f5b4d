"""PyHLO, the language of transformers-neuronx models, as a frontend.

A program is a Python function of one argument, the scribe; ops are written with the shape of their
result, ``f32[2,3].Add(x, y)``, which is compared with the inferred shape.
"""

from __future__ import annotations

from graphgen.lowering.pyhlo.compile_pyhlo import Compiled, HloScribe, compile_py_func
from graphgen.lowering.pyhlo.module_proto import ModuleProto
from graphgen.lowering.pyhlo.shapes import PyHloShape
from graphgen.lowering.pyhlo.trace_context import TraceContext

__all__ = ["Compiled", "HloScribe", "ModuleProto", "PyHloShape", "TraceContext", "compile_py_func"]
