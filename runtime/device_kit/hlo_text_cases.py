"""Test programs in HLO text: opcodes without an op here, and forms for single rules."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Module
from graphgen.lowering.hlo.read import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.runtime.device_kit.kit_program import (
    KitProgram,
    evaluated_or_nothing,
    some_array,
    why_not_run,
)

_BODIES = """
plus { a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] add(a, b) }
times { d = {t}[] parameter(0)
  e = {t}[] parameter(1)
  ROOT f = {t}[] multiply(d, e) }
"""
# opcode, use, element types, then the instructions; x is `{t}[4,8]`, y the result.
_USES = (
    *((op, "", "f32 bf16 f16", f"ROOT y = {{t}}[4,8] {op}(x)") for op in (
        "acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh",
    )),
    ("copy", "", "f32 bf16 s32 pred", "ROOT y = {t}[4,8] copy(x)"),
    ("bitcast", "", "f32 bf16", "ROOT y = {t}[8,4] bitcast(x)"),
    ("opt-barrier", "", "f32 bf16", "t = ({t}[4,8]) tuple(x)\n  o = ({t}[4,8]) opt-barrier(t)\n  ROOT y = {t}[4,8] get-tuple-element(o), index=0"),
    ("tuple", "", "f32 bf16", "n = {t}[4,8] negate(x)\n  ROOT y = ({t}[4,8], {t}[4,8]) tuple(n, n)"),
    ("batch-norm-inference", "", "f32", "s = {t}[8] parameter(1)\n  b = {t}[8] parameter(2)\n  m = {t}[8] parameter(3)\n  v = {t}[8] parameter(4)\n  ROOT y = {t}[4,8] batch-norm-inference(x, s, b, m, v), epsilon=0.001, feature_index=1"),
    ("batch-norm-training", "", "f32", "s = {t}[8] parameter(1)\n  b = {t}[8] parameter(2)\n  ROOT y = ({t}[4,8], {t}[8], {t}[8]) batch-norm-training(x, s, b), epsilon=0.001, feature_index=1"),
    ("batch-norm-grad", "", "f32", "s = {t}[8] parameter(1)\n  m = {t}[8] parameter(2)\n  v = {t}[8] parameter(3)\n  g = {t}[4,8] parameter(4)\n  ROOT y = ({t}[4,8], {t}[8], {t}[8]) batch-norm-grad(x, s, m, v, g), epsilon=0.001, feature_index=1"),
    ("topk", "", "f32 bf16 s32", "ROOT y = ({t}[4,2], s32[4,2]) topk(x), k=2, largest=true"),
    ("replica-id", "", "f32", "r = u32[] replica-id()\n  c = {t}[] convert(r)\n  b = {t}[4,8] broadcast(c), dimensions={}\n  ROOT y = {t}[4,8] add(x, b)"),
    ("partition-id", "", "f32", "r = u32[] partition-id()\n  c = {t}[] convert(r)\n  b = {t}[4,8] broadcast(c), dimensions={}\n  ROOT y = {t}[4,8] add(x, b)"),
    ("all-reduce", "multiply", "f32 bf16", "ROOT y = {t}[4,8] all-reduce(x), replica_groups={{0,1}}, to_apply=times"),
    ("all-reduce", "uneven", "f32", "ROOT y = {t}[4,8] all-reduce(x), replica_groups={{0,1},{2}}, to_apply=plus"),
    ("reduce-scatter", "multiply", "f32", "ROOT y = {t}[2,8] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0}, to_apply=times"),
    ("collective-broadcast", "", "f32 bf16", "ROOT y = {t}[4,8] collective-broadcast(x), replica_groups={{0,1}}"),
    ("get-dimension-size", "", "f32", "ROOT y = s32[] get-dimension-size(x), dimensions={0}"),
    ("set-dimension-size", "", "f32", "n = s32[] constant(3)\n  ROOT y = {t}[<=4,8] set-dimension-size(x, n), dimensions={0}"),
    ("stochastic-convert", "", "f32", "r = u32[4,8] parameter(1)\n  ROOT y = bf16[4,8] stochastic-convert(x, r)"),
    ("map", "", "f32", "ROOT y = {t}[4,8] map(x, x), dimensions={0,1}, to_apply=plus"),
    ("call", "", "f32 bf16", "s = {t}[] parameter(1)\n  c = {t}[] call(s, s), to_apply=plus\n  b = {t}[4,8] broadcast(c), dimensions={}\n  ROOT y = {t}[4,8] add(x, b)"),
    ("power", "constant", "f32 bf16", "k = {t}[] constant(2)\n  b = {t}[4,8] broadcast(k), dimensions={}\n  ROOT y = {t}[4,8] power(x, b)"),
    ("reduce", "init", "f32", "i = {t}[] parameter(1)\n  ROOT y = {t}[4] reduce(x, i), dimensions={1}, to_apply=plus"),
    ("reduce", "several", "f32", "z = {t}[] constant(0)\n  ROOT y = ({t}[4], {t}[4]) reduce(x, x, z, z), dimensions={1}, to_apply=both"),
    ("reduce", "body", "f32", "z = {t}[] constant(0)\n  ROOT y = {t}[4] reduce(x, z), dimensions={1}, to_apply=farthest"),
    ("reduce-window", "several", "f32", "z = {t}[] constant(0)\n  ROOT y = ({t}[4,4], {t}[4,4]) reduce-window(x, x, z, z), window={size=1x2 stride=1x2}, to_apply=both"),
    ("while", "", "f32", "i = s32[] constant(0)\n  t = (s32[], {t}[4,8]) tuple(i, x)\n  w = (s32[], {t}[4,8]) while(t), condition=below, body=twice\n  ROOT y = {t}[4,8] get-tuple-element(w), index=1"),
    ("conditional", "", "f32", "p = pred[] parameter(1)\n  ROOT y = {t}[4,8] conditional(p, x, x), true_computation=negated, false_computation=same"),
    ("dynamic-update-slice", "constant", "f32 bf16", "u = {t}[2,8] parameter(1)\n  i = s32[] constant(1)\n  z = s32[] constant(0)\n  ROOT y = {t}[4,8] dynamic-update-slice(x, u, i, z)"),
    ("gather", "iota-beyond", "f32", "i = s32[16] iota(), iota_dimension=0\n  ROOT y = {t}[16,1] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,1}"),
    ("scatter", "iota-beyond", "f32", "i = s32[16] iota(), iota_dimension=0\n  u = {t}[16,8] parameter(1)\n  ROOT y = {t}[4,8] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus"),
    ("broadcast", "of-4-gb", "f32", "r = {t}[4] slice(x), slice={[0:4], [0:1]}\n  b = {t}[4,300000000] broadcast(r), dimensions={0}\n  z = {t}[] constant(0)\n  ROOT y = {t}[300000000] reduce(b, z), dimensions={0}, to_apply=plus"),
    ("rng-bit-generator", "three-fry", "u32", "s = u64[2] parameter(1)\n  g = (u64[2], u32[4,8]) rng-bit-generator(s), algorithm=rng_three_fry\n  n = u32[4,8] get-tuple-element(g), index=1\n  ROOT y = u32[4,8] xor(x, n)"),
    ("rng-bit-generator", "default", "u32", "s = u64[2] parameter(1)\n  g = (u64[2], u32[4,8]) rng-bit-generator(s), algorithm=rng_default\n  n = u32[4,8] get-tuple-element(g), index=1\n  ROOT y = u32[4,8] xor(x, n)"),
    ("after-all", "", "f32", "a = token[] after-all()\n  ROOT y = {t}[4,8] negate(x)"),
)  # fmt: skip
_MORE = """
both { g = {t}[] parameter(0)
  h = {t}[] parameter(1)
  i = {t}[] parameter(2)
  j = {t}[] parameter(3)
  k = {t}[] add(g, i)
  l = {t}[] maximum(h, j)
  ROOT m = ({t}[], {t}[]) tuple(k, l) }
