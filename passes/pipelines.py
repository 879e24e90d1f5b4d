"""The default pipelines, to be read as the story of a compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.unfuse_projections import UnfuseProjections
from graphgen.passes.cleanup.cse import CommonSubexpressions
from graphgen.passes.cleanup.dce import DeadCodeElimination
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.core.named import NamedPipeline
from graphgen.passes.core.options import choice
from graphgen.passes.core.order import check_order
from graphgen.passes.core.registry import register_pipeline
from graphgen.passes.fusion.fuse_projections import FuseProjections
from graphgen.passes.heads.gather import GatherHeads
from graphgen.passes.heads.place import LayOutHeads
from graphgen.passes.heads.strategies import AUTO, BY_ROWS, GATHERED, STRATEGIES
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.outline.outline_layers import OutlineLayers
from graphgen.passes.sharding.annotate import Shard
from graphgen.passes.sharding.merge_collectives import MergeCollectives
from graphgen.passes.sharding.pad_to_mesh import PadToMesh
from graphgen.passes.sharding.partition import Partition
from graphgen.passes.specialize.specialize import Specialize
from graphgen.passes.weights.lift import LiftWeights
from graphgen.passes.window.roll_window_cache import RollWindowCache
from graphgen.targets import find_target, target_names


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes the programs are compiled for; the fields of :class:`Specialize`."""

    batch: tuple[int, ...] = (1,)
    context: tuple[int, ...] = (128,)
    tokens: tuple[int, ...] = (128,)
    slots: int = 0


_SIZES = Buckets()


@register_pipeline
@dataclass(frozen=True)
class Default(NamedPipeline):
    """From the logical module to programs ready to be lowered for a target.

    Options:
        target: what to legalize for.
        tp: ranks the model is split over; 1 leaves out the sharding phase.
        heads: the strategy of the pass ``heads``.
        batch: sizes of B.
        context: buckets of the prefill programs.
        tokens: buckets of the decode programs.
        slots: of a cache row; by default the largest bucket.
        min_rows: rows a 16-bit product with a weight is padded to.
        roll_window_cache: whether layers with a window have caches that hold no more than it.
        outline: whether layers that compute the same become one function, as the last step.
    """

    name: ClassVar[str] = "default"
    target: str = choice("cpu", target_names)
    tp: int = 1
    heads: str = choice(AUTO, tuple(STRATEGIES))
    batch: tuple[int, ...] = _SIZES.batch
    context: tuple[int, ...] = _SIZES.context
    tokens: tuple[int, ...] = _SIZES.tokens
    slots: int = _SIZES.slots
    min_rows: int = 8
    roll_window_cache: bool = False
    outline: bool = False

    def passes(self) -> list[Pass]:
        """The passes, for these options."""
        buckets = Buckets(self.batch, self.context, self.tokens, self.slots)
        passes = default(
            buckets,
            tp=self.tp,
            heads=self.heads,
            target=self.target,
            min_rows=self.min_rows,
            roll_window_cache=self.roll_window_cache,
        )
        return [*passes, OutlineLayers()] if self.outline else passes


def parse(text: str, buckets: Buckets | None = None) -> list[Pass]:
    """Passes from text, where ``default{target=cpu,tp=2}`` stands for the default pipeline.

    Args:
        text: see :func:`parse_pipeline`.
        buckets: the default pipeline's, where it names none.

    Raises:
        GraphgenError: GG0301, GG0302, and GG0303 for an order that is right for no module.
    """
    sizes = buckets or Buckets()
    named = Default(
        batch=sizes.batch, context=sizes.context, tokens=sizes.tokens, slots=sizes.slots
    )
    passes = parse_pipeline(text, [named])
    check_order(passes)
    return passes


def default(
    buckets: Buckets,
    *,
    tp: int = 1,
    heads: str = AUTO,
    target: str = "cpu",
    min_rows: int = 8,
    quantize: Pass | None = None,
    roll_window_cache: bool = False,
) -> list[Pass]:
    """From the logical module to programs ready to be lowered.

    Args:
        buckets: what to compile for.
        tp: ranks the model is split over; 1 leaves out the sharding phase.
        heads: the strategy of the pass ``heads``.
        target: what to legalize for.
        min_rows: rows a 16-bit product with a weight is padded to.
        quantize: the pass that quantizes weights, ``None`` where they stay as they are.
        roll_window_cache: whether layers with a window have caches that hold no more than it.

    Raises:
        GraphgenError: GG0302 for fewer ranks than one.
    """
    if tp < 1:
        raise GraphgenError("GG0302", f"default: tp={tp} must be at least 1")
    quantized = quantize is not None
    passes: list[Pass] = [
        Canonicalize(),
        UnfuseProjections(),
        *([quantize] if quantize else []),
        *_of_target(target, "quantize", quantized),
        Specialize(
            batch=buckets.batch,
            context=buckets.context,
            tokens=buckets.tokens,
            slots=buckets.slots,
            in_place=True,
        ),
        # Before caches are laid out or split: it goes by what is read from them.
        *([RollWindowCache()] if roll_window_cache else []),
    ]
    return [
        *passes,
        *(_sharding(tp, heads) if tp > 1 else []),
        *_of_target(target, "shard", quantized),
        CommonSubexpressions(),
        FuseProjections(),
        LiftWeights(),
        *_of_target(target, "weights", quantized),
        Legalize(target=target, min_rows=min_rows),
        CommonSubexpressions(),
        DeadCodeElimination(),
    ]


def _sharding(tp: int, heads: str) -> list[Pass]:
    """The passes that split a program over ``tp`` ranks."""
    return [
        LayOutHeads(tp=tp, strategy=heads),
        Shard(tp=tp, by_rows=heads == BY_ROWS),
        PadToMesh(),
        Partition(),
        *([GatherHeads()] if heads == GATHERED else []),
        MergeCollectives(),
    ]


def _of_target(name: str, phase: str, quantized: bool) -> list[Pass]:
    """The passes that the target adds to a phase; ``legalize`` refuses an unknown target."""
    if name not in target_names():
        return []
    target = find_target(name)
    texts = [target.passes.get(phase), target.quantized_passes.get(phase) if quantized else None]
    return parse_pipeline(",".join([text for text in texts if text]))
