"""Token choice in the program: argmax, or inverse-transform sampling with a given random number.

Semantics of Hugging Face's logits processors, as on the host (:mod:`graphgen.runtime.sampling`),
over the ``global_topk`` best tokens: by descending score, of equal ones the lowest ids. Rows are
independent; removed tokens have probability 0.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.composites.drawing import draw, prefix_sums
from graphgen.ir import Value
from graphgen.ir.dtype import f32, s32


def greedy(b: Builder, logits: Value) -> Value:
    """The token s32 [B] of the highest of ``logits`` [B,V]; of equal ones the lowest."""
    _, ids = b.top_k(logits, 1)
    return b.reshape(ids, ids.shape[:1])


def sample(
    b: Builder,
    logits: Value,
    params: Value,
    random: Value,
    global_topk: int = 256,
    kept: Value | None = None,
) -> Value:
    """A token s32 [B] drawn from each row.

    Args:
        b: where to build.
        logits: f32 [B,V].
        params: f32 [B,3], of each row top_k (0 or less for all), top_p and temperature (0 or less
            for the best token, of equal ones the lowest).
        random: f32 [B], in [0, 1).
        global_topk: how many of the best tokens are looked at; 0 for all.
        kept: s32 [B], how many of the tokens that top_k keeps top_p keeps at least; 1 if omitted.
    """
    left, ids = remaining(b, logits, params, global_topk, kept)
    return draw(b, left, ids, random)


def remaining(
    b: Builder, logits: Value, params: Value, global_topk: int, kept: Value | None
) -> tuple[Value, Value]:
    """Probabilities f32 [B,count] of each row's best tokens, 0 for removed ones, and their ids.

    Arguments as for :func:`sample`; tokens are in order of descending score, those of equal score
    in order of ascending id.
    """
    vocabulary = logits.shape[1]
    assert isinstance(vocabulary, int)
    count = min(global_topk or vocabulary, vocabulary)
    values, ids = b.top_k(logits, count)
    top_k, top_p, temperature = (_column(b, params, index, count) for index in range(3))
    # Dividing by a temperature of 0 would leave no numbers; the best alone reaches any top_p.
    cold = b.compare(temperature, b.full(0.0, temperature.type), "LE")
    temperature = b.select(cold, b.full(1.0, temperature.type), temperature)
    top_p = b.select(cold, b.full(1e-30, top_p.type), top_p)
    scores = _best(b, values / temperature, top_k, count)
    probable = b.softmax(scores, 1)
    # A token stays while those before it have not reached top_p, so the one that does stays too.
    reached = prefix_sums(b, probable, inclusive=False)
    stays = b.compare(reached, top_p, "LT")
    if kept is not None:
        stays = b.binary("or", stays, _first(b, kept, cold, count))
    left = b.select(stays, probable, b.full(0.0, probable.type))
    return left, ids


def _column(b: Builder, params: Value, index: int, count: int) -> Value:
    """One parameter of each row, [B,count]."""
    column = b.slice_dim(params, 1, index, index + 1)
    rows = params.shape[0]
    return b.broadcast_in_dim(b.reshape(column, (rows,)), (rows, count), [0])


def _first(b: Builder, kept: Value, cold: Value, count: int) -> Value:
    """True for the first ``kept`` places of each row, pred [B,count]; for none of ``cold`` rows."""
    place = b.iota(s32, (kept.shape[0], count), 1)
    least = b.broadcast_in_dim(kept, place.shape, [0])
    return b.select(cold, b.full(False, cold.type), b.compare(place, least, "LT"))


def _best(b: Builder, scores: Value, top_k: Value, count: int) -> Value:
    """``scores``, highest first, without those below the top_k-th; ties with that one stay."""
    place = b.convert(b.iota(s32, scores.shape, 1), f32)
    every = b.compare(top_k, b.full(0.0, top_k.type), "LE")
    last = b.full(float(count - 1), top_k.type)
    at = b.select(every, last, b.binary("minimum", top_k - 1.0, last))
    nothing = b.full(float("-inf"), scores.type)
    here = b.select(b.compare(place, at, "EQ"), scores, nothing)
    least = b.broadcast_in_dim(b.reduce(here, [1], "maximum"), scores.shape, [0])
    return b.select(b.compare(scores, least, "GE"), scores, nothing)
