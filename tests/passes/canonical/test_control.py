"""Passes and tools on programs with loops and choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.ir import Module
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.check.check import Request, check
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.inspect.normalize import normalized
from graphgen.passes.inspect.slice import ops_called, sliced
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.report.diff import diff_functions
from graphgen.text import parse, print_module
from tests.graphgen.cli.conftest import done, facts, graphgen

TEXT = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
# A product with a weight before the loop.
WEIGHT = (
    TEXT.replace("  input %x", "  weight %w : f32[4,4]\n  input %x")
    .replace("phase=main {\n", "phase=main {\n  arg %w : f32[4,4]\n")
    .replace(
        "  %n, %y = while(%i, %x)",
        "  %d = dot_general(%x, %w) lhs_contracting_dims=[0] rhs_contracting_dims=[1] dtype=f32 "
        ": f32[4]\n  %n, %y = while(%i, %d)",
    )
)
RENAMED = TEXT.replace("@step", "@turn").replace("body=step", "body=turn")
OTHER = RENAMED.replace("%y = add(%x, %x)", "%y = multiply(%x, %x)")


@pytest.mark.parametrize(
    "passes",
    [
        "shard{tp=2,rules=[w:{tp,-}]},pad-to-mesh,partition,lift-weights,legalize,cse,dce",
        "quantize-weights{skip=[]},lift-weights,legalize,outline-layers,dce",
        "canonicalize,simplify-shape,fold-constants,cse,inline-calls,legalize{target=trn2},dce",
    ],
)
def test_passes_keep_what_loops_compute(passes: str):
    module = parse(WEIGHT)
    checked = validate(module, pipeline(passes), make_workload(module))
    assert [item.pass_text for item in checked if not item.ok] == []


def test_what_is_cut_is_put_together_before_a_loop():
    module = parse(WEIGHT)
    run_pipeline(module, pipeline("shard{tp=2,rules=[w:{tp,-}]},pad-to-mesh,partition"))
    loop = next(op for op in module.function("f").block if op.name == "while")
    gathered = loop.operands[1].op
    assert gathered is not None
    assert gathered.name == "all_gather"


def test_what_a_loop_makes_of_weights_stays_in_the_program():
    text = WEIGHT.replace("while(%i, %d)", "while(%c, %v)").replace(
        "  %d = dot",
        "  %c = constant() value=s32[](0) : s32[]\n"
        "  %v = reduce(%w) dimensions=[0] kind=add : f32[4]\n  %d = dot",
    )
    module = parse(text)
    run_pipeline(module, pipeline("lift-weights"))
    assert [op.name for op in module.functions["weights.global"].block] == ["reduce"]
    assert "while" in [op.name for op in module.function("f").block]


def test_two_loops_alike_are_one_unless_they_draw():
    again = "  %o, %w = while(%i, %x) condition=below body=step : s32[], f32[4]\n"
    text = TEXT.replace("  %z = cond", f"{again}  %z = cond").replace("takes=[1,2]", "takes=[1,2]")
    text = text.replace("(%i, %x, %x, %y)", "(%i, %x, %w, %y)")

    def loops(text: str) -> int:
        module = parse(text)
        verify(module)
        run_pipeline(module, pipeline("cse"))
        return sum(op.name == "while" for op in module.function("f").block)

    assert loops(text) == 1
    draw = '%y = hlo.opaque(%x) opcode="rng" results=[f32[4]] : f32[4]'
    assert loops(text.replace("%y = add(%x, %x) : f32[4]", draw)) == 2


def test_a_branch_that_acts_is_not_dead():
    call = 'custom_call(%x) target="tell" more="880401" results=[f32[4]]'
    text = TEXT.replace("%y = negate(%x)", f"%y = {call}")
    text = text.replace("  output %z : f32[4]\n", "").replace("  return z = %z\n", "")
    for each, left in ((text, True), (text.replace(' more="880401"', ""), False)):
        module = parse(each)
        run_pipeline(module, pipeline("dce"))
        assert ("conditional" in [op.name for op in module.function("f").block]) == left


def test_buckets_have_bodies_of_their_own():
    text = TEXT.replace("f32[4]", "f32[B]").replace("phase=main", "phase=decode")
    module = parse(text)
    run_pipeline(module, pipeline("specialize{batch=[2,4],tokens=[16]}"))
    verify(module)
    assert list(module.functions) == [
        *("below.f.b2.c16", "step.f.b2.c16", "less.f.b2.c16", "more.f.b2.c16", "f.b2.c16"),
        *("below.f.b4.c16", "step.f.b4.c16", "less.f.b4.c16", "more.f.b4.c16", "f.b4.c16"),
    ]
    x = np.ones(4, np.float32)
    found = module.evaluate({"i": 3, "x": x}, program="f.b4.c16")
    np.testing.assert_array_equal(np.asarray(found["y"]), 4 * x)


def differ(one: str, other: str) -> tuple[list[str], list[list[str]]]:
    modules = (parse(one), parse(other))
    found = diff_functions(modules, *[module.function("f") for module in modules])
    inside = [[change.what for change in body.changes] for body in found.bodies]
    return [change.what for change in found.changes], inside


def test_names_of_bodies_make_no_difference_and_what_is_in_them_does():
    assert differ(TEXT, RENAMED) == ([], [])
    assert differ(TEXT, OTHER) == (["while: @step / @turn"], [["add / multiply"]])
    swapped = TEXT.replace("](5)", "](6)")
    assert differ(TEXT, swapped)[1] == [["constant: value s32[](5) / s32[](6)"]]


def test_the_command_shows_the_bodies(tmp_path: Path):
    paths = [tmp_path / name for name in ("a.gg", "b.gg", "c.gg")]
    for path, text in zip(paths, (TEXT, RENAMED, OTHER), strict=True):
        path.write_text(text)
    assert done("diff", paths[0], paths[1]).stdout.startswith("equal: @f and @f")
    result = graphgen("diff", paths[0], paths[2])
    assert result.exit_code == 1
    out = result.stdout
    assert "first difference: add / multiply" in out
    assert "A @step: 3 ops    B @turn: 3 ops, 2 of them equal" in out


def test_normal_forms_name_bodies_by_order():
    one, two = (print_module(normalized(parse(text))) for text in (TEXT, RENAMED))
    assert one == two
    assert "body=body1" in one
    assert print_module(normalized(parse(OTHER))) != one
    verify(parse(one))


def test_a_slice_takes_bodies_along():
    module = parse(TEXT)
    made = sliced(module, module.function("f"), ops_called(module.function("f"), ["%y"]))
    verify(made)
    assert list(made.functions) == ["below", "step", "f"]
    x = np.ones(4, np.float32)
    found = made.evaluate({"i": 3, "x": x})
    assert any(np.array_equal(np.asarray(array), 4 * x) for array in found.values())


def test_what_is_run_is_part_of_the_key():
    def key(text: str) -> str:
        module: Module = parse(text)
        return canonical_hash(module, module.function("f"), Compilation("cpu"))

    assert key(TEXT) == key(TEXT.replace("%j", "%k"))
    assert (
        len({key(TEXT), key(TEXT.replace("](5)", "](6)")), key(TEXT.replace("negate", "abs"))}) == 3
    )


def test_bodies_are_checked_for_the_target():
    text = TEXT.replace("%y = add(%x, %x) : f32[4]", "%d = convert(%x) dtype=f64 : f64[4]\n"
                        "  %y = convert(%d) dtype=f32 : f32[4]")  # fmt: skip
    module = parse(text)
    run_pipeline(module, pipeline("legalize{target=trn2}"))
    found = check(module, Request("trn2", 2))
    assert any(item.function == "step" and "f64" in item.what for item in found)


def test_inspect_shows_turns(tmp_path: Path):
    path = tmp_path / "m.gg"
    path.write_text(TEXT.replace("body=step", "body=step trip_count=7"))
    assert "while body @step, 7 turns: constant 1, add 2" in done("inspect", path).stdout
    (program,) = facts("inspect", path)["programs"]
    assert [body["turns"] for body in program["bodies"]] == [7, 7, None, None]
