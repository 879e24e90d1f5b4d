"""Rings for layers with a window: what they hold, what is read, and what programs compute."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from graphgen.eval import Array, evaluate
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Module, Op, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.kv_cache.roll_window_cache import RollWindowCache
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.workload.make_workload import WorkloadSizes, make_workload
from graphgen.text import parse, print_module

# A window of 6 in every layer; one of 8 in the first and the last of three layers.
WINDOWED = ("mistral-7b", "gemma-3-1b")
# The first with chunks of 6 in the place of its window.
CHUNKED = "chunks"


def model(name: str, kind: str = "f32") -> Module:
    if name != CHUNKED:
        return build(known_shape(name), dtype(kind), mini=True)
    text = print_module(model("mistral-7b", kind))
    assert " window=6 " in text
    return parse(text.replace(" window=6 ", " chunk=6 "))


def specialized(name: str, options: str) -> Module:
    module = model(name)
    run_pipeline(module, pipeline(f"canonicalize,specialize{{batch=[3],{options}}}"))
    return module


def wrong(module: Module, passes: Sequence[Pass], script: Workload) -> list[str]:
    """The passes of a pipeline that change what the module computes."""
    verdicts = validate(module, passes, script)
    assert RollWindowCache.name in [verdict.pass_text for verdict in verdicts]
    return [verdict.pass_text for verdict in verdicts if not verdict.passed]


@pytest.mark.parametrize("name", WINDOWED)
def test_bytes_are_those_of_the_window(name: str):
    module = specialized(name, "context=[64],tokens=[64]")
    before = {row.name: row.physical.nbytes for row in module.entries(Role.STATE)}
    run_pipeline(module, [RollWindowCache()])
    after = {row.name: row.physical.nbytes for row in module.entries(Role.STATE)}
    windows = {"mistral-7b": (6, 6), "gemma-3-1b": (8, 64, 8)}[name]
    wanted = {
        f"model.layers.{layer}.self_attn.{kind}_cache": window / 64
        for layer, window in enumerate(windows)
        for kind in "kv"
    }
    assert {state: after[state] / before[state] for state in before} == wanted


# Tokens of a prefill program, which is the first decode bucket too, and the second bucket. Prompts
# take up to two tokens less, rows get shorter by three; the third step leaves the first bucket.
SIZES = {
    "the window is as long as the prompts": (8, 16),
    "the window is longer": (4, 32),
    "the prompts wrap several times": (40, 64),
    "no bucket is left": (32, 32),
}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", [*WINDOWED, CHUNKED])
@pytest.mark.one_in(3)
def test_programs_compute_what_they_did(name: str, sizes: str, shuffled: bool):
    first, second = SIZES[sizes]
    module = specialized(name, f"context=[{first}],tokens=[{first},{second}]")
    script = make_workload(module, 5, WorkloadSizes(3, first, first, second), shuffled=shuffled)
    assert wrong(module, [RollWindowCache()], script) == []


FULL = {
    "tp 1": "default{%s}",
    "tp 2": "default{tp=2,%s}",
    "tp 3": "default{tp=3,%s}",
    "an accelerator": "default{tp=2,target=trn1,%s}",
    "int8": "canonicalize,unfuse-projections,quantize-weights,default{%s}",
    "sampling": "canonicalize,on-device-sampling{output_logits=true},default{tp=2,%s}",
    "outlined": "default{outline=true,%s}",
}


@pytest.mark.parametrize("features", FULL)
@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.one_in(15)
def test_the_way_to_a_target(name: str, features: str):
    options = "batch=[3],context=[20],tokens=[20,32],roll_window_cache=true"
    module, passes = model(name), pipeline(FULL[features] % options)
    assert wrong(module, passes, make_workload(module, 7, WorkloadSizes(3, 20, 20, 32))) == []


def test_rows_over_ranks():
    options = "batch=[4],context=[20],tokens=[20,32],roll_window_cache=true"
    module = model("mistral-7b")
    passes = pipeline(f"default{{tp=4,heads=SHARD_OVER_BATCH,{options}}}")
    assert wrong(module, passes, make_workload(module, 7, WorkloadSizes(4, 20, 20, 32))) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_16_bits(kind: str):
    module = model("mistral-7b", kind)
    passes = pipeline("default{tp=2,batch=[3],context=[32],tokens=[32,64],roll_window_cache=true}")
    assert wrong(module, passes, make_workload(module, 3, WorkloadSizes(3, 32, 32, 64))) == []


# Read with a window too small; a slot that was overwritten taken for one that is kept.
PLANTED = {"window": ("window=6", "window=5"), "states": ("last=6", "last=7")}


@pytest.mark.parametrize("planted", PLANTED)
def test_modules_are_equivalent_and_one_with_a_mistake_is_not(planted: str):
    module, rolled = (specialized("mistral-7b", "context=[16],tokens=[16]") for _ in "ab")
    run_pipeline(rolled, [RollWindowCache()])
    assert equivalent(module, rolled).equal
    text = print_module(rolled)
    right, mistaken = PLANTED[planted]
    assert text.count(right) > 1
    found = equivalent(module, parse(text.replace(right, mistaken)))
    assert not found.equal
    assert planted == "window" or "cache" in found.difference.name


def feed(
    rng: np.random.Generator,
    phase: str,
    spans: Sequence[tuple[int, int]],
    width: int,
    attended: int,
    *,
    left: bool = False,
) -> ProgramCall:
    """A call in which row b gets tokens for the positions ``spans[b]``; none where it is empty."""
    rows = len(spans)
    positions = np.full((rows, width), -1, np.int32)
    for row, (start, stop) in enumerate(spans):
        at = width - (stop - start) if left else 0
        positions[row, at : at + stop - start] = np.arange(start, stop)
    on = [stop > start for start, stop in spans]
    inputs: dict[str, Array] = {
        "tokens": rng.integers(0, 257, (rows, width)).astype(np.int32),
        "positions": positions,
        "lengths": np.where(on, [stop for _, stop in spans], 0).astype(np.int32),
        "seq_ids": np.where(on, np.arange(rows), rows).astype(np.int32),
    }
    dims = {"R": rows, "M": 64, "B": rows, "S": width, "C": attended}
    return ProgramCall(phase, dims, inputs, tuple(row for row in range(rows) if on[row]))


def calls_of(module: Module, calls: Sequence[ProgramCall]) -> Workload:
    return Workload(make_workload(module, 9).weights, tuple(calls), {"R": 3, "M": 64})


@pytest.mark.parametrize("name", WINDOWED)
def test_a_prompt_in_parts(name: str):
    module, rng = (
        specialized(name, "context=[24],tokens=[24,64],slots=64"),
        np.random.default_rng(2),
    )
    parts = [
        [(0, 9), (0, 1), (0, 20)],
        # Onwards from within the ring; a row that is idle; one that begins anew.
        [(9, 24), (1, 1), (0, 3)],
        [(24, 24), (1, 24), (3, 17)],
    ]
    calls = [feed(rng, "prefill", spans, 24, 24, left=bool(n % 2)) for n, spans in enumerate(parts)]
    calls += [feed(rng, "decode", [(24, 25), (24, 25), (17, 18)], 1, 64)]
    assert wrong(module, [RollWindowCache()], calls_of(module, calls)) == []


def test_guessed_tokens_are_taken_back():
    text = print_module(model("mistral-7b"))
    prefill = text[text.index("func @prefill") : text.index("func @decode")]
    guess = re.sub(r"\bS\b", "4", prefill).replace("@prefill phase=prefill", "@guess phase=decode")
    guess = guess.replace("phase=decode", "phase=decode dims={S=4}", 1)
    module = parse(text[: text.index("func @decode")] + guess)
    run_pipeline(module, pipeline("canonicalize,specialize{batch=[3],context=[16],tokens=[32,64]}"))
    rng = np.random.default_rng(2)
    spans = [
        [(15, 19), (3, 7), (11, 15)],
        # Three of four, none and all of them are taken back.
        [(16, 20), (7, 11), (11, 15)],
        [(20, 24), (8, 12), (12, 16)],
    ]
    calls = [feed(rng, "prefill", [(0, 15), (0, 3), (0, 11)], 16, 16)]
    calls += [feed(rng, "decode", one, 4, 32) for one in spans]
    assert wrong(module, [RollWindowCache()], calls_of(module, calls)) == []
    run_pipeline(module, [RollWindowCache()])
    assert {row.last for row in module.entries(Role.STATE)} == {6 + 4 - 1}


PREFILL = """\
module @m level=canonical {
  input %positions : s32[2,6]
  input %lengths : s32[2]
  input %seq_ids : s32[2]
  input %x : f32[2,6,1,4]
  state %k : f32[2,8,1,4]
  state %v : f32[2,8,1,4]
  output %y : f32[2,6,1,4]
}

