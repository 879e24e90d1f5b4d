"""The interface of a model family, and the construction of a module from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from graphgen.build import Builder
from graphgen.build.slot_layout import CacheLayout, PlainRows
from graphgen.errors import GraphgenError
from graphgen.ir import (
    VERIFY_TREE,
    VERIFYING,
    DType,
    Function,
    Module,
    Value,
    symbol,
    tensor,
)
from graphgen.ir.dtype import f32, s32
from graphgen.models.medusa import MEDUSA_LOGITS, MEDUSA_TOKENS, MedusaShape, medusa_guesses
from graphgen.models.twins import TwinName
from graphgen.nn import StepInputs
from graphgen.ops.token_trees.tree_ops import ANCESTORS

PHASES = ("prefill", "decode")
# Name of the output of ``feature_layers``.
FEATURES = "features"
B, R, S, C, M = (symbol(name) for name in "BRSCM")

Config = TypeVar("Config", bound="ModelConfig")


class ModelConfig(Protocol):
    """The interface of every family's configuration."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        ...

    @property
    def max_position_embeddings(self) -> int | None:
        """Largest number of tokens of a sequence; ``None`` if the model sets no limit."""
        ...

    def mini(self: Config) -> Config:
        """A tiny twin with the same decisions in every pass."""
        ...

    def wide(self: Config) -> Config:
        """A twin of tiny tensors with large numbers: see :mod:`graphgen.models.twins`."""
        ...

    def to_hf(self) -> dict[str, object]:
        """The configuration under Hugging Face's names."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramForm:
    """Inputs and outputs of programs that are not the usual ones.

    Attributes:
        every_token: return the logits of every token, f32 [B,S,V], instead of each row's last.
        hidden_states: return ``hidden_states.0`` to ``hidden_states.L`` too, f32 [B,S,E], as
            transformers' ``output_hidden_states``: the input of each of the L layers, and the
            output of the last norm.
        inputs_embeds: take ``inputs_embeds`` f32 [B,S,E] in the place of tokens, as transformers
            does.
        feature_layers: return ``features`` f32 [B,S,n*E] too, n of those hidden states by their
            numbers, one after the other; negative numbers count from the end.
        medusa: return what heads of Medusa guess after each node of a tree, s32 [B,S,H,K].
    """

    every_token: bool = False
    hidden_states: bool = False
    inputs_embeds: bool = False
    feature_layers: tuple[int, ...] = ()
    medusa: MedusaShape | None = None

    @property
    def keeps_states(self) -> bool:
        """True if programs return hidden states in some form."""
        return self.hidden_states or bool(self.feature_layers)


FORM = ProgramForm()


@dataclass(frozen=True, slots=True)
class Family(Generic[Config]):
    """One model family.

    Attributes:
        model_type: Hugging Face's ``model_type``.
        architectures: Hugging Face's class names of the family.
        read: config.json -> configuration; refuses unsupported values.
        body: appends the model: (builder, configuration, tokens s32 [B,S], step inputs, element
            type of weights) -> hidden states [B,S,E] after the last norm.
        head: hidden states [B,E] or [B,S,E] -> logits f32 [B,V] or [B,S,V].
        prefix: prefix of the body's tensors, Hugging Face's ``base_model_prefix``.
        embedding: name of the embedding table, a tied head's other name.
        embedding_size: the table's columns, by the key of the configuration.
        renamed: (prefix in older checkpoints, prefix today) of renamed tensors.
        buffers: shell patterns of tensors in some checkpoints that are not weights.
        aliases: other names of configuration keys, as in transformers' ``attribute_map``.
    """

    model_type: str
    architectures: tuple[str, ...]
    read: Callable[[Mapping[str, object]], Config]
    body: Callable[[Builder, Config, Value, StepInputs, DType], Value]
    head: Callable[[Builder, Config, Value], Value]
    prefix: str
    embedding: str
    embedding_size: str = "hidden_size"
    renamed: tuple[tuple[str, str], ...] = ()
    buffers: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def module(
        self,
        config: Mapping[str, object],
        dtype: DType,
        phases: tuple[str, ...],
        *,
        twin: TwinName | None = None,
        form: ProgramForm = FORM,
    ) -> Module:
        """The logical module of a ``config.json``, or of one of its twins (GG0502, GG0503)."""
        read = self.read(config)
        if twin is not None:
            read = read.mini() if twin == "mini" else read.wide()
        return build_module(self, read, dtype, phases, form)


class AnyFamily(Protocol):
    """A family of any configuration type."""

    @property
    def model_type(self) -> str:
        """Hugging Face's ``model_type``."""
        ...

    @property
    def prefix(self) -> str:
        """See :class:`Family`."""
        ...

    @property
    def embedding(self) -> str:
        """See :class:`Family`."""
        ...

    @property
    def renamed(self) -> tuple[tuple[str, str], ...]:
        """See :class:`Family`."""
        ...

    @property
    def buffers(self) -> tuple[str, ...]:
        """See :class:`Family`."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """See :class:`Family`."""
        ...

    @property
    def read(self) -> Callable[[Mapping[str, object]], ModelConfig]:
        """See :class:`Family`."""
        ...

    def module(
        self,
        config: Mapping[str, object],
        dtype: DType,
        phases: tuple[str, ...],
        *,
        twin: TwinName | None = None,
        form: ProgramForm = FORM,
    ) -> Module:
        """See :meth:`Family.module`."""
        ...


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
