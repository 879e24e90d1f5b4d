"""Ops that an op is lowered to, built once for each kind of op; layers repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.clone import Cloner


@dataclass(frozen=True, slots=True)
class OpKind:
    """The ops that an op is lowered to, but for the values that they read.

    Attributes:
        key: equal for ops that are lowered alike.
        reads: the values of the program that are read, in the order of the key.
    """

    key: tuple[object, ...]
    reads: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class OpTemplates:
    """Ops of one function, built for the first op of a kind and copied for the others."""

    _made: dict[object, _Template] = field(default_factory=dict[object, "_Template"])

    def place(
        self, b: Builder, op: Op, kind: OpKind, build: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        """The values that replace the results of ``op``.

        Args:
            b: inserts before ``op``.
            op: what is lowered.
            kind: of the op.
            build: builds the ops with ``b``. They read ``kind.reads`` and each other alone.
        """
        found = self._made.get(kind.key)
        if found is not None:
            return found.copy(b, kind.reads)
        before = op.prev
        results = build()
        made = before.next if before is not None else b.function.block.first
        ops: list[Op] = []
        while made is not None and made is not op:
            ops.append(made)
            made = made.next
        self._made[kind.key] = _Template(kind.reads, ops, results)
        return results


@dataclass(frozen=True, slots=True)
class _Template:
    """The ops that one op became.

    Attributes:
        reads: the values that they read.
        ops: in order.
        results: in the place of those of the op.
    """

    reads: Sequence[Value]
    ops: Sequence[Op]
    results: Sequence[Value]

    def copy(self, b: Builder, reads: Sequence[Value]) -> Sequence[Value]:
        """The results for an op of the same kind that reads these values."""
        cloner = Cloner(
            dict(zip(self.reads, reads, strict=True)), at=b.loc, names=False, shardings=False
        )
        copies = [cloner.op(op, b.function.block, b.before) for op in self.ops]
        if b.made is not None:
            b.made += copies
        return [cloner.mapping[value] for value in self.results]
