"""Summaries of HLO files, of any size."""

from __future__ import annotations

import mmap
import tracemalloc
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo.hlo_summary import HloParameter, bytes_of, summarize_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    InstructionField,
    LiteralField,
    ModuleField,
)
from graphgen.lowering.hlo_proto.shape import HloShape, write_shape
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from tests.lowering.hlo.test_text import ATTRIBUTES, NEURON


def test_the_summary_of_a_module():
    found = summarize_hlo(parse_hlo_text(NEURON))
    assert (found.name, found.entry) == ("SyncTensorsGraph.30", "SyncTensorsGraph.30")
    assert found.computations == 2
    assert found.opcodes == {
        "parameter": 5, "add": 2, "constant": 1, "reduce": 1, "all-reduce": 1, "broadcast": 1,
        "tuple": 1,
    }  # fmt: skip
    assert found.parameters == (
        HloParameter("p0.1", "f32[2,3]{1,0}", 24, aliased=False),
        HloParameter("p1.2", "s64[]", 8, aliased=False),
        HloParameter("p2.3", "f32[2,3]{1,0}", 24, aliased=True),
    )
    assert found.outputs == ("f32[2,3]{1,0}", "f32[2,3]{1,0}")
    assert found.collectives == {"all-reduce of 2": 1}
    assert found.constant_bytes == 4
    assert found.highest_id == 12


@pytest.mark.parametrize(
    ("element", "dims", "size"),
    [("token", (), 0), ("opaque", (), 0), ("c128", (3,), 48), ("s4", (3,), 2), ("f32", (2, 3), 24)],
)
def test_bytes_of_a_shape(element: str, dims: tuple[int, ...], size: int):
    assert bytes_of(HloShape(element, dims)) == size


def test_what_the_ir_has_no_op_for_is_counted_too():
    found = summarize_hlo(parse_hlo_text(ATTRIBUTES))
    assert found.custom_calls == {"AwsNeuronSilu": 1}
    assert found.opcodes["while"] == found.opcodes["sort"] == found.opcodes["convolution"] == 1


GIB = 1 << 30


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """A module with a constant of one GiB, whose elements are a hole in the file."""
    shape = wire.delimited(InstructionField.SHAPE, write_shape(HloShape("f32", (GIB // 4,))))
    front = wire.text(InstructionField.NAME, "c") + wire.text(InstructionField.OPCODE, "constant")
    literal = wire.delimited(LiteralField.SHAPE, write_shape(HloShape("f32", (GIB // 4,))))
    literal += wire.head(8, GIB)
    front += shape + wire.head(InstructionField.LITERAL, len(literal) + GIB) + literal
    behind = wire.integer(InstructionField.ID, 1)
    body = wire.head(ComputationField.INSTRUCTIONS, len(front) + GIB + len(behind)) + front
    tail = behind + wire.integer(ComputationField.ID, 1) + wire.integer(ComputationField.ROOT_ID, 1)
    name = wire.text(ComputationField.NAME, "main")
    whole = wire.text(ModuleField.NAME, "huge")
    whole += wire.head(ModuleField.COMPUTATIONS, len(name) + len(body) + GIB + len(tail))
    file = tmp_path / "huge.pb"
    with file.open("wb") as opened:
        opened.write(whole + name + body)
        opened.seek(GIB, 1)
        opened.write(tail + wire.integer(ModuleField.ENTRY_ID, 1))
    return file


def test_a_gibibyte_is_summarized_without_being_read(huge: Path):
    with huge.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        tracemalloc.start()
        found = summarize_hlo(mapped)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found.constant_bytes == GIB
    assert found.largest == (("c", GIB),)
    assert peak < 1 << 20


def test_a_gibibyte_of_constants_stays_in_the_file(huge: Path):
    with huge.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tracemalloc.start()
        module = read_hlo(mapped)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert module.op_count() == 1
    assert peak < 1 << 20


def test_damage_is_refused():
    with pytest.raises(GraphgenError) as caught:
        summarize_hlo(parse_hlo_text(NEURON)[:-30])
    assert caught.value.code == "GG0801"
