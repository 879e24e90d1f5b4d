"""A program in the bytes of a user's file, which XLA compiles as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import TensorType

STABLEHLO, HLO, HLO_TEXT = "StableHLO", "HLO protobuf", "HLO text"


class UnfitFileError(GraphgenError):
    """XLA is not given a file as it stands; the program is written again instead."""


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A program of a user as XLA takes it.

    Attributes:
        data: StableHLO as text or bytecode, an HloModuleProto, or HLO text.
        form: :data:`STABLEHLO`, :data:`HLO` or :data:`HLO_TEXT`.
        partitions: among which XLA's partitioner splits it; 1 for a program of replicas.
        results: the type of each result, of all partitions together.
    """

    data: bytes
    form: str
    partitions: int = 1
    results: tuple[TensorType, ...] = ()

    def request(self) -> tuple[Mapping[str, object], bytes]:
        """The message to the child process, and the bytes that it compiles."""
        shapes = [list(type_.dims) for type_ in self.results]
        head = {"form": self.form, "partitions": self.partitions, "results": shapes}
        return head, self.data

    def whole(self, columns: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The arrays of each argument that the child is given: one where it splits them.

        Raises:
            UnfitFileError: ranks have different arrays of all partitions.
        """
        if self.partitions == 1:
            return [list(column) for column in columns]
        for first, *others in columns:
            if any(other.tobytes() != first.tobytes() for other in others):
                raise UnfitFileError("GG0401", "ranks are given different whole arrays")
        return [[column[0]] for column in columns]
