"""Buffers that are computed from a schedule, beside those that XLA assigned."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.xla_dump.assign_buffers import Lives
from graphgen.lowering.xla_dump.memory_texts import proto_allocations
from graphgen.lowering.xla_dump.memory_use import MemoryUse, memory_of, to_fit
from graphgen.lowering.xla_dump.schedule_values import LiveValue
from tests.oracles import xla_programs


@pytest.mark.parametrize("name", xla_programs.PROGRAMS)
def test_bytes_are_those_that_xla_assigns(name: str):
    module, both = xla_programs.compiled(name)
    wanted = sum([item.nbytes for item in proto_allocations(both)])
    assert wanted > 1000
    assert memory_of(module).reserved == pytest.approx(wanted, rel=0.01)


def memory(body: str, head: str = "", before: str = "") -> MemoryUse:
    text = f"HloModule m, is_scheduled=true{head}\n{before}ENTRY e {{\n{body}\n}}\n"
    return memory_of(parse_hlo_text(text))


CHAIN = """a = f32[256] parameter(0)
b = f32[256] reverse(a), dimensions={0}
c = f32[256] reverse(b), dimensions={0}
d = f32[256] reverse(c), dimensions={0}
ROOT e = f32[256] reverse(d), dimensions={0}"""


def test_what_does_not_live_at_once_shares_a_buffer():
    found = memory(CHAIN)
    # The output's buffer holds b before; c and d meet, and d meets the output.
    assert found.by_kind == {"parameter": 1024, "output": 1024, "temp": 2048}
    assert found.live == [1024, 2048, 3072, 3072, 3072]


def test_an_elementwise_op_writes_over_what_dies():
    found = memory(CHAIN.replace("reverse", "negate").replace(", dimensions={0}", ""))
    assert found.by_kind == {"parameter": 1024, "output": 1024}


def test_a_donated_buffer_is_the_output():
    found = memory(
        "a = f32[256] parameter(0)\nROOT e = f32[256] negate(a)",
        ", input_output_alias={ {}: (0, {}, may-alias) }",
    )
    assert (found.reserved, found.donated) == (1024, [("a", 1024)])


LOOP = """body {
  s = (f32[256], f32[256]) parameter(0)
  x = f32[256] get-tuple-element(s), index=0
  w = f32[256] get-tuple-element(s), index=1
  y = f32[256] add(x, w)
  ROOT t = (f32[256], f32[256]) tuple(y, w)
}
cond {
  s = (f32[256], f32[256]) parameter(0)
  ROOT p = pred[] constant(false)
}
"""


def test_the_state_of_a_loop_has_one_buffer():
    found = memory(
        "a = f32[256] parameter(0)\nw = f32[256] parameter(1)\nc = f32[256] copy(a)\n"
        "i = (f32[256], f32[256]) tuple(c, w)\nl = (f32[256], f32[256]) while(i), "
        "condition=cond, body=body\nROOT r = f32[256] get-tuple-element(l), index=0",
        before=LOOP,
    )
    names = {buffer.name: buffer for buffer in found.buffers}
    assert found.by_kind["parameter"] == 2048
    assert found.by_kind["output"] == 1024
    # What the body hands on as it is stays the parameter.
    assert "s{1}" not in names
    assert names["c"].kind == "output"


def test_tiles_are_padded():
    found = memory("a = f32[10,100]{1,0:T(8,128)} parameter(0)\nROOT b = negate(a)")
    assert found.by_kind["parameter"] == 16 * 128 * 4
    assert [b.padding for b in found.buffers if b.kind == "parameter"] == [8192 - 4000]


def test_what_has_to_go_so_that_the_rest_fits():
    found = memory(CHAIN)
    gone, left = to_fit(found, 2100)
    assert ([buffer.name for buffer in gone], left) == (["c", "d"], 2048)
    assert to_fit(found, 4096) == ([], 3072)
    gone, left = to_fit(found, 0)
    assert left == 0
    assert gone[-1].kind == "parameter"


def test_an_array_that_fits_into_no_memory_is_refused():
    with pytest.raises(GraphgenError, match="has 4611686018427387904 bytes"):
        memory("a = f32[1073741824,1073741824] parameter(0)\nROOT b = copy(a)")


def test_a_computation_may_be_called_twice():
    called = "c { p = f32[256] parameter(0)\nROOT q = f32[256] reverse(p), dimensions={0} }\n"
    called += "d { p = f32[256] parameter(0)\nROOT q = f32[256] call(p), to_apply=c }\n"
    body = "a = f32[256] parameter(0)\nb = f32[256] call(a), to_apply=c\n"
    body += "ROOT e = f32[256] call(b), to_apply=d"
    found = memory(body, before=called)
    assert found.instructions == ["a", "p", "q", "b", "p.1", "p", "q", "q.1", "e"]
    assert found.by_kind == {"parameter": 1024, "output": 1024, "temp": 1024}


def test_a_computation_that_calls_itself_is_refused():
    text = "HloModule m\nc { p = f32[4] parameter(0)\nROOT q = f32[4] negate(p) }\n"
    text += "ENTRY e { a = f32[4] parameter(0)\nROOT b = f32[4] call(a), to_apply=c }\n"
    proto = parse_hlo_text(text)
    own = Message(proto).integer(ModuleField.ENTRY_ID)
    (callee,) = {item.integer(ComputationField.ID) for item in Message(proto).messages(3)} - {own}
    called = wire.integers(InstructionField.CALLED_IDS, [callee])
    assert proto.count(called) == 1
    with pytest.raises(GraphgenError, match="calls itself"):
        memory_of(proto.replace(called, wire.integers(InstructionField.CALLED_IDS, [own])))


class _Lived:
    """A value that lives from one time to another."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


@given(
    lives=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300)), max_size=60),
    other=st.tuples(st.integers(0, 400), st.integers(0, 300)),
)
def test_a_search_finds_the_values_that_live_at_the_same_time(
    lives: list[tuple[int, int]], other: tuple[int, int]
):
    values = [cast("LiveValue", _Lived(start, start + span)) for start, span in lives]
    asked = cast("LiveValue", _Lived(other[0], sum(other)))
    wanted = {id(v) for v in values if v.start <= asked.end and asked.start <= v.end}
    found = [id(value) for value in Lives(values).meeting(asked)]
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_a_search_reads_few_of_many_values():
    class Counted(_Lived):
        reads = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "start":
                Counted.reads += 1
            return object.__getattribute__(self, name)

    values = [cast("LiveValue", Counted(start, start + 1 + start % 3)) for start in range(20_000)]
    lives, Counted.reads = Lives(values), 0
    assert len(list(lives.meeting(cast("LiveValue", _Lived(10_000, 10_001))))) < 8
    assert Counted.reads < 40
