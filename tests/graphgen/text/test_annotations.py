"""Annotations: what a file says of a value, printed, parsed, copied and compared."""

from __future__ import annotations

from graphgen.analysis import fingerprint
from graphgen.ir.clone import clone_module
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical {
  meta hlo.num_partitions = "2"
  input %a : f32[4]
  output %d : f32[4]
}

func @main phase=main hlo.root.sharding="{{replicated}}" {
  arg %a : f32[4] hlo.sharding="{devices=[2]<=[2]}" hlo.field_61="ea0100"
  %b = negate(%a) hlo.frontend_attributes="{a=\\"x\\u0020y\\"}" : f32[4]
  %c = negate(%a) : f32[4]
  %d = add(%b, %c) : f32[4]
  return d = %d
}
"""


def test_annotations_print_and_parse():
    module = parse(TEXT)
    assert print_module(module) == TEXT
    main = module.function("main")
    assert main.args[0].annotations["hlo.sharding"] == "{devices=[2]<=[2]}"
    first = main.block.first
    assert first is not None
    assert dict(first.annotations) == {"hlo.frontend_attributes": '{a="x y"}'}
    assert print_module(clone_module(module)) == TEXT


def test_annotations_tell_values_apart():
    module, other = parse(TEXT), parse(TEXT.replace("[2]<=[2]", "[2]1,0"))
    assert fingerprint(module) != fingerprint(other)
    run_pipeline(module, parse_pipeline("cse"))
    assert print_module(module) == TEXT
