"""Instructions like an earlier one become the op that they become when each is read for itself."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir.dtype import bf16
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo.function_reader import RepeatedInstructions
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import print_module

TEXT = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,4], y: f32[4,4]) -> (f32[4], f32[4], f32[4], f32[4,4], f32[4,4], f32[4,4]) {
  %x = f32[4,4]{1,0} parameter(0)
  %y = f32[4,4]{0,1} parameter(1)
  %zero = f32[] constant(0)
  %one = f32[] constant(1)
  %zero.2 = f32[] constant(0)
  %r.1 = f32[4] reduce(%x, %zero), dimensions={1}, to_apply=%sum
  %r.2 = f32[4] reduce(%x, %one), dimensions={1}, to_apply=%sum
  %r.3 = f32[4] reduce(%x, %zero.2), dimensions={1}, to_apply=%sum
  %twice = f32[4,4] add(%x, %x)
  %both = f32[4,4] add(%x, %twice)
  %turned = f32[4,4]{1,0} bitcast(%y)
  %same = f32[4,4]{1,0} bitcast(%x)
  %more = f32[4,4] add(%turned, %same), metadata={op_name="a/b" source_file="f.py" source_line=3}
  %less = f32[4,4] subtract(%more, %both), sharding={replicated}
  %last = f32[4,4] subtract(%more, %less), sharding={devices=[2,1]0,1}
  %again = f32[4,4] subtract(%last, %less), sharding={replicated}
  ROOT %t = (f32[4], f32[4], f32[4], f32[4,4], f32[4,4], f32[4,4]) tuple(%r.1, %r.2, %r.3, %again, \
%last, %twice)
}
"""


def each_for_itself(data: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(RepeatedInstructions, "key", lambda *_: None)
        return print_module(read_hlo(data))


def test_what_differs_in_operands_is_read_for_itself(monkeypatch: pytest.MonkeyPatch):
    data = parse_hlo_text(TEXT)
    found = print_module(read_hlo(data))
    assert found == each_for_itself(data, monkeypatch)
    # A sum from 0 needs no start, one from 1 does; a bitcast of another layout is a transpose.
    assert "%r.3 = reduce(%x)" in found
    assert "%r.2 = add(" in found
    assert "%turned = transpose(" in found
    assert "%same = reshape(" in found


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-1b"])
def test_layers_are_read_as_alone(name: str, monkeypatch: pytest.MonkeyPatch):
    module = build(known_shape(name), bf16, mini=True)
    config = CompileConfig(target="trn2", tp=2, batch=(1,), context=(16,), tokens=(32,))
    run_pipeline(module, default(config))
    for function in module.programs():
        data = emit_hlo(module, function)
        assert print_module(read_hlo(data)) == each_for_itself(data, monkeypatch)
