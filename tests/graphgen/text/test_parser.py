"""IR text: what is printed is read back, and what cannot be read is shown with line and column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, Module, dtype, loc, parse_dim
from graphgen.ir.dtype import DTYPES
from graphgen.models import build, known_shape
from graphgen.ops import attr_types, verify
from graphgen.ops.opdef import attr
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_function, print_module
from graphgen.text.grammar import format_attr, format_literal, parse_attr, parse_literal
from tests.oracles.minis import MINI_RANKS

BUCKETS = CompileConfig(batch=(1, 2), context=(8,), tokens=(8, 16))


def check(module: Module) -> None:
    text = print_module(module)
    read = parse(text)
    assert print_module(read) == text
    assert print_module(read, locs=False) == print_module(module, locs=False)
    verify(read)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "tp"), MINI_RANKS)
@pytest.mark.one_in(59)
def test_models_are_read_back_at_every_stage(name: str, tp: int, kind: str):
    # SmolLM2's three KV heads do not divide; its mini twin has two.
    module = build(known_shape(name), dtype(kind), mini=True)
    check(module)
    stages: list[str] = []

    def after(item: Pass, module: Module) -> None:
        stages.append(item.name)
        check(module)

    run_pipeline(module, default(replace(BUCKETS, tp=tp)), after=after)
    assert stages[-1] == "dce"
    assert ("partition" in stages) == (tp > 1)


def test_a_full_model_is_read_back():
    check(build(known_shape("llama-3.1-8b"), dtype("bf16")))


def test_every_piece_of_the_grammar():
    text = """\
module @m level=sharded mesh=tp:2,dp:3 {
  meta note = "a \\"quoted\\" text # not a comment"
  input %x : f32[B,S]
  weight %layers.0.w-1 : bf16[4,4] sharding={tp,-}
  param %w.prepared : bf16[2,4]
  state %k : bf16[2,8,2,4] as u16[2,8,1,4] pack=@pack.k unpack=@unpack.k sharding={-,-,tp,-}
  output %y : f32[2*B*S+1]
}

func @pack.k {
  arg %whole : bf16[2,8,2,4]
  return part = %whole
}

