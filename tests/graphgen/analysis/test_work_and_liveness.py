"""Work and memory of programs, counted by hand and beside XLA's own count."""

from __future__ import annotations

import pytest

from graphgen.analysis.liveness import peak_memory
from graphgen.analysis.work import Work, size_in_bytes, total, work_of
from graphgen.ir import Function, Module, Op
from graphgen.ir.dims import parse_dim
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse
from graphgen.text.grammar import parse_type

HEAD = "module @m level=target {\n}\n\nfunc @f {\n"


def function(body: str) -> Function:
    lines = "".join(f"  {line.strip()}\n" for line in body.splitlines())
    return parse(f"{HEAD}{lines}}}\n").function("f")


def op(body: str) -> Op:
    found = function(body).block.last
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "arg %x : f32[B,S,4]\n arg %w : f32[8,4]\n %y = dot_general(%x, %w) "
            "lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[B,S,8]",
            ("64*B*S", "0", "48*B*S+128"),
        ),
        (
            "arg %x : bf16[3,5]\n %y = add(%x, %x) : bf16[3,5]",
            ("15", "0", "90"),
        ),
        (
            "arg %x : f32[B]\n %y = exponential(%x) : f32[B]",
            ("0", "B", "8*B"),
        ),
        # Nothing is moved by a view, and by a part no more than the part.
        (
            "arg %x : f32[6]\n %y = reshape(%x) shape=[2,3] : f32[2,3]",
            ("0", "0", "0"),
        ),
        (
            "arg %x : f32[60]\n %y = slice(%x) start_indices=[0] limit_indices=[2] strides=[1] "
            ": f32[2]",
            ("0", "0", "16"),
        ),
        # 2 tokens, 4 heads, 8 slots, heads of 16: 64 scores, two products of 16 each, softmax.
        (
            "arg %q : f32[1,2,4,16]\n arg %k : f32[1,8,2,16]\n arg %v : f32[1,8,2,16]\n "
            "arg %m : pred[1,2,8]\n %o = attention(%q, %k, %v, %m) scale=0.25 : f32[1,2,4,16]",
            ("4288", "64", "3088"),
        ),
        # As above, with a quotient, a product and a hyperbolic tangent more for each score.
        (
            "arg %q : f32[1,2,4,16]\n arg %k : f32[1,8,2,16]\n arg %v : f32[1,8,2,16]\n "
            "arg %m : pred[1,2,8]\n %o = attention(%q, %k, %v, %m) scale=0.25 softcap=2.0 "
            ": f32[1,2,4,16]",
            ("4416", "128", "3088"),
        ),
        # Integer operations alone; the state is read and written.
        (
            "arg %s : u64[2]\n %t, %y = rng_bit_generator(%s) algorithm=rng_three_fry dtype=u32 "
            "shape=[4,2] : u64[2], u32[4,2]",
            ("320", "0", "64"),
        ),
    ],
)
def test_work_of_one_op(body: str, expected: tuple[str, str, str]):
    flops, transcendentals, moved = map(parse_dim, expected)
    assert work_of(op(body)) == Work(flops, transcendentals, moved)


def test_packed_types_take_less_than_a_byte():
    assert size_in_bytes(parse_type("f32[B,2]")) == parse_dim("8*B")
    assert size_in_bytes(parse_type("pred[5]")) == 5


def test_a_decode_step_costs_two_operations_a_weight():
    config = known_shape("smollm2-135m")
    module = build(config, f32)
    run_pipeline(module, parse_pipeline("specialize{tokens=[128]}"))
    decode = module.function("decode.b1.c128")
    weights = sum(
        value.type.nbytes // 4
        for value in decode.args
        if len(value.shape) == 2 and value.dtype is f32
    )
    work = total(decode.block)
    assert isinstance(work.flops, int)
    # Attention over 128 slots, norms and the rest are under a tenth.
    assert 2 * weights < work.flops < 2.2 * weights


MEMORY = """module @m level=target {
  input %x : f32[8]
  state %c : f32[100]
  output %y : f32[2]
}

func @f phase=decode {
  arg %x : f32[8]
  arg %c : f32[100]
  %zero = constant() value=s32[](0) : s32[]
  %a = negate(%x) : f32[8]
  %b = reshape(%a) shape=[2,4] : f32[2,4]
  %d = broadcast_in_dim(%b) dimensions=[0,1] shape=[2,4] : f32[2,4]
  %e = add(%b, %d) : f32[2,4]
  %y = reduce(%e) dimensions=[1] kind=add : f32[2]
  %g = dynamic_update_slice(%c, %x, %zero) : f32[100]
  return y = %y
  return c = %g
}
"""


def test_peak_counts_what_is_alive_once():
    module = parse(MEMORY)
    peak = peak_memory(module, module.function("f"))
    # a (b is a view of it), d and e of 32 bytes each, and the constant that is needed at the end;
    # the state is updated where it lies.
    assert peak.bytes == 3 * 32 + 4
    assert peak.op is not None
    assert peak.op.name == "add"
    assert [value.name for value in peak.alive] == ["a", "d", "e", "zero"]


def test_an_empty_program_needs_nothing():
    module = Module("m")
    peak = peak_memory(module, module.add(Function("f")))
    assert (peak.bytes, peak.op, peak.alive) == (0, None, [])
