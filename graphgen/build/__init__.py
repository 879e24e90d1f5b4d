"""Building graphs in Python: the inferring builder."""

from __future__ import annotations

from graphgen.build.builder import Builder
from graphgen.build.op_methods import OpMethods

__all__ = ["Builder", "OpMethods"]