func @decode.b1 phase=decode dims={S=1,B=2*M} {
  arg %x : f32[B,1]{-,-}
  arg %p : s32[B,1]
  %c = constant() value=f32[2](1.0,-inf) : f32[2]
  %n = constant() value=f32[](0x0000c07f) : f32[]
  %cos, %sin = rope_table(%p) inv_freq=f32[2](1.0,0.1) scale=0.5 : f32[B,1,2], f32[B,1,2]{-,-,tp}
  %0 = exponential(%cos) : f32[B,1,2]{-,-,-+tp}  # graphgen/nn/rope.py:12 model.norm via partition,dce
  %1 = all_reduce(%0) kind=add replica_groups=[[0,1],[2,3],[4,5]] : f32[B,1,2]  # a.py:3
  %2 = sine(%1) : f32[B,1,2]  # a.py:3 via dce
  %y = reshape(%2) shape=[2*B] : f32[2*B]  # a.py:0 top
  return y = %y
  return again = %y
}
"""  # noqa: E501
    module = parse(text)
    assert print_module(module) == text
    assert module.mesh == {"tp": 2, "dp": 3}
    assert module.meta == {"note": 'a "quoted" text # not a comment'}
    function = module.function("decode.b1")
    assert (function.phase, function.dims) == ("decode", {"S": 1, "B": parse_dim("2*M")})
    exponential = next(op for op in function.ops if op.name == "exponential")
    assert exponential.loc is loc("graphgen/nn/rope.py", 12, "model.norm", ("partition", "dce"))
    assert [v.name for v in function.args] == ["x", "p"]
    assert module.interface["k"].physical.text == "u16[2,8,1,4]"


def test_blank_lines_and_comment_lines_are_skipped():
    text = "# a file\n\nmodule @m level=logical {\n\n  input %x : f32[2]\n# note\n}\n\n\n"
    text += "func @f {\n  arg %x : f32[2]\n\n# more\n  return y = %x   \n}"
    module = parse(text)
    assert print_module(parse(print_module(module))) == print_module(module)
    assert [name for name, _ in module.function("f").outputs] == ["y"]


def test_names_are_kept_and_made_unique():
    text = "module @m level=logical {\n}\nfunc @f {\n  arg %x : f32[2]\n"
    text += "  %7 = negate(%x) : f32[2]\n  %y = negate(%7) : f32[2]\n  return y = %y\n}\n"
    function = parse(text).function("f")
    # A second value of the same name is numbered; numbers are given anew.
    op = next(op for op in function.ops if op.result.name is None)
    op.result.name = "y"
    assert print_function(function) == (
        "func @f {\n  arg %x : f32[2]\n  %y = negate(%x) : f32[2]\n"
        "  %0 = negate(%y) : f32[2]\n  return y = %0\n}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "f32[](0.5)", "f32[](0.1)", "f32[](1e+20)", "f32[](-inf)", "f32[](16777216.0)",
        "f32[2](1.0,-0.0)", "f32[0]()", "f32[2,0]()", "s32[2](-1,2147483647)",
        "pred[2](true,false)", "bf16[](3.38953e+38)", "f64[](0.1)", "f16[](65504.0)",
        "f32[](0x0000c07f)", "u64[](18446744073709551615)", "f32[](1.1754944e-38)",
        "f32[](1.4013e-45)", "bf16[](0.200195)", "s4[2](-8,7)", "u4[](15)", "f8e4m3fn[](448.0)",
        "f8e5m2[2](inf,0.0625)", "f8e4m3[](-240.0)", "c64[1]((1.0,2.0))",
        "c64[]((-0.0,0.1))", "c128[2]((1.0,inf),(1e-300,-0.1))", "c64[1](0x0000c07f00000040)",
        "s2[2](-2,1)", "u2[1](3)", "f4e2m1fn[2](-6.0,0.5)", "f6e2m3fn[](7.5)", "f6e3m2fn[](28.0)",
        "f8e3m4[2](inf,15.5)", "f8e4m3fnuz[](240.0)", "f8e5m2fnuz[](-57344.0)",
        "f8e4m3b11fnuz[](30.0)", "f8e8m0fnu[](0.25)", "f8e8m0fnu[1](0xff)", "c64[0]()",
    ],
)  # fmt: skip
def test_literals_are_read_back(text: str):
    literal = parse_literal(text)
    assert format_literal(literal) == text
    assert parse_literal(format_literal(literal)) == literal


@pytest.mark.parametrize("kind", DTYPES.values(), ids=str)
def test_long_literals_are_bytes(kind: DType):
    literal = Literal(kind, (65,), bytes(range(65)) * kind.bytes)
    text = format_literal(literal)
    assert text.startswith(f"{kind}[65](0x")
    assert parse_literal(text) == literal


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "-3"),
        ("integers", "[0,1,2]"),
        ("integers", "[]"),
        ("number", "1e-05"),
        ("number", "inf"),
        ("dim", "2*B+1"),
        ("dims", "[B,4,-C+S]"),
        ("element", "bf16"),
        ("groups", "[[0,1],[2,3]]"),
        ("boolean", "true"),
        ("boolean", "false"),
        ("text", "in_place"),
        ("literal", "f32[2](1.0,2.0)"),
    ],
)
def test_attribute_values_are_read_back(kind: str, text: str):
    assert format_attr(parse_attr(attr("a", getattr(attr_types, kind.upper())), text)) == text


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("integer", "1.5", "GG0201"),
        ("integers", "0,1", "GG0201"),
        ("integers", "[B]", "GG0201"),
        ("number", "x", "GG0201"),
        ("dim", "2B", "GG0102"),
        ("dims", "[0", "GG0201"),
        ("element", "float", "GG0101"),
        ("groups", "[0,1]", "GG0201"),
        ("boolean", "yes", "GG0201"),
        ("literal", "f32(1.0)", "GG0201"),
        ("literal", "f32[2](1.0)", "GG0201"),
        ("literal", "f32[](0xzz)", "GG0201"),
        ("literal", "f32[](0x00)", "GG0201"),
        ("literal", "s32[](0.5)", "GG0201"),
        ("literal", "f99[](0.5)", "GG0101"),
        ("literal", "u8[](256)", "GG0104"),
    ],
)
def test_attribute_values_that_make_no_sense_are_refused(kind: str, text: str, code: str):
    with pytest.raises(GraphgenError) as caught:
        parse_attr(attr("a", getattr(attr_types, kind.upper())), text)
    assert caught.value.code == code


HEAD = "module @m level=logical {\n}\n\nfunc @f {\n  arg %x : f32[2,3]\n  arg %xy : f32[4]\n"
# What is wrong in one line of a function that is otherwise fine, or a whole text.
LINES = {
    "syntax": "  %y is add(%x, %x)",
    "no indentation": "%y = negate(%x) : f32[2,3]",
    "undefined value": "  %x.y = add(%x, %x.z) : f32[2,3]",
    "undefined value, a part of another name": "  %x.y.z = add(%x, %x.y) : f32[2,3]",
    "operand at fault, its name in the result's": "  %xy.1 = add(%x, %xy) : f32[2,3]",
    "operand at fault, given twice": "  %r = select(%x, %x, %x) : f32[2,3]",
    "operand at fault, the third": "  %r = concatenate(%x, %x, %xy) dimension=0 : f32[8,3]",
    "attributes at fault": "  %reduce = reduce(%x) dimensions=[2] kind=add : f32[2]",
    "too few operands": "  %add = add(%x) : f32[2,3]",
    "wrong type": "  %y = negate(%x) : f32[2,4]",
    "wrong number of types": "  %y = negate(%x) : f32[2,3], f32[2,3]",
    "wrong number of results": "  %y, %z = negate(%x) : f32[2,3]",
    "unknown op": "  %negat = negat(%x) : f32[2,3]",
    "unknown attribute": "  %y = negate(%x) axis=[0] : f32[2,3]",
    "attribute given twice": "  %y = transpose(%x) permutation=[0,1] permutation=[1,0] : f32[3,2]",
    "attribute given twice alike":
        "  %y = transpose(%x) permutation=[1,0] permutation=[1,0] : f32[3,2]",
    "missing attribute": "  %y = transpose(%x) : f32[3,2]",
    "bad attribute": "  %y = transpose(%x) permutation=[0,a] : f32[3,2]",
    "bad choice": "  %y = reduce(%x) dimensions=[0] kind=mean : f32[3]",
    "bad literal": "  %y = constant() value=f32[2](1.0,x) : f32[2]",
    "redefinition": "  %x = negate(%x) : f32[2,3]",
    "redefinition of the second result":
        "  %y, %x = rope_table(%p) inv_freq=f32[1](1.0) : f32[2,1], f32[2,1]",
    "unknown dtype": "  %y = negate(%x) : f99[2,3]",
    "bad dimension": "  %y = negate(%x) : f32[2,3B]",
    "bad type": "  %y = negate(%x) : f32[2,3",
    "bad sharding": "  %y = negate(%x) : f32[2,3]{tp,tp}",
    "bad location": "  %y = negate(%x) : f32[2,3]  # nowhere",
    "argument of an unknown dtype": "  arg %z : f99[2]",
    "argument defined twice": "  arg %x : f32[2]",
    "argument with a bad sharding": "  arg %z : f32[2]{tp+tp}",
    "undefined output": "  return %x = %x",
    "undefined output value": "  return a = %a",
}  # fmt: skip
TEXTS = {
    "empty text": "",
    "no module": "func @f {\n}\n",
    "bad mesh": "module @m level=logical mesh=tp {\n}\n",
    "bad interface row": "module @m level=logical {\n  inputs %x : f32[2]\n}\n",
    "interface row of an unknown dtype": "module @m level=logical {\n  input %x : f99[2]\n}\n",
    "interface row of a bad physical type":
        "module @m level=logical {\n  state %x : f32[2] as f32[\n}\n",
    "interface row with a bad sharding":
        "module @m level=logical {\n  weight %x : f32[2] sharding={tp,tp}\n}\n",
    "interface row twice":
        "module @m level=logical {\n  input %x : f32[2]\n  input %x : f32[2]\n}\n",
    "bad meta": 'module @m level=logical {\n  meta a = "\\x"\n}\n',
    "unclosed header": "module @m level=logical {\n  input %x : f32[2]\n",
    "unclosed function": HEAD,
    "bad function": "module @m level=logical {\n}\nfunc f {\n}\n",
    "bad dims": "module @m level=logical {\n}\nfunc @f phase=decode dims={S=1B} {\n}\n",
    "function twice": "module @m level=logical {\n}\nfunc @f {\n}\nfunc @f {\n}\n",
}  # fmt: skip


def failure(text: str) -> str:
    with pytest.raises(GraphgenError) as caught:
        parse(text, "m.gg")
    assert caught.value.where.startswith("m.gg:")
    return str(caught.value)


def test_errors_show_line_and_column(golden: Callable[[str, str], None]):
    shown = [f"## {name}\n{failure(text)}" for name, text in TEXTS.items()]
    for name, line in LINES.items():
        # rope_table wants positions.
        args = "  arg %p : s32[2]\n" if "%p" in line else ""
        shown.append(f"## {name}\n{failure(f'{HEAD}{args}{line}' + chr(10) + '}' + chr(10))}")
    golden("graphgen/text_errors.txt", "\n\n".join(shown))
