"""A state whose heads are laid out: programs keep it so, and the interface says how to go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Entry, Function, Module, TensorType, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.passes.core import Rewriter
from graphgen.passes.core.packing import repack
from graphgen.passes.heads.takes import Move, Takes


@dataclass(slots=True)
class States:
    """Changes states, each in all programs at once.

    Attributes:
        module: changed in place.
        rewriter: on whose behalf.
        takes: those of each program.
        labels: names of layouts, which go into the names of pack functions.
    """

    module: Module
    rewriter: Rewriter
    takes: Mapping[Function, Takes]
    labels: dict[Move, str] = field(default_factory=dict[Move, str])

    def lay_out(self, row: Entry, move: Move) -> None:
        """Keep the state ``row`` as what ``move`` makes of it."""
        size = row.physical.shape[move.dim]
        assert isinstance(size, int)
        back = move.back(size // move.block)
        with self.rewriter.joined():
            for function, takes in self.takes.items():
                cache = function.arg(row.name)
                if cache is not None:
                    self._program(function, takes, cache, move, back)

        def pack(b: Builder, part: Value, rank: Value) -> Value:
            return b.take(part, b.literal(list(move.blocks), s32), move.dim, move.block)

        def unpack(b: Builder, parts: Value) -> Value:
            return b.take(parts, b.literal(list(back.blocks), s32), back.dim + 1, back.block)

        physical = _moved(row.physical, move)
        repack(self.module, row, physical, self._label(move), (pack, unpack))
        self.rewriter.note(None, f"lay out {row.name}")

    def _program(
        self, function: Function, takes: Takes, cache: Value, move: Move, back: Move
    ) -> None:
        """The argument and the output change; what reads the model's heads takes them out."""
        name, readers, outputs = cache.name or "", list(cache.users), function.outputs
        updated = outputs.get(name)
        assert updated is not None
        cache.type = _moved(cache.type, move)
        for op in list(readers):
            if op.name == "take" and Move.of(op) == move:
                self.rewriter.replace(function, op, [cache])
                readers.remove(op)
        takes.became(cache, move, cache)
        if readers or outputs.returns(cache):
            whole = takes.take(cache, back)
            takes.became(whole, move, cache)
            for op in readers:
                op.set_operands(tuple([whole if v is cache else v for v in op.operands]))
            outputs.replace(cache, whole)
        outputs.set(name, cache if updated is cache else takes.take(updated, move))

    def _label(self, move: Move) -> str:
        """``heads8``; with a number where two layouts have as many heads."""
        found = self.labels.get(move)
        if found is None:
            base = f"heads{len(move.blocks)}"
            same = sum(label.split(".")[0] == base for label in self.labels.values())
            found = self.labels[move] = f"{base}.{same + 1}" if same else base
        return found


def _moved(type_: TensorType, move: Move) -> TensorType:
    shape = list(type_.shape)
    shape[move.dim] = len(move.blocks) * move.block
    return tensor(type_.dtype, shape)
