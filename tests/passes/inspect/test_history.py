"""A value's history: through rewrites, copies and inlining, and back from what it has become."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Value
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline
from graphgen.passes.inspect.history import History, backward, find_value, forward
from graphgen.passes.inspect.recording import Recording, record
from graphgen.passes.pipelines import parse
from graphgen.text import parse as parse_module

BUCKETS = CompileConfig(batch=(1,), context=(8,), tokens=(8,))


def small(*lines: str) -> Module:
    body = "\n".join(f"  {line}" for line in lines)
    return parse_module(f"module @m level=logical {{\n}}\n\nfunc @f {{\n{body}\n}}\n")


def run(module: Module, pipeline: str) -> Recording:
    return record(module, parse_pipeline(pipeline))


def mini(pipeline: str) -> Recording:
    return record(build(known_shape("llama-3.1-8b"), f32, mini=True), parse(pipeline, BUCKETS))


def steps(found: History) -> list[tuple[str, str]]:
    return [(event.label, event.what) for event in found.events]


def names(recording: Recording, values: object) -> list[str]:
    assert isinstance(values, list)
    return [recording.end.names[value] for value in values]


def test_what_replaces_a_value_is_the_value():
    recording = run(
        small(
            "arg %x : f32[2,3]",
            "%a = reshape(%x) shape=[6] : f32[6]  # model.py:3 block",
            "%b = reshape(%a) shape=[3,2] : f32[3,2]",
            "return y = %b",
        ),
        "canonicalize,dce",
    )
    found = forward(recording, find_value(recording.start, "%b"))
    assert steps(found) == [("canonicalize", "reshape-of-reshape")]
    (event,) = found.events
    assert event.before[0] == "%b = reshape(%a) shape=[3,2] : f32[3,2]"
    assert event.after == ["%b = reshape(%x) shape=[3,2] : f32[3,2]"]
    file, line = event.source.split(":")
    with open(file, encoding="utf-8") as text:
        assert "@rule" in text.read().splitlines()[int(line) - 1]
    assert names(recording, found.now) == event.after[0].split()[:1]
    gone = forward(recording, find_value(recording.start, "%a"))
    assert gone.loc.line == 3
    assert steps(gone) == [("dce", "erase"), ("dce", "gone")]
    assert gone.now == []


def test_a_value_goes_on_as_the_one_it_was_merged_with():
    recording = run(
        small(
            "arg %x : f32[4]",
            "%a = negate(%x) : f32[4]",
            "%b = negate(%x) : f32[4]",
            "%y = add(%a, %b) : f32[4]",
            "return y = %y",
        ),
        "cse",
    )
    found = forward(recording, find_value(recording.start, "b"))
    assert steps(found) == [("cse", "cse")]
    assert found.events[0].after == ["%a : f32[4]"]
    assert names(recording, found.now) == ["%a"]
    back = backward(recording, find_value(recording.end, "a"))
    assert [text.split()[0] for _, text in back.origins] == ["%a", "%b"]


def test_copies_partition_fusion_and_inlining():
    recording = mini("default{tp=2}")
    norm = find_value(recording.start, "%4", "decode")
    found = forward(recording, norm)
    assert steps(found) == [
        ("specialize", "copied"),
        ("partition", "copied"),
        ("legalize", "inline rms_norm"),
    ]
    assert len(found.now) == 1
    assert len(found.inside) > 5
    query = forward(recording, find_value(recording.start, "%5", "decode"))
    assert ("fuse-projections", "fuse-siblings") in steps(query)
    assert [v.op.name for v in query.now if v.op is not None] == ["slice"]


def test_a_weight_is_followed_into_its_preparation():
    recording = mini("default{tp=2}")
    name = "%model.layers.0.mlp.gate_proj.weight"
    found = forward(recording, find_value(recording.start, name, "decode"))
    places = recording.end.places()
    assert {places[value][0] for value in found.now} == {"weights.rank"}
    assert steps(found)[-1] == ("lift-weights", "copied")


@pytest.mark.parametrize("pipeline", ["default", "default{tp=2}", "default{tp=2,target=trn2}"])
def test_back_from_every_lowered_op_of_a_layer_to_where_it_was_written(pipeline: str):
    recording = mini(pipeline)
    program = recording.module.function("decode.b1.c8")
    checked = 0
    for op in program.block:
        if not op.loc.scope.startswith("model.layers.1") or not op.loc.line:
            continue
        for value in op.results:
            found = backward(recording, value)
            assert found.origins, op
            assert value in [*found.now, *found.inside]
            lines = [line_of(recording, text) for _, text in found.origins]
            # Merged ops have several origins; one of them is where the op says it is from.
            assert (op.loc.file, op.loc.line) in lines or op.name == "constant"
            checked += 1
    assert checked > 40


def line_of(recording: Recording, text: str) -> tuple[str, int]:
    name = text.removeprefix("arg ").split()[0].rstrip(",")
    value: Value = find_value(recording.start, name, "decode")
    return (value.op.loc.file, value.op.loc.line) if value.op is not None else ("", 0)


def test_forward_and_back_agree():
    recording = mini("default{tp=2}")
    for op in list(recording.start.ops["decode"])[:20]:
        (value,) = op.op.results[:1]
        for now in forward(recording, value).now:
            origins = [text.split()[0] for _, text in backward(recording, now).origins]
            assert recording.start.names[value] in [name.rstrip(",") for name in origins]


def test_a_name_that_is_not_there_or_is_there_twice():
    recording = mini("canonicalize")
    with pytest.raises(GraphgenError, match=r"GG0202.*no value %seq_id in @decode") as missing:
        find_value(recording.start, "seq_id", "decode")
    assert missing.value.help == "did you mean %seq_ids?"
    with pytest.raises(GraphgenError, match="%5 is in @prefill and @decode") as twice:
        find_value(recording.start, "5")
    assert twice.value.help == "choose one: --program prefill"


def test_into_a_layer_that_is_outlined_and_out_again():
    recording = mini("default,outline-layers")
    value = find_value(recording.start, "%5", "decode")
    found = forward(recording, value)
    places = recording.end.places()
    homes = {places[now][0] for now in found.now}
    assert len(homes) == 1
    assert not homes & {"decode.b1.c8"}
    back = backward(recording, found.now[0])
    # Both layers share the body.
    texts = [text for home, text in back.origins if home == "decode"]
    assert ["q_proj" in text for text in texts] == [True, True]
    both = mini("default,outline-layers,inline-calls")
    again = forward(both, find_value(both.start, "%2", "decode"))
    places = both.end.places()
    assert {places[now][0] for now in [*again.now, *again.inside]} == {"decode.b1.c8"}
