"""The meaning of ``next_tokens`` for a model that gives logits alone: the best token of each row.

The first program has no such output, so that a proof takes it to be the place of the largest
logit, of equal ones the first, and says so.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Function
from graphgen.ir.clone import clone_function

LOGITS, TOKENS = "logits", "next_tokens"
MEANING = f"{TOKENS} is the place of the first of the largest {LOGITS}"


def with_chosen_tokens(source: Function, target: Function) -> Function:
    """A program with ``next_tokens`` s32 [B] beside its logits [B,V], if ``target`` gives these.

    Args:
        source: a program of the model.
        target: one that comes from it.

    Returns:
        The program itself where nothing is missing, or where it has no such logits.
    """
    logits = source.outputs.get(LOGITS)
    missing = target.outputs.get(TOKENS) is not None and source.outputs.get(TOKENS) is None
    if not missing or logits is None or logits.type.rank != 2:
        return source
    made = clone_function(source)
    found = made.outputs.get(LOGITS)
    assert found is not None
    with Builder(made, loc=found.op.loc if found.op is not None else None) as b:
        _, places = b.top_k(found, 1)
        made.outputs.append((TOKENS, b.reshape(places, places.shape[:1])))
    return made
