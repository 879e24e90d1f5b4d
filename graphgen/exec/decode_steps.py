"""Several decode steps in one call: names of their inputs, and the same steps one by one.

A program of the phase ``steps`` makes N decode steps, each with the tokens that the last one chose
(:mod:`graphgen.passes.programs.multi_step`). Here is what that means in calls of the decode
program.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.eval import Array

# The phase of the programs, and the symbol of their number of steps.
STEPS, COUNT = "steps", "N"
# Their inputs and their output beside those of a decode step.
STEP_COUNTS, STOP_TOKENS, STEP_RANDOM = "step_counts", "stop_tokens", "step_random"
STEP_TOKENS = "step_tokens"
# The largest f32 below 1, and with it the range of the random numbers that tokens are drawn with.
RANDOM_NUMBERS = (0.0, 1 - 2.0**-24)
# Tokens that end a row, of each row.
STOPS = 8


def takes_part(inputs: Mapping[str, Array], number: int, chosen: Array) -> Array:
    """Pred [B]: the rows that take step ``number``.

    Args:
        inputs: of the call of several steps.
        number: from 0.
        chosen: s32 [B,N], the tokens that the steps before it chose; the others do not matter.
    """
    active = inputs[STEP_COUNTS] > number
    for step in range(number):
        active = active & ~(chosen[:, step, None] == inputs[STOP_TOKENS]).any(1)
    return active


def step_inputs(
    inputs: Mapping[str, Array], number: int, chosen: Array, rows: int
) -> dict[str, Array]:
    """The inputs of the decode program in one of several steps.

    Args:
        inputs: of the call of several steps.
        number: of the step, from 0.
        chosen: as for :func:`takes_part`.
        rows: R; an idle row has this one.
    """
    active = takes_part(inputs, number, chosen)
    tokens = inputs["tokens"] if number == 0 else chosen[:, number - 1 : number]
    own = {STEP_COUNTS, STOP_TOKENS, STEP_RANDOM}
    made = {name: array for name, array in inputs.items() if name not in own}
    made |= {
        "tokens": np.where(active[:, None], tokens, 0).astype(np.int32),
        "positions": np.where(active[:, None], inputs["positions"] + number, -1).astype(np.int32),
        "lengths": np.where(active, inputs["lengths"] + number, 0).astype(np.int32),
        "seq_ids": np.where(active, inputs["seq_ids"], rows).astype(np.int32),
    }
    if STEP_RANDOM in inputs:
        made["random"] = inputs[STEP_RANDOM][:, number]
    return made
