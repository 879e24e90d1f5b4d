"""The logical module of a model: one program per phase, all from the body of its family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from graphgen.build import Builder
from graphgen.build.slot_layout import CacheLayout, PlainRows
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY_TREE, VERIFYING, DType, Function, Module, Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.models.expert_outputs import return_of_experts
from graphgen.models.family import Config, Family
from graphgen.models.medusa import MEDUSA_LOGITS, MEDUSA_TOKENS, medusa_guesses
from graphgen.models.program_form import FEATURES, FORM, PHASES, B, C, M, ProgramForm, R, S
from graphgen.nn import StepInputs
from graphgen.ops.token_trees.tree_ops import ANCESTORS


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
    the weights and the KV states, and return ``logits`` f32 [B,V] of each row's last token, those
    of ``verify`` and ``verify_tree`` ``token_logits`` f32 [B,S,V]. ``specialize`` binds B, R, S, C
    and M. Those of ``verify_tree`` take ``ancestors`` s32 [B,S,S] too, not 0 where a token reads
    another one of its row; positions are those of the first token plus the depth of each.

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
    positions = b.input("positions", s32, (B, S))
    lengths = b.input("lengths", s32, (B,))
    seq_ids = b.input("seq_ids", s32, (B,))
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
