"""Pipelines: from text and back, in order, verified after each pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import pytest

from graphgen.analysis import fingerprint
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype, tensor
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import PASSES, Pass, Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.core.options import format_option
from graphgen.passes.core.order import check_order
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.pipelines import default
from graphgen.passes.pipelines import parse as named
from graphgen.passes.programs.specialize import Specialize
from graphgen.targets import target_names
from graphgen.text import parse, print_module

SMALL = CompileConfig(batch=(1, 2), context=(8,), tokens=(8, 16), slots=32)


def test_a_pipeline_is_read():
    read = parse_pipeline("canonicalize, specialize{batch=[1,2],in_place=true},dce")
    assert read == [
        Canonicalize(),
        Specialize(batch=(1, 2), in_place=True),
        DeadCodeElimination(),
    ]
    assert parse_pipeline("") == parse_pipeline("  ") == []
    assert parse_pipeline("dce{}") == [DeadCodeElimination()]


@pytest.mark.parametrize(
    "text",
    [
        "specialize{batch=[1,2],rows=4,in-place=true}",
        " specialize { batch = [ 1, 2 ] , rows=4 , in_place = true } ".replace(" {", "{"),
    ],
)
def test_spaces_and_dashes_make_no_difference(text: str):
    assert parse_pipeline(text) == [Specialize(batch=(1, 2), rows=4, in_place=True)]


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_pipeline_is_written_as_it_is_read(tp: int):
    pipeline = default(replace(SMALL, tp=tp, min_rows=4))
    text = ",".join(map(str, pipeline))
    assert parse_pipeline(text) == pipeline
    assert ("shard" in text) == (tp > 1)


def test_options_at_their_defaults_are_not_written():
    assert str(Legalize()) == "legalize"
    assert str(Legalize(min_rows=4)) == "legalize{min_rows=4}"
    assert str(Specialize(batch=(2,), in_place=True)) == "specialize{batch=[2],in_place=true}"
    assert format_option((1, 2)) == "[1,2]"
    assert format_option(False) == "false"


def test_the_default_pipeline_without_a_target_of_its_own():
    assert "cache-as-bits" in [item.name for item in default(SMALL)]
    assert "cache-as-bits" not in [item.name for item in default(replace(SMALL, target="inf2"))]
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(
            build(known_shape("llama-3.1-8b"), f32, mini=True),
            default(replace(SMALL, target="abacus")),
        )
    assert caught.value.code == "GG0302"
    assert caught.value.help == f"targets: {', '.join(target_names())}"


BAD = """
canonicalise
dead-code
zzz
dce,,dce
dce;canonicalize
canonicalize{x=1}
specialize{batches=[1]}
specialize{batch}
specialize{batch=[1],garbage}
specialize{batch=[1] tokens=[2]}
specialize{batch=[1,x]}
specialize{batch=[1}
specialize{batch=[1],batch=[2]}
specialize{in_place=yes}
specialize{rows=many}
legalize{min_rows=}
specialize{batch=[1]
"""


def test_mistakes_are_named(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for text in BAD.strip().splitlines():
        with pytest.raises(GraphgenError) as caught:
            parse_pipeline(text)
        assert caught.value.code in ("GG0301", "GG0302")
        # Which passes there are is tested elsewhere.
        help = caught.value.help
        message = str(caught.value)
        if help.startswith("known: "):
            assert set(help.removeprefix("known: ").split(", ")) >= {"dce", "legalize"}
            message = message.replace(help, "known: ...")
        shown.append(f"## {text}\n{message}")
    golden("passes/pipeline_errors.txt", "\n\n".join(shown))


# What cannot run where it stands: the pass, the message, where it stands, what to do.
ORDER = """
legalize,legalize
legalize,cache-as-bits
partition,shard{tp=2}
partition,partition
partition,canonicalize
lift-weights,lift-weights
lift-weights,fuse-projections
lift-weights,shard{tp=2},partition
shard{tp=2},fuse-projections
shard{tp=2},legalize
shard{tp=2},partition,lift-weights,partition
shard{tp=2},cse,dce,cache-as-bits,partition
"""


def test_the_order_of_passes_is_checked_before_any_runs(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for text in ORDER.strip().splitlines():
        module = build(known_shape("llama-3.1-8b"), f32, mini=True)
        before = fingerprint(module)
        passes = parse_pipeline("specialize{batch=[1],context=[4],tokens=[4]}," + text)
        with pytest.raises(GraphgenError) as caught:
            run_pipeline(module, passes)
        assert caught.value.code == "GG0303"
        assert fingerprint(module) == before
        shown.append(f"## {text}\n{caught.value}")
    golden("passes/pipeline_order.txt", "\n\n".join(shown))


def test_the_order_is_checked_from_where_the_module_is():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(module, parse_pipeline("legalize"))
    assert caught.value.what == "legalize needs 'specialized': every size is a number"
    assert caught.value.help == "run specialize before it"
    run_pipeline(module, parse_pipeline("specialize{batch=[1],context=[4],tokens=[4]},legalize"))
    # Facts are computed from the module, so they survive its text.
    again = parse(print_module(module))
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(again, parse_pipeline("dce,canonicalize"))
    assert caught.value.where == "pass 2 of 2: canonicalize"
    assert caught.value.help == "`graphgen passes canonicalize` shows where it belongs"


def test_without_a_module_only_what_is_wrong_with_every_module_is_refused():
    check_order(parse_pipeline("legalize,cse,dce"))
    check_order(parse_pipeline("partition,fuse-projections,lift-weights"))
    for text in ("legalize,canonicalize", "lift-weights,fuse-projections", "shard,legalize"):
        with pytest.raises(GraphgenError, match="GG0303"):
            named(text)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_default_pipeline_is_in_order(tp: int):
    check_order(default(replace(SMALL, tp=tp)))


def test_reports_say_what_each_pass_did():
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    before = module.op_count()
    seen: list[tuple[str, str]] = []
    reports = run_pipeline(
        module, default(SMALL), after=lambda item, now: seen.append((item.name, now.level))
    )
    assert [name for name, _ in seen] == [item.name for item in default(SMALL)]
    levels = list(dict.fromkeys(level for _, level in seen))
    assert levels == ["canonical", "target"]
    assert reports[0].ops_before == before
    for one, following in pairwise(reports):
        assert one.ops_after == following.ops_before
    assert reports[-1].ops_after == module.op_count()
    assert [report.name for report in reports] == [str(item) for item in default(SMALL)]
    named = {report.name.partition("{")[0]: report for report in reports}
    # A bucket each, and the states.
    assert named["specialize"].applications == 2 * 1 + 2 * 2 + 1
    assert named["dce"].ops_before - named["dce"].ops_after == named["dce"].applications


@dataclass(frozen=True)
class Breaking(Pass):
    """Leaves a module that is not well formed."""

    name: ClassVar[str] = "breaking"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        next(module.function("f").ops).result.type = tensor(f32, (7,))


ONE = """\
module @m level=logical {
}

func @f {
  arg %x : f32[4]
  %y = negate(%x) : f32[4]
  return y = %y
}
"""


def test_a_pass_that_breaks_the_module_is_named():
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(ONE), [Breaking()])
    assert caught.value.code == "GG0203"
    assert caught.value.help == "the pass breaking left this; a defect of the pass"
    # Only when asked not to look does it go through.
    run_pipeline(parse(ONE), [Breaking()], verify=0)


def test_a_pass_registers_once():
    assert "breaking" not in PASSES
    assert PASSES["dce"] is DeadCodeElimination


def test_a_former_name_of_a_pass_still_reads():
    (former,), (today,) = map(
        parse_pipeline, ("stripe-cache{stripes=2}", "flash-decoding{stripes=2}")
    )
    assert former == today
    assert str(former) == "flash-decoding{stripes=2}"
    assert "stripe-cache" not in PASSES
