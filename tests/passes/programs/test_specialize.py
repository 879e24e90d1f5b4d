"""Specialization: one program a bucket, all over one cache."""

from __future__ import annotations

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.validate.blame import apply_pass


@pytest.fixture
def model() -> Module:
    return build(known_shape("llama-3.1-8b"), f32, mini=True)


def test_a_ladder_of_programs_over_one_cache(model: Module):
    run_pipeline(model, [Specialize(batch=(2, 1, 2), context=(8,), tokens=(16, 8), slots=32)])
    assert [f.name for f in model.programs()] == [
        "prefill.b1.s8",
        "prefill.b2.s8",
        "decode.b1.c8",
        "decode.b1.c16",
        "decode.b2.c8",
        "decode.b2.c16",
    ]
    decode = model.function("decode.b1.c16")
    assert decode.dims == {"S": 1, "B": 1, "C": 16, "R": 2, "M": 32}
    assert model.function("prefill.b1.s8").dims == {"B": 1, "S": 8, "C": 8, "R": 2, "M": 32}
    caches = {row.physical.text for row in model.entries(Role.STATE)}
    assert caches == {"f32[2,32,2,8]"}
    for function in model.programs():
        cache = function.arg("model.layers.0.self_attn.k_cache")
        assert cache is not None
        assert cache.type.text == "f32[2,32,2,8]"
        assert all(result.type.static for op in function.ops for result in op.results)
    # What is given at every call keeps its symbols: each program has its own sizes.
    assert model.interface["tokens"].logical.text == "s32[B,S]"


def test_rows_and_slots_by_default(model: Module):
    run_pipeline(model, [Specialize(batch=(1, 3), context=(4,), tokens=(8, 16))])
    assert {row.logical.text for row in model.entries(Role.STATE)} == {"f32[3,16,2,8]"}


def test_rows_may_be_more_than_a_batch(model: Module):
    run_pipeline(model, [Specialize(batch=(1,), context=(4,), tokens=(4,), rows=5)])
    assert {row.logical.text for row in model.entries(Role.STATE)} == {"f32[5,4,2,8]"}


def ways(module: Module) -> dict[str, set[str]]:
    """How each program reads and writes cache rows."""
    return {
        function.name: {op.attrs.text("rows") for op in function.ops if "rows" in op.attrs}
        for function in module.programs()
    }


def test_in_place_is_for_full_batches(model: Module):
    run_pipeline(model, [Specialize(batch=(1, 2), context=(4,), tokens=(4,), in_place=True)])
    assert ways(model) == {
        "prefill.b1.s4": {"any"},
        "prefill.b2.s4": {"in_place"},
        "decode.b1.c4": {"any"},
        "decode.b2.c4": {"in_place"},
    }


def test_in_place_has_to_be_asked_for(model: Module):
    run_pipeline(model, [Specialize(batch=(2,), context=(4,), tokens=(4,))])
    assert set.union(*ways(model).values()) == {"any"}


def test_names_and_provenance_are_kept(model: Module):
    before = next(op for op in model.function("decode").ops if op.name == "embedding")
    run_pipeline(model, [Specialize(tokens=(8,))])
    after = next(op for op in model.function("decode.b1.c8").ops if op.name == "embedding")
    assert after.result.name == before.result.name
    assert after.loc is before.loc.through("specialize")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("batch=[]", "specialize: batch=[] needs sizes above 0"),
        ("batch=[0,1]", "specialize: batch=[0, 1] needs sizes above 0"),
        ("context=[-8]", "specialize: context=[-8] needs sizes above 0"),
        ("tokens=[]", "specialize: tokens=[] needs sizes above 0"),
        ("tokens=[16],context=[8],slots=8", "specialize: slots=8 is less than a bucket"),
        ("slots=-1", "specialize: slots=-1 is less than a bucket"),
        ("batch=[4],rows=2", "specialize: rows=2 is less than a batch"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: str, message: str, model: Module):
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(model, parse_pipeline(f"specialize{{{options}}}"))
    assert (caught.value.code, caught.value.what) == ("GG0302", message)


def test_without_prefill_buckets_prompts_go_through_decode(model: Module):
    run_pipeline(model, parse_pipeline("specialize{n_positions=[8,16],context_length_estimate=0}"))
    assert [f.name for f in model.programs()] == ["decode.b1.c8", "decode.b1.c16"]


def test_chunks_of_prompts_in_every_larger_bucket(model: Module):
    sizes = "specialize{prefill_batch=[1],batch=[2],context=[8],tokens=[8,16],chunk=[8,4]}"
    run_pipeline(model, parse_pipeline(sizes))
    prompts = {f.name: f.dims for f in model.programs() if f.phase == "prefill"}
    assert list(prompts) == [
        "prefill.b1.s8",
        "prefill.b1.s4.c8",
        "prefill.b1.s4.c16",
        "prefill.b1.s8.c16",
    ]
    assert prompts["prefill.b1.s4.c16"] == {"B": 1, "S": 4, "C": 16, "R": 2, "M": 16}


def test_chunks_alone_take_all_prompts(model: Module):
    sizes = "specialize{context_length_estimate=0,tokens=[16],chunk=[4]}"
    run_pipeline(model, parse_pipeline(sizes))
    assert [f.name for f in model.programs()] == ["prefill.b1.s4.c16", "decode.b1.c16"]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ("16", "specialize: chunk=[16], but no decode bucket has more than 16 slots"),
        ("0", "specialize: chunk=[0] needs sizes above 0"),
    ],
)
def test_chunks_that_nothing_has_room_for(model: Module, chunk: str, message: str):
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(model, parse_pipeline(f"specialize{{tokens=[8,16],chunk=[{chunk}]}}"))
    assert (caught.value.code, caught.value.what) == ("GG0302", message)


@pytest.mark.parametrize(("fuel", "symbolic"), [(1, ["prefill", "decode"]), (2, ["decode"])])
def test_symbolic_programs_serve_sizes_without_a_program_of_their_own(
    model: Module, fuel: int, symbolic: list[str]
):
    apply_pass(model, Specialize(batch=(1, 2), context=(4,), tokens=(4,)), fuel=fuel)
    names = [f.name for f in model.programs()]
    assert [name for name in names if "." not in name] == symbolic
    assert len(names) == fuel + len(symbolic)
