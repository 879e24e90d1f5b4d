"""On-device sampling: inputs of programs that choose tokens, and checks of their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.choose_token import ACCEPTING, DRAFTING, number_for, uniform
from graphgen.runtime.sampling.sampling_settings import SETTINGS, top_p_end
from graphgen.runtime.session.launch import step_numbers
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import Draw, Floats

# (top_k, top_p, temperature) of a greedy sequence: a temperature of 0.
_BEST = (1.0, 1.0, 0.0)
# The largest s32; no vocabulary has as many tokens.
_MOST = (1 << 31) - 1


def check_choice(session: Session, how: Sequence[Sampling]) -> None:
    """Refuse sampling settings that the compiled programs do not implement (GG0705)."""
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
    """True if the settings use only what sampling programs know."""
    known = {name: getattr(how, name) for name, row in SETTINGS.items() if row.in_programs}
    inputs = Sampling(do_sample=True, global_topk=how.global_topk, **known)
    return replace(how, seed=0, deterministic=False) == inputs


def _check_drawn(session: Session, how: Sampling) -> None:
    """Refuse settings that contradict those fixed at compile time (GG0705)."""
    if how.deterministic is not session.deterministic:
        always = "always draw with 0.5" if session.deterministic else "draw with random numbers"
        raise GraphgenError(
            "GG0705",
            f"deterministic is {how.deterministic}, but these programs {always}",
            help="ask for the same, or compile for it",
        )
    if how.global_topk not in (0, session.candidates):
        looks = f"the {session.candidates} best tokens" if session.candidates else "all tokens"
        raise GraphgenError(
            "GG0705",
            f"global_topk is {how.global_topk}, but these programs look at {looks}",
            help="leave it out, or compile for it",
        )
    if 0 < session.candidates < how.top_k:
        raise GraphgenError(
            "GG0705",
            f"top_k is {how.top_k}, but these programs look at the {session.candidates} best "
            "tokens only",
            help="ask for fewer, or compile with a larger --global-topk",
        )
    if how.top_p_min_tokens > 1 and not session.keeps:
        raise GraphgenError(
            "GG0705",
            f"top_p_min_tokens is {how.top_p_min_tokens}, but these programs have no such input",
            help="compile with on-device-sampling{top_p_min_tokens=true}, or let the host choose",
        )


def draw_of(session: Session, how: Sequence[Sampling], steps: Sequence[int]) -> Draw | None:
    """The inputs of sampling programs for one step; ``None`` for programs that do not sample.

    Args:
        session: with R rows.
        how: settings of each sequence, at most R.
        steps: number of tokens generated so far, per sequence.
    """
    if not session.draws:
        return None
    params = np.tile(np.array(_BEST, np.float32), (session.rows, 1))
    random = np.zeros(session.rows, np.float64)
    kept = np.ones(session.rows, np.int32)
    for row, (choice, step) in enumerate(zip(how, steps, strict=True)):
        params[row] = sampling_row(choice)
        if choice.do_sample:
            random[row] = number_for(choice, row, step)
            kept[row] = min(choice.top_p_min_tokens, _MOST)
    return Draw(params, below_one(random), kept if session.keeps else None)


def draws_of(
    session: Session, how: Sequence[Sampling], steps: Sequence[int], count: int
) -> Draw | None:
    """The inputs of :func:`draw_of` for ``count`` steps of one launch: random numbers [R,count].

    They are those that the steps have one by one. A speculative step has three a place.
    """
    each = [draw_of(session, how, [step + n for step in steps]) for n in range(count)]
    draws = [draw for draw in each if draw is not None]
    if not draws:
        return None
    random = np.stack([draw.random for draw in draws], 1)
    if not step_numbers(session.module):
        return replace(draws[0], random=random)
    others = [_numbers_of(session, how, steps, count, use) for use in (ACCEPTING, DRAFTING)]
    return replace(draws[0], random=np.stack([others[0], random, others[1]], 2))


def _numbers_of(
    session: Session, how: Sequence[Sampling], steps: Sequence[int], count: int, use: int
) -> Floats:
    """Random numbers f32 [R,count] of one use."""
    found = np.zeros((session.rows, count), np.float64)
    for row, (choice, step) in enumerate(zip(how, steps, strict=True)):
        if choice.do_sample:
            found[row] = [uniform(choice.seed, row, step + n, use) for n in range(count)]
    return below_one(found)


def draw_for(session: Session, how: Sequence[Sampling], steps: Sequence[int]) -> Draw | None:
    """The inputs of sampling programs for some rows; ``None`` for programs that do not sample.

    The random numbers of each row are those that it has as the only sequence.

    Args:
        session: has the programs.
        how: settings of each of n rows.
        steps: number of tokens generated so far, per row.
    """
    if not session.draws:
        return None
    params = np.array([sampling_row(choice) for choice in how], np.float32)
    random = [
        number_for(choice, 0, step) if choice.do_sample else 0.0
        for choice, step in zip(how, steps, strict=True)
    ]
    kept = [min(choice.top_p_min_tokens, _MOST) if choice.do_sample else 1 for choice in how]
    numbers = below_one(np.array(random, np.float64))
    return Draw(params, numbers, np.array(kept, np.int32) if session.keeps else None)


def sampling_row(how: Sampling) -> tuple[float, float, float]:
    """``sampling_params`` of one row: top_k, the end of top_p, and temperature."""
    return (how.top_k, top_p_end(how.top_p), how.temperature) if how.do_sample else _BEST


def below_one(numbers: npt.NDArray[np.float64]) -> Floats:
    """Numbers in [0, 1) as f32; what rounds to 1 becomes the largest f32 below it."""
    return np.minimum(numbers.astype(np.float32), np.float32(1 - 2**-24))
