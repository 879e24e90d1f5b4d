"""Fuel: every pass stops after exactly so many rewrites, and what it leaves means the same."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.session import Runner
from graphgen.ir import Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.models.family_module import build_module
from graphgen.models.llama import LLAMA
from graphgen.passes.attention.tile_attention import TileAttention
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.core.fuel import fuel_ranges, parse_fuel
from graphgen.passes.core.journal import Journal
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.validate import validate
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.pipeline_stages import (
    ELSEWHERE,
    every_pass,
    looped,
    mixed,
    our_passes,
    scattered,
    stage,
    untidy,
)
from tests.oracles.planted_bugs import CONFIG
from tests.oracles.planted_bugs_inside_passes import INSIDE, Broken, Inside

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))

# Passes that find nothing to do in a model as it is written.
TIDYING = (
    "raise-composites",
    "canonicalize",
)
# Passes that find nothing to do on two ranks.
RANKS = {"heads": 4, "gather-heads": 4}

# Passes that make one rewrite of all programs, since those share the interface.
AT_ONCE = ("on-device-sampling",)
# Passes that need another model than Llama to have something to do.
MODELS = {
    "unfuse-projections": "gpt2",
    "roll-window-cache": "mistral-7b",
    "absorb-latent-projections": "deepseek-v2-lite",
}


def before(name: str, element: str = "bf16", tp: int = 2, without: str = "") -> tuple[Module, Pass]:
    """A mini model as the pass called ``name`` gets it, and the pass."""
    earlier, item = stage(name, BUCKETS, tp=tp)
    earlier = [each for each in earlier if each.name != without]
    # Attention of these buckets has one tile.
    item = TileAttention("3x5") if name == TileAttention.name else item
    if name in MODELS:
        module = build(known_shape(MODELS[name]), dtype(element), mini=True)
    else:
        module = build_module(LLAMA, CONFIG, dtype(element))
    run_pipeline(module, earlier)
    return module, item


@pytest.mark.parametrize("name", [name for name in our_passes() if name not in ELSEWHERE])
@pytest.mark.one_in(14)
def test_a_pass_stops_where_its_fuel_ends(name: str):
    # The kernels take the products that integer-products is for, and attention.
    taken = name in ("integer-products", TileAttention.name)
    without = "select-kernels" if taken else ""
    module, item = before(name, tp=RANKS.get(name, 2), without=without)
    if name in TIDYING:
        untidy(module)
    if name == "unroll-loops":
        looped(module)
    if name == "dispatch-experts":
        mixed(module)
    if name == "merge-collectives":
        scattered(module)
    journal = Journal()
    total = apply_pass(clone_module(module), item, journal).applications
    assert total == len(journal.applications) > (0 if name in AT_ONCE else 1)
    script = make_workload(module, seed=1)
    wanted = Runner(module, script).outcomes()
    for fuel in sorted({0, 1, total // 3, total // 2, total - 1, total}):
        if fuel > total or fuel < 0:
            continue
        stopped = clone_module(module)
        again = Journal()
        rewriter = apply_pass(stopped, item, again, fuel)
        assert rewriter.applications == fuel
        assert [str(a) for a in again.applications] == [str(a) for a in journal.applications[:fuel]]
        assert compare(wanted, Runner(stopped, script).outcomes()).relative <= 1e-9


@pytest.mark.one_in(11)
@pytest.mark.parametrize("bug", INSIDE, ids=[bug.name for bug in INSIDE])
def test_a_bug_inside_a_pass_is_blamed_on_the_first_wrong_rewrite(bug: Broken):
    # The ops that a kernel computes are in a function of their own; these bugs are in programs.
    module, right = before(bug.item, tp=bug.tp, without="select-kernels")
    item = Inside(right, bug.breaks)
    apply_pass(clone_module(module), item, journal := Journal())
    wanted = next(a.number for a in journal.applications if bug.guilty(a))
    script = make_workload(module, seed=1, shuffled=bug.shuffled)
    (verdict,) = validate(module, [item], script)
    assert not verdict.means_the_same
    assert verdict.guilty is not None
    assert str(verdict.guilty) == str(journal.applications[wanted - 1])
    # Without the bug nothing is found at the same place.
    (verdict,) = validate(module, [right], make_workload(module, seed=1))
    assert verdict.ok


def test_bugs_are_planted_in_every_pass_that_works_by_hand():
    assert {bug.item for bug in INSIDE} == {
        "legalize",
        "specialize",
        "lift-weights",
        "fuse-projections",
    }


def test_every_pass_is_tried_somewhere():
    tried = {item.name for item in every_pass(BUCKETS, tp=2, quantized=True)}
    assert set(our_passes()) <= {*tried, *ELSEWHERE}, (
        "give the pass its place in tests/oracles/pipeline_stages.py"
    )


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.one_in(4)
def test_every_pass_means_the_same_where_it_is_tried(tp: int, quantized: bool):
    module = build_module(LLAMA, CONFIG, dtype("bf16"))
    script = make_workload(module, seed=2)
    wanted = Runner(module, script).outcomes()
    seen: list[str] = []

    def after(item: Pass, now: Module) -> None:
        seen.append(item.name)
        assert compare(wanted, Runner(now, script).outcomes()).relative <= 1e-9, item.name

    passes = every_pass(BUCKETS, tp=tp, quantized=quantized)
    run_pipeline(module, passes, after=after)
    assert len(seen) == len(passes)


NEGATED = """module @m level=logical {
}

func @f {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %b = negate(%a) : f32[4]
  %c = negate(%b) : f32[4]
  %d = negate(%c) : f32[4]
  return y = %x
}
"""


@pytest.mark.parametrize(
    ("fuel", "left"),
    [
        ("dce=[1]", ["a", "b", "c"]),
        ("dce=[1-2]", ["a", "b"]),
        ("dce=[1,2,4]", ["a", "b"]),
        ("dce=[]", ["a", "b", "c", "d"]),
        ("dce=3,cse=[1-4]", ["a"]),
    ],
)
def test_fuel_chooses_single_rewrites(fuel: str, left: list[str]):
    module = parse(NEGATED)
    passes = parse_pipeline("cse,dce")
    reports = run_pipeline(module, passes, fuel=parse_fuel(fuel, "fuel"))
    assert [op.result.name for op in module.function("f").block] == left
    assert reports[1].stopped


def test_a_pass_that_leaves_nothing_out_is_refused():
    with pytest.raises(GraphgenError, match=r"GG0304.*specialize cannot leave out single rewrites"):
        run_pipeline(
            build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True),
            parse_pipeline("specialize{context=[8],tokens=[8]}"),
            fuel=parse_fuel("specialize=[2]", "fuel"),
        )
    with pytest.raises(GraphgenError, match=r"GG0705.*fuel=dce=\[1-\] is not an amount of fuel"):
        parse_fuel("dce=[1-]", "fuel")


def test_numbers_are_written_as_they_are_read():
    assert fuel_ranges([8, 1, 2, 3]) == "[1-3,8]"
    fuel = parse_fuel("dce=[1-3,8]", "fuel")
    assert fuel.chosen == {"dce": frozenset({1, 2, 3, 8})}
