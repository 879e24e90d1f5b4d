"""Logarithms of the probabilities that logits give, in double precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def log_softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Logarithms of probabilities, float64 [...,V], of logits [...,V]."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(-1, keepdims=True))
