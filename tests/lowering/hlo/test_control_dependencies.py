"""Control dependencies: read, shown, compared as the ops they are of, and written again."""

from __future__ import annotations

import re

import pytest

from graphgen.analysis.annotation_diff import control_edges
from graphgen.analysis.overview import overview
from graphgen.errors import GraphgenError
from graphgen.ir import Module, attrs_of
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.passes.core.pipeline import run_pipeline
from graphgen.passes.inspect.normalize import normalized
from graphgen.passes.pipelines import parse as parse_pipeline
from graphgen.report.diff import diff_functions
from graphgen.report.program_text import program_text
from graphgen.text import parse, print_module

ORDERED = """HloModule ordered

ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] sine(x)
  b = f32[4] cosine(x), control-predecessors={a}
  t = token[] after-all()
  o = token[] outfeed(x, t), outfeed_shape=f32[4], control-predecessors={b}
  s = (f32[4], s32[4]) custom-call(x), custom_call_target="two", control-predecessors={o, a}
  e = f32[4] get-tuple-element(s), index=0
  c = f32[4] add(a, b), control-predecessors={s}
  ROOT d = f32[4] add(c, e)
}
"""


def read(text: str) -> Module:
    return read_hlo(parse_hlo_text(text))


def written(module: Module) -> str:
    return print_hlo_text(emit_hlo(module, module.programs()[0]))


def edges(module: Module) -> list[tuple[str | None, str | None]]:
    found = control_edges(module.programs()[0])
    return [(one.results[0].name, other.results[0].name) for one, other in found]


def differences(left: Module, right: Module) -> list[str]:
    found = diff_functions((left, right), left.programs()[0], right.programs()[0])
    assert not found.changes
    return found.interface


EDGES = [("a", "b"), ("b", "o"), ("o", "e"), ("a", "e"), ("e", "c")]


def test_they_are_read_written_and_kept_by_ir_text():
    module = read(ORDERED)
    assert edges(module) == EDGES
    assert "dropped" not in module.meta
    assert edges(parse(print_module(module))) == EDGES
    text = written(module)
    waits = re.findall(r"%(\S+) = .*control-predecessors=\{(.*?)\}", text)
    # The custom call itself, not an element of what it gives.
    call = "e.custom-call"
    assert waits == [("b", "%a"), ("o", "%b"), (call, "%o, %a"), ("c", f"%{call}")]
    assert edges(read(text)) == EDGES
    assert differences(module, read(text)) == []


def test_they_are_shown():
    module = read(ORDERED)
    text = str(program_text(overview(module, module.programs()[0]), {}))
    assert "ordered     5 control dependencies: %a before %b, %b before %o, " in text


@pytest.mark.parametrize(
    ("old", "what"),
    [
        (", control-predecessors={b}", "%b before %o"),
        (", control-predecessors={s}", "%e before %c"),
        (", control-predecessors={o, a}", "%o before %e"),
    ],
)
def test_they_are_compared(old: str, what: str):
    module, other = read(ORDERED), read(ORDERED.replace(old, ""))
    assert f"control dependency: {what} is in the first only" in differences(module, other)
    assert f"control dependency: {what} is in the second only" in differences(other, module)


def test_names_make_no_difference():
    renamed = re.sub(r"\b([a-eot])\b(?=[ ,})])", r"v_\1", ORDERED)
    assert "v_a = f32[4] sine" in renamed
    assert differences(read(ORDERED), read(renamed)) == []


def test_normalized_modules_have_them():
    module = normalized(read(ORDERED))
    assert len(edges(module)) == 5
    assert differences(read(ORDERED), read(written(module))) == []


def test_an_op_that_is_gone_is_waited_for_no_more():
    # No output needs it.
    text = ORDERED.replace("add(a, b)", "add(x, b)").replace(", control-predecessors={a}", "")
    module = read(text)
    run_pipeline(module, parse_pipeline("dce"))
    assert [op.name for op in module.programs()[0].ops].count("sine") == 0
    assert edges(module) == [("b", "o"), ("o", "e"), ("e", "c")]
    assert " sine(" not in written(module)


def test_what_cannot_be_written_is_refused():
    module = read(ORDERED)
    with pytest.raises(GraphgenError, match=r"no words for hlo\.control_predecessors"):
        emit_stablehlo(module, module.programs()[0])
    function = module.programs()[0]
    first = next(op for op in function.ops if op.name == "sine")
    first.annotations = attrs_of({"hlo.control_predecessors": "%c"})
    with pytest.raises(GraphgenError, match="%a comes before %c, which it follows"):
        emit_hlo(module, function)


def test_those_of_tuples_are_counted():
    text = ORDERED.replace("ROOT d = f32[4] add(c, e)", "ROOT d = (f32[4]) tuple(c)")
    text = text.replace("tuple(c)", "tuple(c), control-predecessors={a}")
    assert read(text).meta["dropped"] == "control dependencies of tuples (1)"
