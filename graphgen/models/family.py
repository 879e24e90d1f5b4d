"""What a model family is to the rest of the system, and how a module is built from one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from graphgen.build import Builder
from graphgen.ir import DType, Function, Module, TensorType, Value, symbol, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.nn import StepInputs

PHASES = ("prefill", "decode")
B, R, S, C, M = (symbol(name) for name in "BRSCM")

Config = TypeVar("Config", bound="ModelConfig")


class ModelConfig(Protocol):
    """What every family's configuration can say about itself."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        ...

    @property
    def max_position_embeddings(self) -> int | None:
        """Tokens a sequence may have; ``None`` where nothing in the model sets a limit."""
        ...

    def mini(self: Config) -> Config:
        """A tiny twin that takes the same decisions in every pass."""
        ...

    def to_hf(self) -> dict[str, object]:
        """The configuration under Hugging Face's names."""
        ...


@dataclass(frozen=True, slots=True)
class Family(Generic[Config]):
    """One model family.

    Attributes:
        model_type: Hugging Face's ``model_type``.
        architectures: Hugging Face's class names it covers.
        read: config.json to a configuration; refuses what it does not support.
        body: appends the model: (builder, configuration, tokens s32 [B,S], what a call shares,
            element type of weights) -> hidden states [B,S,E] after the last norm.
        head: hidden states of the chosen tokens [B,E], or of all [B,S,E] -> logits f32, as many.
        prefix: of the body's tensors, Hugging Face's ``base_model_prefix``.
        embedding: name of the embedding table, a tied head's other name.
        renamed: what names of older checkpoints began with, and what they begin with today.
        buffers: patterns, as in a shell, of tensors some checkpoints hold that are no weights.
    """

    model_type: str
    architectures: tuple[str, ...]
    read: Callable[[Mapping[str, object]], Config]
    body: Callable[[Builder, Config, Value, StepInputs, DType], Value]
    head: Callable[[Builder, Config, Value], Value]
    prefix: str
    embedding: str
    renamed: tuple[tuple[str, str], ...] = ()
    buffers: tuple[str, ...] = ()

    def module(
        self,
        config: Mapping[str, object],
        dtype: DType,
        phases: tuple[str, ...],
        *,
        mini: bool,
        every_token: bool = False,
    ) -> Module:
        """The logical module of a ``config.json``, or of its mini twin (GG0502, GG0503)."""
        read = self.read(config)
        return build_module(self, read.mini() if mini else read, dtype, phases, every_token)


class AnyFamily(Protocol):
    """A family whatever its configuration is."""

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
    def read(self) -> Callable[[Mapping[str, object]], ModelConfig]:
        """See :class:`Family`."""
        ...

    def module(
        self,
        config: Mapping[str, object],
        dtype: DType,
        phases: tuple[str, ...],
        *,
        mini: bool,
        every_token: bool = False,
    ) -> Module:
        """See :meth:`Family.module`."""
        ...


def build_module(
    family: Family[Config],
    config: Config,
    dtype: DType,
    phases: tuple[str, ...] = PHASES,
    every_token: bool = False,
) -> Module:
    """The logical module of a model: one program a phase, from one and the same body.

    Args:
        family: the model family.
        config: its configuration.
        dtype: element type of weights, activations and caches.
        phases: ``prefill`` (S tokens a row) and ``decode`` (one token a row).
        every_token: give the logits of every token, f32 [B,S,V], instead of each row's last.

    The programs take ``tokens`` and ``positions`` s32 [B,S], ``lengths`` and ``seq_ids`` s32 [B],
    the weights and the KV states, and give ``logits`` f32 [B,V] of each row's last token. B, R, S,
    C and M are symbols until ``specialize`` binds them.
    """
    module = Module(family.model_type)
    module.meta["config"] = json.dumps(config.to_hf())
    module.meta["dtype"] = dtype.name
    for phase in phases:
        function = module.add(Function(phase, phase=phase))
        if phase == "decode":
            function.dims["S"] = 1
        with Builder(function, module) as b:
            _program(b, family, config, dtype, every_token)
    return module


def _program(
    b: Builder, family: Family[Config], config: Config, dtype: DType, every_token: bool
) -> None:
    tokens = b.input("tokens", s32, (B, S))
    positions = b.input("positions", s32, (B, S))
    lengths = b.input("lengths", s32, (B,))
    seq_ids = b.input("seq_ids", s32, (B,))
    call = StepInputs(positions, lengths, seq_ids, rows=R, allocated=M, attended=C)
    hidden = family.body(b, config, tokens, call, dtype)
    chosen = hidden if every_token else b.last_token(hidden, positions, lengths)
    logits = family.head(b, config, chosen)
    b.output("logits", logits, logits_type(config, every_token))


def logits_type(config: ModelConfig, every_token: bool = False) -> TensorType:
    """f32 [B,V], or [B,S,V] for every token."""
    rows = (B, S) if every_token else (B,)
    return tensor(f32, (*rows, config.vocab_size))
