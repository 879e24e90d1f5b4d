"""Builder of graphs: op methods with inference, checks of arguments, lines of the user's source."""

from __future__ import annotations

from graphgen.build.builder import Builder
from graphgen.build.op_methods import OpMethods

__all__ = ["Builder", "OpMethods"]