farthest { n = {t}[] parameter(0)
  o = {t}[] parameter(1)
  p = {t}[] maximum(n, o)
  ROOT q = {t}[] abs(p) }
below { r = (s32[], {t}[4,8]) parameter(0)
  s = s32[] get-tuple-element(r), index=0
  u = s32[] constant(3)
  ROOT v = pred[] compare(s, u), direction=LT }
twice { w = (s32[], {t}[4,8]) parameter(0)
  x1 = s32[] get-tuple-element(w), index=0
  x2 = s32[] constant(1)
  x3 = s32[] add(x1, x2)
  x4 = {t}[4,8] get-tuple-element(w), index=1
  x5 = {t}[4,8] add(x4, x4)
  ROOT x6 = (s32[], {t}[4,8]) tuple(x3, x5) }
negated { x7 = {t}[4,8] parameter(0)
  ROOT x8 = {t}[4,8] negate(x7) }
same { ROOT x9 = {t}[4,8] parameter(0) }
"""
_CALLED = ("plus", "times", "both", "farthest", "below", "twice", "negated", "same")
# Opcodes of the legality table that no case has, and why.
NOT_IN_THE_KIT = {
    **dict.fromkeys(
        (
            *("all-gather-start", "all-gather-done", "all-reduce-start", "all-reduce-done"),
            *("collective-permute-start", "collective-permute-done", "copy-start", "copy-done"),
            *("async-start", "async-update", "async-done", "fusion"),
        ),
        "a form that XLA makes while it compiles; no program is handed over with it",
    ),
    **dict.fromkeys(
        ("infeed", "outfeed", "send", "send-done", "recv", "recv-done"),
        "it needs a host that sends or receives while the program runs",
    ),
    **dict.fromkeys(
        ("ragged-dot", "ragged-all-to-all", "scaled-dot", "scan", "dynamic-reshape", "domain",
         "add-dependency", "rng-get-and-update-state"),
        "no small use of it is written yet",
    ),
    **dict.fromkeys(("parameter", "get-tuple-element"), "every program has them"),
}  # fmt: skip


def opcodes() -> set[str]:
    """The opcodes that the uses are about."""
    return {opcode for opcode, *_ in _USES}


def hlo_text_programs() -> Iterator[KitProgram]:
    """The program of each use."""
    for opcode, use, kinds, body in _USES:
        for kind in kinds.split():
            name = "-".join(filter(None, (opcode, use)))
            yield _program(f"op/{name}/{kind}", opcode, kind, body)


def _program(name: str, opcode: str, kind: str, body: str) -> KitProgram:
    text = _text(body, kind)
    hlo = parse_hlo_text(text, name)
    module = _read(hlo)
    function = module.programs()[0] if module.programs() else [*module.functions.values()][-1]
    inputs = {
        value.name or "": some_array(f"{name} {value.name}", value.type, positive=True)
        for value in function.args
    }
    why = why_not_run(module, function)
    if opcode == "rng-bit-generator":
        why = "its numbers are the device's own"
    if opcode == "broadcast":
        why = "it needs more memory than the kit takes"
    outputs = dict[str, Array]() if why else evaluated_or_nothing(module, function, inputs)
    why = why or ("" if outputs else "the reference does not compute it")
    return KitProgram(
        name, module, function, hlo, {} if why else inputs, outputs, opcode, kind, why
    )


def _text(body: str, kind: str) -> str:
    """A module with the computations that the instructions call, and those they call."""
    called = [name for name in _CALLED if f"={name}" in body]
    parts = [part for text in (_BODIES, _MORE) for part in text.strip().split("}\n")]
    chosen = [f"{part.rstrip(' }').rstrip()} }}" for part in parts if part.split()[0] in called]
    entry = f"ENTRY main {{ x = {{t}}[4,8] parameter(0)\n  {body} }}"
    return "\n\n".join(["HloModule kit", *chosen, entry, ""]).replace("{t}", kind)


def _read(hlo: bytes) -> Module:
    try:
        return read_hlo(hlo)
    except GraphgenError as error:
        raise AssertionError("a program of the kit is not read") from error
