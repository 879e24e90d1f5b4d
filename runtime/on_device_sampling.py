"""What programs that choose tokens themselves are asked for, and what they cannot be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.choose_token import number_for
from graphgen.runtime.session import Draw, Session

# The row of a sequence that takes the best token: a temperature of 0.
_BEST = (1.0, 1.0, 0.0)


def check_choice(session: Session, how: Sequence[Sampling]) -> None:
    """Refuse to choose otherwise than programs that choose tokens do (GG0705)."""
    if not session.chooses:
        return
    for row in how:
        best = replace(row, seed=0, deterministic=False) == GREEDY
        if not best and not (session.draws and _is_drawn(row)):
            does = (
                "draw tokens by top_k, top_p and temperature" if session.draws else "take the best"
            )
            raise GraphgenError(
                "GG0705",
                f"these programs choose tokens themselves: they {does}",
                help="ask for the same; programs give logits, from which the host chooses, where "
                "they are made for --do-sample without --on-device-sampling",
            )
        if not best:
            _check_drawn(session, row)


def _is_drawn(how: Sampling) -> bool:
    """Whether the settings are those that are an input of drawing programs."""
    inputs = Sampling(do_sample=True, top_k=how.top_k, top_p=how.top_p, temperature=how.temperature)
    return replace(how, seed=0, deterministic=False) == inputs


def _check_drawn(session: Session, how: Sampling) -> None:
    """Refuse what was decided otherwise when the programs were compiled (GG0705)."""
    if how.deterministic is not session.deterministic:
        always = "always draw with 0.5" if session.deterministic else "draw with random numbers"
        raise GraphgenError(
            "GG0705",
            f"deterministic is {how.deterministic}, but these programs {always}",
            help="ask for the same, or compile for it",
        )
    if 0 < session.candidates < how.top_k:
        raise GraphgenError(
            "GG0705",
            f"top_k is {how.top_k}, but these programs look at the {session.candidates} best "
            "tokens only",
            help="ask for fewer, or compile with a larger --global-topk",
        )


def draw_of(session: Session, how: Sequence[Sampling], steps: Sequence[int]) -> Draw | None:
    """What drawing programs are given in one call; ``None`` for programs that do not draw.

    Args:
        session: of R rows.
        how: of each sequence, at most R.
        steps: how many tokens each has been given.
    """
    if not session.draws:
        return None
    params = np.tile(np.array(_BEST, np.float32), (session.rows, 1))
    random = np.zeros(session.rows, np.float32)
    for row, (choice, step) in enumerate(zip(how, steps, strict=True)):
        if choice.do_sample:
            params[row] = choice.top_k, choice.top_p, choice.temperature
            random[row] = number_for(choice, row, step)
    # The nearest f32 of a number just below 1 is 1, which is no number of the interval.
    return Draw(params, np.minimum(random, np.float32(1 - 2**-24)))
