"""Building graphs in Python: the inferring builder."""

from __future__ import annotations

from graphgen.build.builder import Builder
from graphgen.build.vocabulary import Vocabulary

__all__ = ["Builder", "Vocabulary"]
