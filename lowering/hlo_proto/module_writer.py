"""Collects the computations of an HloModuleProto: unique ids, unique names, one list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphgen.ir.names import claim_name
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField
from graphgen.lowering.hlo_proto.instruction import Chunk, instruction
from graphgen.lowering.hlo_proto.shape import HloShape

# XLA replaces any other letter, and may then have two instructions of one name.
LEGAL_NAME = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)


class HloModuleWriter:
    """State shared by the computations of one module.

    Args:
        metadata: write op types, op names and source lines of instructions.

    Attributes:
        computations: the finished ones, callees first, each in pieces.
        last_id: the highest id of an instruction.
        taken: names of instructions and computations.
        order: the ids of the instructions of each computation, by its id.
    """

    def __init__(self, *, metadata: bool = True) -> None:
        self._metadata = metadata
        self.computations: list[list[Chunk]] = []
        self.last_id = 0
        self.taken: set[str] = set()
        self.order: dict[int, list[int]] = {}
        self._open: dict[int, list[int]] = {}

    def next_id(self, body: list[Chunk]) -> int:
        """An id no instruction of the module has yet, for the next one of ``body``."""
        self.last_id += 1
        self._open.setdefault(id(body), []).append(self.last_id)
        return self.last_id

    def add(
        self,
        body: list[Chunk],
        name: str,
        code: str,
        shape: HloShape,
        fields: Sequence[Chunk] = (),
        operands: Sequence[int] = (),
        called: Sequence[int] = (),
        more: bytes = b"",
        metadata: bytes | None = None,
    ) -> int:
        """Append an instruction to ``body``, see :func:`~.instruction.instruction`; its id."""
        number = self.next_id(body)
        metadata = metadata if self._metadata else b""
        body += instruction(name, code, shape, number, fields, operands, called, more, metadata)
        return number

    def fresh(self, name: str) -> str:
        """``name`` in letters XLA takes, with a number where it is taken; taken from now on."""
        if not LEGAL_NAME.fullmatch(name):
            name = re.sub(r"[^\w.\-]", "_", name, flags=re.ASCII)
            name = name if LEGAL_NAME.fullmatch(name) else f"_{name}"
        return claim_name(name, self.taken)

    def finish(self, name: str, body: list[Chunk], shape: bytes, root: int) -> int:
        """Append a computation; its id.

        Args:
            name: unique in the module.
            body: its instructions.
            shape: its ProgramShapeProto.
            root: the id of its root.
        """
        number = len(self.computations) + 1
        self.order[number] = self._open.pop(id(body), [])
        tail = [
            wire.delimited(ComputationField.PROGRAM_SHAPE, shape),
            wire.integer(ComputationField.ID, number),
            wire.integer(ComputationField.ROOT_ID, root),
        ]
        self.computations.append([wire.text(ComputationField.NAME, name), *body, *tail])
        return number
