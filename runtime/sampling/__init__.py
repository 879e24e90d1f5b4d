"""Sampling on the host: penalties, filters, the draw, settings of requests."""

from __future__ import annotations

from graphgen.runtime.sampling.choose_token import choose_token
from graphgen.runtime.sampling.sampling_settings import GREEDY, Sampling

__all__ = ["GREEDY", "Sampling", "choose_token"]
