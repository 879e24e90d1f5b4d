"""Evaluation rules of the ops in NumPy, the reference of every backend.

Importing the modules registers their rules.
"""

from __future__ import annotations

from graphgen.eval import (
    bits,
    collective,
    composite,
    convolution,
    elementwise,
    experts,
    fourier,
    indexing,
    linalg,
    linear_systems,
    random_bits,
    reduce_window,
    shape,
    sorting,
    speculative_sampling,
    token_tree,
)
from graphgen.eval.registry import COLLECTIVES, COMPOSITES, RULES, SEVERAL, UPDATES

MODULES = (
    elementwise,
    bits,
    shape,
    linalg,
    indexing,
    sorting,
    composite,
    token_tree,
    collective,
    convolution,
    reduce_window,
    linear_systems,
    fourier,
    random_bits,
    speculative_sampling,
    experts,
)

__all__ = ["COLLECTIVES", "COMPOSITES", "MODULES", "RULES", "SEVERAL", "UPDATES"]