func @f phase=prefill {
  arg %k : f32[2,8,1,4]
  arg %v : f32[2,8,1,4]
  arg %x : f32[2,6,1,4]
  arg %positions : s32[2,6]
  arg %lengths : s32[2]
  arg %seq_ids : s32[2]
  %p = key_positions(%lengths) attended=6 : s32[2,6]
  %m = attention_mask(%positions, %p) window=4 : pred[2,6,6]
  %0 = kv_update(%k, %x, %seq_ids, %positions) : f32[2,8,1,4]
  %1 = cache_read(%0, %seq_ids) attended=6 : f32[2,6,1,4]
  %2 = kv_update(%v, %x, %seq_ids, %positions) : f32[2,8,1,4]
  %3 = cache_read(%2, %seq_ids) attended=6 : f32[2,6,1,4]
  %y = attention(%x, %1, %3, %m) scale=0.5 : f32[2,6,1,4]
  return k = %0
  return v = %2
  return y = %y
}
"""


def test_only_the_newest_tokens_of_each_row_are_written():
    """No slot is written twice in a call, whatever the padding, so that no order matters."""
    module = parse(PREFILL)
    run_pipeline(module, [RollWindowCache()])
    function = module.function("f")
    write = next(op for op in function.ops if op.name == "kv_update")
    written: list[Array] = []

    def probe(op: Op, results: Sequence[Sequence[Array]]) -> None:
        if op is write.operands[3].op:
            written.append(results[0][0])

    given: dict[str, Array] = {}
    given |= {value.name or "": np.zeros(value.type.dims, np.float32) for value in function.args}
    given["positions"] = np.array([[0, 1, 2, 3, 4, 5], [-1, 0, 1, 2, -1, -1]], np.int32)
    given |= {"lengths": np.array([6, 3], np.int32), "seq_ids": np.array([0, 1], np.int32)}
    evaluate(function, given, probe=probe)
    assert written[0].tolist() == [[-1, -1, 2, 3, 0, 1], [-1, 0, 1, 2, -1, -1]]


def test_a_state_given_goes_into_the_ring_and_comes_back():
    module, rng = parse(PREFILL), np.random.default_rng(4)
    given = {
        "positions": np.array([[5, -1, -1, -1, -1, -1], [2, 3, -1, -1, -1, -1]], np.int32),
        "lengths": np.array([6, 4], np.int32),
        "seq_ids": np.array([1, 0], np.int32),
        "x": rng.standard_normal((2, 6, 1, 4)).astype(np.float32),
    }
    held = {name: rng.standard_normal((2, 8, 1, 4)).astype(np.float32) for name in "kv"}
    script = Workload({}, (ProgramCall("prefill", {}, given),), {}, held)
    (before,) = Runner(module, script).outcomes()
    run_pipeline(module, [RollWindowCache()])
    (after,) = Runner(module, script).outcomes()
    # Row 1 has been given position 5 and keeps 2 to 5, row 0 has been given 2 and 3.
    assert np.ma.getmaskarray(after["k"])[..., 0, 0].tolist() == [
        [False] * 4 + [True] * 4,
        [True] * 2 + [False] * 4 + [True] * 2,
    ]
    # What padding reads is not defined.
    real = given["positions"] >= 0
    for outcome in (before, after):
        outcome["y"] = outcome["y"][real]
    assert compare([before], [after]).relative < 1e-12


def test_rewrites_stop_with_the_fuel_and_leave_a_whole_module():
    module = specialized("gemma-3-1b", "context=[16],tokens=[16,32]")
    script = make_workload(module, 5)
    for fuel in range(3):
        some = parse(print_module(module))
        apply_pass(some, RollWindowCache(), fuel=fuel)
        assert sum(row.last > 0 for row in some.entries(Role.STATE)) == 2 * fuel
        outcomes = [Runner(each, script).outcomes() for each in (module, some)]
        assert compare(outcomes[0], outcomes[1]).relative < 1e-9
