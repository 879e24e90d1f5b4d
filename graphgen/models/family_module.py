"""The logical module of a model: one program per phase, all from the body of its family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from graphgen.build.builder import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY_TREE, VERIFYING, Dim, DType, Function, Module, Op, Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.models.family import Config, Family
from graphgen.models.medusa import MEDUSA_LOGITS, MEDUSA_TOKENS, medusa_guesses
from graphgen.models.program_form import (
    FEATURES,
    FORM,
    PHASES,
    B,
    C,
    ExpertOutputs,
    M,
    ProgramForm,
    R,
    S,
)
from graphgen.nn import StepInputs
from graphgen.ops.token_tree import ANCESTORS


class CacheLayout(Protocol):
    """A map between the positions of a sequence and the slots of its row in a cache [R,M,...].

    Programs compute slots and positions by these functions, so another layout leaves attention as
    it is: ``kv_update`` writes to ``slot_of``, ``attention_mask`` compares with ``position_of``.
    """

    def slot_of(self, b: Builder, positions: Value) -> Value:
        """The slots s32 [B,S] of ``positions`` s32 [B,S]; -1 for what the cache does not hold."""
        ...

    def position_of(self, b: Builder, lengths: Value, attended: Dim) -> Value:
        """The positions s32 [B,attended] in the first slots of each row; negative for none.

        ``lengths`` s32 [B] are the positions of each row so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Position p of a row is in its slot p."""

    def slot_of(self, b: Builder, positions: Value) -> Value:
        """The positions themselves."""
        return positions

    def position_of(self, b: Builder, lengths: Value, attended: Dim) -> Value:
        """The number of each slot; -1 from the length of the row on."""
        return b.key_positions(lengths, attended)


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


def build_module(
    family: Family[Config],
    config: Config,
    dtype: DType,
    phases: tuple[str, ...] = PHASES,
    form: ProgramForm = FORM,
) -> Module:
    """The logical module of a model: one program per phase, all from the same body.

    Args:
        family: the model family.
        config: its configuration.
        dtype: element type of weights, activations and caches.
        phases: of ``prefill`` (S tokens per row), ``decode`` (one), ``verify`` (S of a row that
            goes on, as those that speculation proposes) and ``verify_tree`` (S that form a tree).
        form: inputs and outputs that differ from those below.

    The programs take ``tokens`` and ``positions`` s32 [B,S], ``lengths`` and ``seq_ids`` s32 [B],
    the weights and the KV states. Positions are below C, -1 for padding, lengths are at most C, and
    a row of the cache is below R, R for an idle row; every token id is legal. The programs return
    ``logits`` f32 [B,V] of each row's last token, those of ``verify`` and ``verify_tree``
    ``token_logits`` f32 [B,S,V]. ``specialize`` binds B, R, S, C and M. Those of ``verify_tree``
    take ``ancestors`` s32 [B,S,S] too, not 0 where a token reads another one of its row; positions
    are those of the first token plus the depth of each.

    Raises:
        GraphgenError: GG0502 for hidden states of a family that keeps none.
    """
    module = Module(family.model_type)
    module.meta["config"] = json.dumps(config.to_hf())
    module.meta["dtype"] = dtype.name
    for phase in phases:
        function = module.add(Function(phase, phase=phase))
        if phase == "decode":
            function.dims["S"] = 1
        with Builder(function, module) as b:
            _program(b, family, config, dtype, form)
    return module


def _program(
    b: Builder, family: Family[Config], config: Config, dtype: DType, form: ProgramForm
) -> None:
    tokens = _tokens(b, family, config) if form.inputs_embeds else b.input("tokens", s32, (B, S))
    positions = b.input("positions", s32, (B, S), domain=(-1, C - 1))
    lengths = b.input("lengths", s32, (B,), domain=(0, C))
    seq_ids = b.input("seq_ids", s32, (B,), domain=(0, R))
    kept: list[Value] | None = [] if form.keeps_states else None
    layout: CacheLayout = PlainRows()
    tree = b.input(ANCESTORS, s32, (B, S, S)) if b.function.phase == VERIFY_TREE else None
    places = positions if tree is None else b.op("tree_slots", positions)
    slots, keys = layout.slot_of(b, places), layout.position_of(b, lengths, C)
    keys.name = "key_positions"
    step = StepInputs(positions, slots, keys, seq_ids, R, M, C, tree, kept)
    hidden = family.body(b, config, tokens, step, dtype)
    verifies = b.function.phase in VERIFYING
    name = "token_logits" if verifies else "logits"
    every_token = form.every_token or verifies
    chosen = hidden if every_token else b.last_token(hidden, positions, lengths)
    logits = family.head(b, config, chosen)
    b.output(name, logits, tensor(f32, ((B, S) if every_token else (B,)) + logits.shape[-1:]))
    if form.medusa is not None and b.function.phase == VERIFY_TREE:
        vocabulary = config.vocab_size
        own = partial(family.head, b, config)
        made = medusa_guesses(b, form.medusa, hidden, vocabulary, own)
        output = MEDUSA_TOKENS if form.medusa.best else MEDUSA_LOGITS
        b.output(output, made, tensor(made.dtype, (B, S, *made.shape[2:])))
    if kept is not None:
        _return_states(b, family.model_type, [*kept, hidden], form)
    return_of_experts(b, form.experts)


def _tokens(b: Builder, family: Family[Config], config: Config) -> Value:
    """The embeddings of tokens as an input."""
    name = family.aliases.get(family.embedding_size, family.embedding_size)
    width = config.to_hf()[name]
    assert isinstance(width, int)
    return b.input("inputs_embeds", f32, (B, S, width))


def _return_states(b: Builder, family: str, states: Sequence[Value], form: ProgramForm) -> None:
    if len(states) == 1:
        raise GraphgenError(
            "GG0502",
            f"the family '{family}' keeps no hidden states",
            help="call step.keep(x) in its body before each layer",
        )
    if form.hidden_states:
        for number, x in enumerate(states):
            logical = tensor(f32, (B, S, x.shape[-1]))
            b.output(f"hidden_states.{number}", b.convert(x, f32), logical)
    if form.feature_layers:
        chosen = [b.convert(_state(states, n), f32) for n in form.feature_layers]
        joined = chosen[0] if len(chosen) == 1 else b.concatenate(chosen, 2)
        b.output(FEATURES, joined, tensor(f32, (B, S, joined.shape[-1])))


def _state(states: Sequence[Value], number: int) -> Value:
    if not -len(states) <= number < len(states):
        raise GraphgenError(
            "GG0503",
            f"there is no hidden state {number}: there are {len(states)}",
            help=f"0 to {len(states) - 2} are before a layer, {len(states) - 1} after the norm",
        )
    return states[number]
