"""Build graphs in Python with type inference. Read builder.py first."""

from __future__ import annotations

from graphgen.build.builder import Builder
from graphgen.build.op_methods import OpMethods

__all__ = ["Builder", "OpMethods"]
