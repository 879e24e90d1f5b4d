"""The best tokens of a row of logits, and the surprise of a text, with NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.comparison.interfaces import Rival

# Tokens with their logits that an engine tells at each place.
BEST = 8


def best_tokens(logits: npt.NDArray[np.float32]) -> list[Rival]:
    """The :data:`BEST` tokens of f32 [V], from the best on."""
    among = np.argpartition(-logits, BEST)[:BEST]
    ordered = among[np.argsort(-logits[among], kind="stable")]
    return [(int(token), float(logits[token])) for token in ordered]


def surprise(logits: npt.NDArray[np.float32], tokens: Sequence[int]) -> float:
    """Sum of -log p of all tokens but the first; row i of f32 [S,V] predicts token i + 1."""
    wide = logits[: len(tokens) - 1].astype(np.float64)
    top = wide.max(-1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(wide - top).sum(-1))
    return float((norm - wide[np.arange(len(tokens) - 1), list(tokens[1:])]).sum())
