"""Return router logits and expert counts of a program's mixtures as outputs."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.models.program_form import B, ExpertOutputs, S

ROUTER_LOGITS, EXPERT_INDEX, EXPERT_COUNTS = "router_logits", "expert_index", "expert_counts"


def return_of_experts(b: Builder, wanted: ExpertOutputs) -> None:
    """Add the outputs to a program that computes its mixtures already."""
    mixtures = [op for op in b.function.block if op.name == "experts"]
    for number, op in enumerate(mixtures):
        if wanted.logits:
            logits = _router_logits(b.function, op)
            b.output(f"{ROUTER_LOGITS}.{number}", logits, tensor(f32, (B, S, logits.shape[-1])))
        if wanted.index:
            index = op.operands[1]
            b.output(f"{EXPERT_INDEX}.{number}", index, tensor(s32, (B, S, index.shape[-1])))
    if wanted.counts and mixtures:
        rows = [_counts(b, op) for op in mixtures]
        joined = rows[0] if len(rows) == 1 else b.concatenate(rows, 0)
        b.output(EXPERT_COUNTS, joined, joined.type)


def _counts(b: Builder, op: Op) -> Value:
    """Choices of each expert of a mixture, s32 [1,E]."""
    index, experts = op.operands[1], op.operands[3].shape[0]
    assert isinstance(experts, int)
    chosen = b.one_hot(index, experts, s32)
    return b.reshape(b.reduce(chosen, list(range(len(index.shape))), "add"), (1, experts))


def _router_logits(function: Function, op: Op) -> Value:
    """The logits of the router of a mixture: its product with a weight, and a bias if it has one.

    All that the layer of this product appended has its scope.
    """
    work = [op.operands[1].op]
    above: set[Op] = set()
    while work:
        current = work.pop()
        if current is None or current in above:
            continue
        above.add(current)
        if current.name != "dot_general":
            work += [operand.op for operand in current.operands]
    ordered = [item for item in function.block if item in above]
    scope = next(item.loc.scope for item in reversed(ordered) if item.name == "dot_general")
    return [item for item in ordered if item.loc.scope == scope][-1].result
