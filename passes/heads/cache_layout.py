"""Change the layout of caches to the assigned heads, with pack and unpack functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Entry, Function, Module, TensorType, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.passes.core import Rewriter
from graphgen.passes.heads.head_gather import GatherEmitter, HeadGather
from graphgen.passes.weights.layout_change import repack


@dataclass(slots=True)
class CacheLayouts:
    """Changes the layout of a state in all programs at once.

    Attributes:
        module: changed in place.
        rewriter: records the rewrites.
        emitters: emits the gathers, per program.
        labels: names of layouts, used in the names of pack functions.
    """

    module: Module
    rewriter: Rewriter
    emitters: Mapping[Function, GatherEmitter]
    labels: dict[HeadGather, str] = field(default_factory=dict[HeadGather, str])

    def assign(self, row: Entry, gather: HeadGather) -> None:
        """Store the state ``row`` gathered."""
        size = row.physical.shape[gather.dim]
        assert isinstance(size, int)
        inverse = gather.inverse(size // gather.block)
        with self.rewriter.joined():
            for function, emitter in self.emitters.items():
                cache = function.arg(row.name)
                if cache is not None:
                    self._program(function, emitter, cache, gather, inverse)

        def pack(b: Builder, part: Value, rank: Value) -> Value:
            return b.take(part, b.literal(list(gather.blocks), s32), gather.dim, gather.block)

        def unpack(b: Builder, parts: Value) -> Value:
            return b.take(
                parts, b.literal(list(inverse.blocks), s32), inverse.dim + 1, inverse.block
            )

        physical = _gathered_type(row.physical, gather)
        repack(self.module, row, physical, self._label(gather), (pack, unpack))
        self.rewriter.note(None, f"lay out {row.name}")

    def _program(
        self,
        function: Function,
        emitter: GatherEmitter,
        cache: Value,
        gather: HeadGather,
        inverse: HeadGather,
    ) -> None:
        """Change the argument and the output; other users gather the model's heads."""
        name, readers, outputs = cache.name or "", list(cache.users), function.outputs
        updated = outputs.get(name)
        assert updated is not None
        cache.type = _gathered_type(cache.type, gather)
        for op in list(readers):
            if op.name == "take" and HeadGather.of(op) == gather:
                self.rewriter.replace(function, op, [cache])
                readers.remove(op)
        emitter.rebind(cache, gather, cache)
        if readers or outputs.returns(cache):
            whole = emitter.emit(cache, inverse)
            emitter.rebind(whole, gather, cache)
            for op in readers:
                op.set_operands(tuple([whole if v is cache else v for v in op.operands]))
            outputs.replace(cache, whole)
        outputs.set(name, cache if updated is cache else emitter.emit(updated, gather))

    def _label(self, gather: HeadGather) -> str:
        """``heads8``; numbered if two layouts have the same number of heads."""
        found = self.labels.get(gather)
        if found is None:
            base = f"heads{len(gather.blocks)}"
            same = sum(label.split(".")[0] == base for label in self.labels.values())
            found = self.labels[gather] = f"{base}.{same + 1}" if same else base
        return found


def _gathered_type(type_: TensorType, gather: HeadGather) -> TensorType:
    shape = list(type_.shape)
    shape[gather.dim] = len(gather.blocks) * gather.block
    return tensor(type_.dtype, shape)
