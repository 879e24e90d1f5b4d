"""Compilation of a user's file as it stands, in the process that :mod:`isolated_run` asks.

The bytes are read by XLA's own parsers. A file that calls functions that XLA does not
have is refused: they would be looked up by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from graphgen.eval import Array
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.given_file import HLO_TEXT, STABLEHLO, UnfitFileError
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.ops.admitted_calls import LAPACK, xla_has

Shape = tuple[int, ...]


def compiled_file(
    head: Mapping[str, object], data: bytes, arguments: Sequence[Shape]
) -> pjrt.Executable:
    """Compile a file.

    Args:
        head: of :meth:`~graphgen.lowering.cpu.given_file.GivenFile.request`, with ``ranks``.
        data: the bytes.
        arguments: sizes of each argument, of all partitions together.

    Raises:
        UnfitFileError: it calls what XLA has not, or its arguments and results are others.
        GraphgenError: GG0401 if XLA refuses it.
    """
    form, targets = str(head["form"]), set[str]()
    if form != STABLEHLO:
        proto = pjrt.hlo_of_text(data.decode()) if form == HLO_TEXT else data
        targets.update(_targets(proto))
        _check_targets(targets)
        data = pjrt.converted_hlo(proto)
    module = pjrt.read_stablehlo(data)
    targets |= module.targets
    _check_targets(targets)
    results = [tuple(sizes) for sizes in cast("list[list[int]]", head["results"])]
    if [*module.arguments] != [*arguments] or [*module.results] != results:
        raise UnfitFileError("GG0401", "its arguments and results are not single arrays")
    if targets & LAPACK:
        pjrt.initialize_lapack()
    ranks, partitions = int(str(head["ranks"])), int(str(head["partitions"]))
    return pjrt.compile_text(module.bytecode, ranks, partitions)


def _targets(proto: bytes) -> Iterator[str]:
    """The targets of the custom calls of an HLO module."""
    for computation in open_hlo(proto).computations:
        for instruction in computation.instructions():
            if instruction.text(InstructionField.OPCODE) == "custom-call":
                yield instruction.text(InstructionField.CUSTOM_CALL_TARGET)


def _check_targets(targets: set[str]) -> None:
    others = sorted(target for target in targets if not xla_has(target))
    if others:
        raise UnfitFileError(
            "GG0401", f"it calls {', '.join(others)}, which graphgen does not let XLA call"
        )


def split_arguments(
    executable: pjrt.Executable, arrays: Sequence[Array], partitions: int
) -> list[list[Array]]:
    """The part of each partition of each argument, as the compiled program has them."""
    from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding
    from graphgen.lowering.hlo_text.sharding_tiles import cut

    texts = pjrt.shardings(executable)[0] or ["{replicated}"] * len(arrays)
    return [
        cut(array, parse_sharding(text), partitions)
        for array, text in zip(arrays, texts, strict=True)
    ]


def joined_results(
    executable: pjrt.Executable, made: Sequence[Array], head: Mapping[str, object]
) -> list[Array]:
    """The results of all partitions together, of parts one result after the other."""
    from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding
    from graphgen.lowering.hlo_text.sharding_tiles import joined

    partitions = int(str(head["partitions"]))
    shapes = cast("list[list[int]]", head["results"])
    texts = pjrt.shardings(executable)[1] or ["{replicated}"] * len(shapes)
    parts = [made[at : at + partitions] for at in range(0, len(made), partitions)]
    return [
        joined(own, parse_sharding(text), sizes)
        for own, text, sizes in zip(parts, texts, shapes, strict=True)
    ]
