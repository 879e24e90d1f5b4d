"""outline-layers and inline-calls: layers as calls of one function, in text and in numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.analysis.calls import inlined
from graphgen.analysis.liveness import peak_memory
from graphgen.analysis.overview import overview
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate_ranks
from graphgen.ir import Function, Module, dtype
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.outline import OutlineLayers
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.workload.value_ranges import random_array
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo
from tests.oracles.minis import MINIS
from tests.oracles.small_modules import after

BUCKETS = CompileConfig(batch=(2,), context=(8,), tokens=(8,))


def lowered(name: str, tp: int) -> Module:
    module = build(known_shape(name), dtype("f32"), mini=True)
    run_pipeline(module, pipeline(f"default{{tp={tp}}}", BUCKETS))
    return module


def outline(module: Module, text: str = "outline-layers") -> Module:
    run_pipeline(module, parse_pipeline(text))
    verify(module)
    return module


def calls(function: Function) -> list[str]:
    return [op.attrs.text("to_apply") for op in function.ops if op.name == "call"]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(9)
def test_what_is_outlined_is_read_back_and_comes_back(name: str, tp: int):
    module = lowered(name, tp)
    before = {f.name: [op.name for op in f.ops] for f in module.programs()}
    outline(module)
    for function in module.programs():
        assert calls(function), function.name
        assert function.block.size < len(before[function.name])
    text = print_module(module)
    assert print_module(parse(text)) == text
    # Each body has its own constants.
    outline(module, "inline-calls,cse")
    for function in module.programs():
        # A call stands where its layer ended, so ops of other layers may have moved past it.
        assert sorted(op.name for op in function.ops) == sorted(before[function.name])
        assert not calls(function)


def layered(layers: int) -> Module:
    config = {**known_shape("llama-3.1-8b"), "num_hidden_layers": layers}
    module = build(config, dtype("bf16"))
    run_pipeline(module, pipeline("default{tp=8,target=trn2}", BUCKETS))
    return module


def test_ops_do_not_grow_with_layers():
    few, many = outline(layered(4)), outline(layered(8))
    sizes = [[f.block.size for f in module.programs()] for module in (few, many)]
    assert [b - a for a, b in zip(*sizes, strict=True)] == [4, 4]
    assert [len(calls(f)) for f in many.programs()] == [8, 8]
    assert all(len(set(calls(f))) == 1 for f in many.programs())


def arguments(module: Module, function: Function) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    shared = {value.name or "": random_array(rng, value.type) for value in function.args}
    ranks = range(module.ranks)
    return [{**shared, **({"rank": np.array([r], np.int32)} if r else {})} for r in ranks]


@pytest.mark.parametrize("tp", [1, 2])
def test_xla_runs_it_in_both_forms(tp: int):
    module = outline(lowered("llama-3.1-8b", tp))
    for function in module.programs():
        given = arguments(module, function)
        for one, rank in zip(given, range(tp), strict=True):
            one.update({n: np.array([rank], np.int32) for n in one if n == "rank"})
        wanted = evaluate_ranks(inlined(module, function), given)
        ours = compile_program(module, function).run_numpy(given)
        rows = [[one[value.name or ""] for value in function.args] for one in given]
        through_hlo = xla_hlo.run(emit_hlo(module, function), rows, tp)
        for rank, results in enumerate(wanted):
            for place, (name, array) in enumerate(results.items()):
                np.testing.assert_allclose(ours[rank][name], array, rtol=1e-4, atol=1e-4)
                np.testing.assert_allclose(through_hlo[rank][place], array, rtol=1e-4, atol=1e-4)


def test_the_written_forms_have_the_function_once():
    module = outline(lowered("llama-3.1-8b", 1))
    function = module.programs()[-1]
    stablehlo = emit_stablehlo(module, function)
    assert stablehlo.count("func.func private") == len(set(calls(function)))
    assert stablehlo.count("func.call") == len(calls(function))
    again = read_stablehlo(stablehlo)
    verify(again)
    hlo = xla_hlo.parsed(emit_hlo(module, function))
    assert hlo.count(" call(") == len(calls(function))


def test_layers_are_told_apart_in_sums():
    module = lowered("llama-3.1-8b", 1)
    function = module.programs()[-1]
    before = overview(module, function)
    outline(module)
    now = overview(module, function)
    assert now.flops == before.flops
    assert now.work.transcendentals == before.work.transcendentals
    assert [(x.first, x.last) for x in now.layers] == [(x.first, x.last) for x in before.layers]
    # Order within a layer may differ a little where constants have moved in.
    assert peak_memory(module, function).bytes <= 1.1 * (before.peak.bytes if before.peak else 0)


ROWS = "  input %x : f32[4]\n  weight %w : f32[4]\n  output %y : f32[4]\n"
HEAD = f"module @m level=target {{\n{ROWS}}}\n\n"
BODY = "func @f phase=decode {\n  arg %x : f32[4]\n  arg %w : f32[4]\n"

ENTANGLED = """\
  %a = add(%x, %w) : f32[4]  # m.py:1 layers.0
  %b = exponential(%a) : f32[4]  # m.py:2
  %c = add(%a, %b) : f32[4]  # m.py:3 layers.0
  %d = add(%c, %w) : f32[4]  # m.py:1 layers.1
  %e = exponential(%d) : f32[4]  # m.py:2
  %y = add(%d, %e) : f32[4]  # m.py:3 layers.1
  return y = %y
}
"""


def test_a_layer_with_something_else_in_its_middle_stays():
    text = HEAD + BODY + ENTANGLED
    assert "call" not in after(text, "outline-layers")


UNLIKE = """\
  %a = add(%x, %w) : f32[4]  # m.py:1 layers.0
  %b = exponential(%a) : f32[4]  # m.py:2 layers.0
  %c = add(%b, %w) : f32[4]  # m.py:1 layers.1
  %d = tanh(%c) : f32[4]  # m.py:2 layers.1
  %e = add(%d, %w) : f32[4]  # m.py:1 layers.2
  %y = exponential(%e) : f32[4]  # m.py:2 layers.2
  return y = %y
}
"""


def test_only_equal_layers_are_put_together():
    text = after(HEAD + BODY + UNLIKE, "outline-layers")
    assert text.count("call(") == 2
    assert text.count("tanh(") == 1
    assert "call(" not in after(HEAD + BODY + UNLIKE, "outline-layers{min_layers=3}")


TWO_KINDS = """\
  %a = add(%x, %w) : f32[4]  # m.py:1 layers.0
  %b = exponential(%a) : f32[4]  # m.py:2 layers.0
  %c = add(%b, %w) : f32[4]  # m.py:1 layers.1
  %d = exponential(%c) : f32[4]  # m.py:2 layers.1
  %e = multiply(%d, %w) : f32[4]  # m.py:1 layers.2
  %f = tanh(%e) : f32[4]  # m.py:2 layers.2
  %g = multiply(%f, %w) : f32[4]  # m.py:1 layers.3
  %y = tanh(%g) : f32[4]  # m.py:2 layers.3
  return y = %y
}
"""


def test_a_kind_of_layers_reads_what_calls_of_another_give():
    text = after(HEAD + BODY + TWO_KINDS, "outline-layers")
    assert text.count("call(") == 4
    assert text.count("exponential(") == text.count("tanh(") == 1
    module, given = parse(text), {name: np.linspace(-1, 1, 4).astype(np.float32) for name in "xw"}
    (ours,) = evaluate_ranks(inlined(module, module.function("f")), [given])
    (wanted,) = evaluate_ranks(parse(HEAD + BODY + TWO_KINDS).function("f"), [given])
    np.testing.assert_array_equal(ours["y"], wanted["y"])


def test_fuel_stops_between_layers():
    module = parse(HEAD + BODY + UNLIKE)
    OutlineLayers().run(module, Rewriter("outline-layers", fuel=1))
    verify(module)
    assert len(calls(module.function("f"))) == 1
    given = {name: np.linspace(-1, 1, 4).astype(np.float32) for name in "xw"}
    (ours,) = evaluate_ranks(inlined(module, module.function("f")), [given])
    (wanted,) = evaluate_ranks(parse(HEAD + BODY + UNLIKE).function("f"), [given])
    np.testing.assert_array_equal(ours["y"], wanted["y"])


CALLEE = "func @g {\n  arg %x : f32[4]\n  %y = negate(%x) : f32[4]\n  return y = %y\n}\n\n"


def _calling(line: str, callee: str = CALLEE) -> str:
    return f"{HEAD}{callee}{BODY}  {line}\n  return y = %y\n}}\n"


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        (
            _calling("%y = call(%x) to_apply=h results=[f32[4]] : f32[4]"),
            "GG0202",
            "no function @h stands before this one",
        ),
        (
            _calling("%y = call(%x) to_apply=f results=[f32[4]] : f32[4]"),
            "GG0202",
            "no function @f stands before this one",
        ),
        (
            _calling("%y = call(%x, %x) to_apply=g results=[f32[4]] : f32[4]"),
            "GG0203",
            r"the operands of @g are f32\[4\]",
        ),
        (
            _calling(
                "%z = call(%x) to_apply=g results=[f32[2]] : f32[2]\n  %y = negate(%x) : f32[4]"
            ),
            "GG0203",
            r"the results of @g are f32\[4\]",
        ),
        (
            _calling(
                "%y = call(%x) to_apply=g results=[f32[4]] : f32[4]",
                CALLEE.replace("@g", "@g phase=decode"),
            ),
            "GG0204",
            "@g is an entry program",
        ),
    ],
)
def test_a_wrong_call_is_refused(text: str, code: str, what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        verify(parse(text))
    assert caught.value.code == code


def test_equal_layers_of_two_programs_are_one_function():
    one = print_module(lowered("llama-3.1-8b", 1))
    decode = one[one.index("func @decode") :]
    decode = decode[: decode.index("\n}\n") + 3]
    name = decode.split()[1]
    module = parse(f"{one}\n{decode.replace(name, '@decode.twin')}")
    outline(module)
    assert verify(module) is None
    called = {
        function.name: {op.attrs.text("to_apply") for op in function.ops if op.name == "call"}
        for function in module.programs()
    }
    assert called["decode.twin"] == called[name.removeprefix("@")] != set()
