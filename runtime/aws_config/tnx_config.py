"""transformers-neuronx's configurations, as classes of the table.

Their names here start with Tnx where NxD Inference has a class of the same name; the module
:mod:`graphgen.runtime.aws.tnx` has them under transformers-neuronx's own names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import ClassVar, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config import tnx_part_rows as parts
from graphgen.runtime.aws_config.strict_config import StrictConfig
from graphgen.runtime.aws_config.tnx_rows import MODEL, OWNER, exclusion


class GQA(Enum):
    """Distributions of KV heads over ranks."""

    SHARD_OVER_HEADS = "shard-over-heads"
    SHARD_OVER_BATCH = "shard-over-batch"
    REPLICATED_HEADS = "replicated-heads"
    ALL_GATHER_HEADS = "all-gather-heads"


class TnxQuantizationConfig(StrictConfig):
    """Quantization of weights."""

    owner: ClassVar[str] = parts.QUANTIZATION


class KVCacheQuantizationConfig(StrictConfig):
    """Quantization of KV caches."""

    owner: ClassVar[str] = parts.KV_QUANTIZATION


class ContinuousBatchingConfig(StrictConfig):
    """Sequences that join and leave a batch."""

    owner: ClassVar[str] = parts.BATCHING


class BlkSparseAttnConfig(StrictConfig):
    """Sizes of a mask of blocks."""

    owner: ClassVar[str] = parts.BLOCKS


class SlidingWindowAttnConfig(StrictConfig):
    """The size of a window."""

    owner: ClassVar[str] = parts.WINDOW


class SparseAttnConfig(StrictConfig):
    """Positions that attention leaves out."""

    owner: ClassVar[str] = parts.SPARSE

    def __init__(self, **values: object) -> None:
        # Each configuration has a dictionary of its own, never a shared default.
        super().__init__(**{"sparse_mask_dict": dict[object, object](), **values})


class TnxGenerationConfig(StrictConfig):
    """Settings of programs that choose tokens; assignable at any time.

    A model has a copy of its own: changes reach it through ``update_generation_config``.
    """

    owner: ClassVar[str] = parts.GENERATION
    lists: ClassVar[tuple[str, ...]] = ("top_k", "top_p", "top_p_min_tokens", "temperature")

    def rules(self) -> Iterator[GraphgenError]:
        """Lists without ``per_batch_line``, and lists of different lengths."""
        given = {name: self.value(name) for name in self.lists}
        sizes = {
            name: len(cast("tuple[object, ...]", value))
            for name, value in given.items()
            if isinstance(value, tuple)
        }
        if sizes and not self.value("per_batch_line"):
            yield exclusion(
                f"{self.owner}.{next(iter(sizes))} is a list and per_batch_line is False",
                "a list has a value of each sequence",
                "set per_batch_line=True, or give one value",
            )
        if len(set(sizes.values())) > 1:
            yield exclusion(
                f"{self.owner}: lists of different lengths: {sizes}",
                "a list has a value of each sequence",
                "give lists of the batch size",
            )

    def of_row(self, name: str, row: int, rows: int) -> object:
        """The value of an attribute for one of ``rows`` sequences (GG0903)."""
        value = self.value(name)
        if not isinstance(value, tuple):
            return value
        each = cast("Sequence[object]", value)
        if len(each) != rows:
            raise exclusion(
                f"{self.owner}.{name} has {len(each)} values and the batch {rows} sequences",
                "a list has a value of each sequence",
                f"give {rows} values",
            )
        return each[row]


class TnxNeuronConfig(StrictConfig):
    """Compile-time and run-time options of a model."""

    owner: ClassVar[str] = OWNER

    def rules(self) -> Iterator[GraphgenError]:
        """Combinations that transformers-neuronx drops silently."""
        if self.value("qkv_tiling") and not self.value("fuse_qkv"):
            yield exclusion(
                f"{self.owner}.qkv_tiling is True and fuse_qkv is False",
                "the tiles are those of the joined product",
                "set fuse_qkv=True",
            )
        replicated = self.value("group_query_attention") == GQA.REPLICATED_HEADS.value
        batch_first = self.value("attention_layout") == "BSH"
        for name, fused in (("fused_rmsnorm_qkv", True), ("fused_rmsnorm_mlp", False)):
            if self.value(name) and not (
                batch_first and replicated and (self.value("fuse_qkv") or not fused)
            ):
                yield exclusion(
                    f"{self.owner}.{name} is True",
                    "the fused kernel needs attention_layout='BSH', group_query_attention="
                    f"'replicated-heads'{' and fuse_qkv=True' if fused else ''}",
                    "set them, or leave it out",
                )
        strategy = self.value("group_query_attention")
        if self.value("shard_over_sequence") and not (strategy is None or replicated):
            yield exclusion(
                f"{self.owner}.group_query_attention is {strategy!r} with shard_over_sequence",
                "ranks that share a sequence have copies of its key-value heads",
                "leave it out, or set it to 'replicated-heads'",
            )
        if self.value("padding_side") == "left" and self.value("continuous_batching"):
            yield exclusion(
                f"{self.owner}.padding_side is 'left' with continuous_batching",
                "sequences that join a batch are padded on the right",
                "leave padding_side out",
            )
        for name in ("mlp_in_weight_tiling_permute_order", "mlp_out_weight_tiling_permute_order"):
            order = cast("tuple[int, ...]", self.value(name))
            if sorted(order) != [0, 1, 2, 3] or order.index(2) > order.index(3):
                yield exclusion(
                    f"{self.owner}.{name} is {list(order)}",
                    "it permutes 0 to 3 with 2 before 3",
                    "leave it out",
                )

    def part(self, name: str) -> StrictConfig | None:
        """A copy of the configuration inside this one; ``None`` if there is none."""
        return copy.deepcopy(cast("StrictConfig | None", self.value(name)))


class TnxModelOptions(StrictConfig):
    """The keyword arguments of ``from_pretrained``."""

    owner: ClassVar[str] = MODEL
