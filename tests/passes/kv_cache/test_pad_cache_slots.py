"""A spare slot for every cache: no index leaves the table, and the rows hold what they held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, evaluate
from graphgen.ir import Module, Op, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.relation import Chain, DontCare, Take
from graphgen.text import parse, print_module

CACHE = """\
module @m level=canonical {{
  input %new : f32[2,3,1,4]
  input %ids : s32[2]
  input %at : s32[2,3]
  state %k : f32[2,8,1,4]
  output %r : f32[{result}]
}}

func @f phase=decode {{
  arg %k : f32[2,8,1,4]
  arg %new : f32[2,3,1,4]
  arg %ids : s32[2]
  arg %at : s32[2,3]
{lines}
  return k = %c
  return r = %r
}}
"""
UPDATE = "  %c = kv_update(%k, %new, %ids, %at) : f32[2,8,1,4]\n"


def program(lines: str, result: str) -> Module:
    return parse(CACHE.format(lines=UPDATE + lines, result=result))


def padded(module: Module) -> Journal:
    run_pipeline(module, parse_pipeline("pad-cache-slots"), journal=(journal := Journal()))
    return journal


def inputs(ids: list[int], at: list[list[int]]) -> dict[str, Array]:
    random = np.random.default_rng(5)
    return {
        "k": random.standard_normal((2, 8, 1, 4)).astype(np.float32),
        "new": random.standard_normal((2, 3, 1, 4)).astype(np.float32),
        "ids": np.array(ids, np.int32),
        "at": np.array(at, np.int32),
    }


READS = {
    "in place": ("  %r = cache_read(%c, %ids) attended=4 rows=in_place : f32[2,4,1,4]", "2,4,1,4"),
    "by row": ("  %r = cache_read(%c, %ids) attended=4 : f32[2,4,1,4]", "2,4,1,4"),
    "something else": ("  %r = negate(%c) : f32[2,8,1,4]", "2,8,1,4"),
}
# Row 1 is idle in the first, tokens pad in the second; the third writes beyond the last slot.
CALLS = {
    "idle": ([0, 2], [[0, 1, 2], [0, 1, 2]]),
    "padding": ([1, 0], [[4, 5, -1], [7, -1, -1]]),
    "beyond": ([1, 0], [[6, 7, 8], [9, 10, 100]]),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("read", READS)
def test_nothing_but_the_spare_slot_changes(read: str, call: str):
    lines, result = READS[read]
    ids, at = CALLS[call]
    before, after = (program(lines, result) for _ in range(2))
    given = inputs(ids, at)
    padded(after)
    wanted = evaluate(before.function("f"), given)
    row = after.interface["k"]
    pack, unpack = after.function(row.pack), after.function(row.unpack)
    whole = {"whole": given["k"], "rank": np.zeros(1, np.int32)}
    found = evaluate(after.function("f"), {**given, "k": evaluate(pack, whole)["part"]})
    assert found["k"].shape == (2, 9, 1, 4)
    back = evaluate(unpack, {"parts": found["k"][None]})["whole"]
    np.testing.assert_array_equal(back, wanted["k"])
    # What an idle row reads is not defined.
    rows = [b for b, row_ in enumerate(ids) if row_ < 2] if "read" in lines else [0, 1]
    np.testing.assert_array_equal(found["r"][rows], wanted["r"][rows])


def test_no_index_is_out_of_range():
    after = program(*READS["in place"])
    padded(after)
    seen: list[Array] = []

    def probe(op: Op, results: Sequence[Sequence[Array]]) -> None:
        if op.name == "select":
            seen.append(results[0][0])

    for ids, at in CALLS.values():
        given = inputs(ids, at)
        given["k"] = np.zeros((2, 9, 1, 4), np.float32)
        evaluate(after.function("f"), given, probe=probe)
    assert len(seen) == len(CALLS)
    assert all(array.min() >= 0 and array.max() < 18 for array in seen)
    assert seen[0].tolist() == [[0, 1, 2], [8, 8, 8]]


def test_the_journal_tells_how_the_states_relate():
    (note,) = padded(program(*READS["in place"])).applications
    assert note.rule == "a spare slot for k"
    relations = [relation for _, _, relation in note.replaced]
    (update,) = [relation for relation in relations if isinstance(relation, Chain)]
    take, mask = update.steps
    assert isinstance(take, Take)
    assert take.indices == (*range(8), -1)
    assert isinstance(mask, DontCare)
    assert mask.mask.shape == (1, 9, 1, 1)


def test_a_state_nobody_writes_is_left_alone():
    text = CACHE.format(lines="  %c = negate(%k) : f32[2,8,1,4]", result="2,8,1,4")
    module = parse(text.replace("return r = %r", "return r = %c"))
    before = print_module(module)
    padded(module)
    assert print_module(module) == before


def test_a_program_that_hands_the_cache_back_as_it_came_keeps_the_slot():
    text = print_module(program(*READS["in place"]))
    text += "func @g phase=prefill {\n  arg %k : f32[2,8,1,4]\n  %n = negate(%k) : f32[2,8,1,4]\n"
    module = parse(f"{text}  return k = %n\n}}\n")
    padded(module)
    (_, value), *_ = module.function("g").outputs
    assert value.type.text == "f32[2,9,1,4]"


def test_a_cache_written_into_itself():
    text = CACHE.replace("%at : s32[2,3]", "%at : s32[2,8]").format(
        lines="  %c = kv_update(%k, %k, %ids, %at) : f32[2,8,1,4]", result="2,8,1,4"
    )
    before, after = (parse(text.replace("r = %r", "r = %c")) for _ in range(2))
    padded(after)
    given = inputs([1, 0], [[7, 6, 5, 4, 3, 2, 1, 0]] * 2)
    wanted = evaluate(before.function("f"), given)["r"]
    grown = {**given, "k": np.concatenate([given["k"], np.zeros((2, 1, 1, 4), np.float32)], 1)}
    np.testing.assert_array_equal(evaluate(after.function("f"), grown)["r"], wanted)


@pytest.mark.parametrize("tp", [1, 2])
def test_every_cache_of_a_model_has_a_spare_slot(tp: int):
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    text = "canonicalize,specialize{batch=[2],context=[4],tokens=[4]}"
    text += f",shard{{tp={tp}}},pad-to-mesh,partition" if tp > 1 else ""
    run_pipeline(module, parse_pipeline(f"{text},pad-cache-slots"))
    rows = module.entries(Role.STATE)
    assert {row.logical.text for row in rows} == {"bf16[2,4,2,8]"}
    assert {row.physical.text for row in rows} == {f"bf16[2,5,{2 // tp},8]"}
    for function in module.programs():
        assert all(op.name != "kv_update" for op in function.ops)
