"""The interface of a model family, and of its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from graphgen.build import Builder
from graphgen.ir import DType, Module, Value
from graphgen.models.program_form import FORM, ProgramForm
from graphgen.models.twins import TwinName
from graphgen.nn import StepInputs

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
class FusedRows:
    """Linear layers that checkpoints hold as one: their rows, block by block.

    Attributes:
        parts: (module, rows of it in a block), in the order in which they follow each other.
        blocks: number of blocks, such as groups of heads.
    """

    parts: tuple[tuple[str, int], ...]
    blocks: int = 1


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
        fused: the layers of a configuration that checkpoints hold as one, by its module.
        other_types: further values of ``model_type`` with the same mathematics.
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
    fused: Callable[[Config], Mapping[str, FusedRows]] | None = None
    other_types: tuple[str, ...] = ()

    def fused_rows(self, config: Mapping[str, object]) -> Mapping[str, FusedRows]:
        """The layers that checkpoints of a ``config.json`` hold as one, by module."""
        return {} if self.fused is None else self.fused(self.read(config))

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
        # Only here: the module that builds programs reads this one.
        from graphgen.models.family_module import build_module

        read = self.read(config)
        if twin is not None:
            read = read.mini() if twin == "mini" else read.wide()
        return build_module(self, read, dtype, phases, form)
