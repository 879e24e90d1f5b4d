"""The choice of a token that a draft proposes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.sampling.choose_token import DRAFTING, draw, uniform
from graphgen.runtime.sampling.processors import Scores, probabilities, process
from graphgen.runtime.speculation.proposal import SpeculativeRow


def draft_token(
    logits: npt.NDArray[np.floating], sequence: Sequence[int], row: SpeculativeRow, place: int
) -> tuple[int, Scores | None]:
    """A token, and the distribution float64 [V] that it was drawn from, if it was drawn.

    Args:
        logits: float [V] of the draft after ``sequence``.
        sequence: tokens so far, proposed ones included.
        row: the row that it is for.
        place: the number of tokens that were proposed before.
    """
    scores = process(logits, sequence, row.how)
    if not row.how.do_sample or row.how.deterministic:
        return int(scores.argmax()), None
    number = uniform(row.how.seed, row.number, row.made + place, DRAFTING)
    return draw(scores, number), probabilities(scores)
