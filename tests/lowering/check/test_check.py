"""Rules about neuronx-cc: each fires where it should, and is silent beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir.dtype import bf16
from graphgen.lowering.check.check import SEVERITIES, Finding, check
from graphgen.lowering.check.compiler_rules import module_rules, rules_by_op
from graphgen.lowering.check.predicates import PREDICATES, Request
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

TRN2, TRN1 = Request("trn2", 2), Request("trn1", 1)


def found(lines: str, request: Request = TRN2, mesh: str = "") -> list[Finding]:
    body = "".join(f"  {line.strip()}\n" for line in lines.strip().splitlines())
    text = f"module @m level=target{mesh} {{\n}}\n\nfunc @f phase=decode {{\n{body}}}\n"
    return check(parse(text), request)


def ids(lines: str, request: Request = TRN2, mesh: str = "") -> dict[str, str]:
    items = found(lines, request, mesh)
    return {item.rule: item.severity for item in items if item.severity != "info"}


def test_every_condition_of_every_rule_is_understood():
    rules = [rule for group in rules_by_op().values() for rule in group]
    assert len(rules) > 50
    assert {name for rule in rules for name in rule.when} <= set(PREDICATES)
    assert {rule.severity for rule in [*rules, *module_rules().values()]} <= set(SEVERITIES)
    assert all(rule.trust and rule.source for rule in [*rules, *module_rules().values()])


DOT = """
    arg %x : {kind}[2,128]
    arg %w : {kind}[4,128]
    %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype={kind} : \
{kind}[2,4]
"""


@pytest.mark.parametrize(
    ("request_", "severity"),
    [
        (TRN2, "warn"),
        (Request("trn2", 2, sdk_next=True), "error"),
        (Request("trn2", 2, "--implicit-integer-downcast=dot", sdk_next=True), "warn"),
        (Request("trn2", 2, "--implicit-integer-downcast=scatter", sdk_next=True), "error"),
        (TRN1, None),
    ],
)
def test_integer_products_as_the_flags_and_the_sdk_say(request_: Request, severity: str | None):
    assert ids(DOT.format(kind="s32"), request_).get("int-dot-trn2") == severity


def test_a_float_product_of_full_tiles_is_fine():
    assert found(DOT.format(kind="bf16")) == []


def test_a_narrow_contraction_is_slow():
    assert ids(DOT.format(kind="bf16").replace("128", "96")) == {"dot-contract-128": "perf"}


REDUCE = """
    arg %x : {kind}[4,2]
    %y = all_reduce(%x) kind=add replica_groups={groups} : {kind}[4,2]
"""


def test_collectives():
    sdk_next = Request("trn2", 2, sdk_next=True)
    whole = REDUCE.format(kind="s32", groups="[[0,1,2,3]]")
    assert ids(whole, sdk_next, " mesh=tp:4") == {"coll-int": "error"}
    fine = REDUCE.format(kind="bf16", groups="[[0,1],[2,3]]")
    assert ids(fine, sdk_next, " mesh=tp:4") == {}
    uneven = REDUCE.format(kind="bf16", groups="[[0,1,2],[3]]")
    assert ids(uneven, TRN2, " mesh=tp:4") == {"ar-groups": "error"}


def test_a_running_sum_by_windows_is_slow_and_not_refused():
    """A window's start is an operand here, as in HLO."""
    lines = """
        arg %x : s32[4]
        %zero = constant() value=s32[](0) : s32[]
        %y = reduce_window(%x, %zero) window_dimensions=[4] low=[3] kind=add : s32[4]
    """
    assert ids(lines) == {"rw-cumsum": "perf"}


WINDOWS = """\
HloModule windows

%both (a: f32[], b: f32[], c: f32[], d: f32[]) -> (f32[], f32[]) {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = f32[] parameter(2)
  %d = f32[] parameter(3)
  %e = f32[] add(%a, %c)
  %f = f32[] maximum(%b, %d)
  ROOT %g = (f32[], f32[]) tuple(%e, %f)
}

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[7], f32[7]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %z = f32[] constant(0)
  ROOT %w = (f32[7], f32[7]) reduce-window(%x, %y, %z, %z), window={size=2}, to_apply=%both
}
"""


def test_windows_of_two_operands_are_refused():
    module = read_hlo(parse_hlo_text(WINDOWS))
    found = {item.rule for item in check(module, TRN2) if item.severity == "error"}
    assert found == {"rw-operands"}


def test_a_type_that_is_none_of_the_device():
    lines = "arg %x : f64[4]\n%y = negate(%x) : f64[4]"
    assert ids(lines)["dtype"] == "error"


@pytest.mark.parametrize("target", ["inf2", "trn1", "trn2", "trn3"])
def test_an_argument_of_a_type_that_only_some_have(target: str):
    lines = "arg %x : f8e4m3fn[4]\n%y = convert(%x) dtype=bf16 : bf16[4]"
    request = Request(target, 1 if target in ("inf2", "trn1") else 2)
    assert ("dtype" in ids(lines, request)) == (target != "trn3")


def test_more_memory_than_a_core_has():
    lines = "arg %x : bf16[4,1073741824]\n%y = negate(%x) : bf16[4,1073741824]"
    assert ids(lines, TRN1) == {"tensor-4gb": "error", "hbm": "error"}
    assert "of 17.2 GB on a core" in found(lines, TRN1)[-1].what


def test_an_iota_that_runs_past_its_table():
    lines = """
        arg %t : bf16[8,128]
        %i = iota() shape=[{n}] dimension=0 dtype=s32 : s32[{n}]
        %r = reshape(%i) shape=[{n},1] : s32[{n},1]
        %y = gather(%t, %r) offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1,128] : bf16[{n},128]
    """
    # 8 rows of 128: what the rule can prove is that an index passes the largest dimension.
    assert ids(lines.format(n=129)) == {"gather-iota-oob": "error"}
    assert ids(lines.format(n=8)) == {}


@pytest.mark.parametrize("target", ["inf2", "trn1", "trn2", "trn3"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "smollm2-135m"])
def test_our_own_programs_hold_nothing_that_is_refused(model: str, target: str):
    module = build(known_shape(model), bf16, mini=True)
    run_pipeline(module, default(CompileConfig(tokens=(128,), target=target)))
    lnc = 1 if target in ("inf2", "trn1") else 2
    assert [item for item in check(module, Request(target, lnc)) if item.severity == "error"] == []


def test_a_module_that_is_not_lowered_says_so():
    module = build(known_shape("smollm2-135m"), bf16, mini=True)
    assert {item.rule for item in check(module, TRN2)} & {"verify"}


def test_unknown_targets():
    with pytest.raises(GraphgenError, match="unknown target 'tpu'"):
        found(DOT.format(kind="bf16"), Request("tpu", 1))
    with pytest.raises(GraphgenError, match="no logical cores of 2"):
        found(DOT.format(kind="bf16"), Request("trn1", 2))


def test_the_command(tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(build(known_shape("smollm2-135m"), bf16, mini=True)))
    fine = CliRunner().invoke(app, ["check", str(file), "--target", "trn2"])
    assert fine.exit_code == 0
    assert "no compiler ran" in fine.stdout
    body = "".join(f"  {line.strip()}\n" for line in DOT.format(kind="s32").strip().splitlines())
    text = f"module @m level=target {{\n}}\n\nfunc @f {{\n{body}}}\n"
    file.write_text(text)
    args = ["check", str(file), "--target", "trn2", "--sdk-next", "--json"]
    refused = CliRunner().invoke(app, args)
    assert refused.exit_code == 1
    (item,) = json.loads(refused.stdout)["findings"]
    assert (item["code"], item["severity"], item["trust"]) == ("NCC_EVRF035", "error", "official")


FOREIGN = """\
HloModule foreign

%product (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] multiply(%a, %b)
}

ENTRY %main (x: f32[4,8], i: s32[4]) -> (f32[4,8], f32[8]) {
  %x = f32[4,8]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  %all = f32[4,8]{1,0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%product
  %one = f32[] constant(1)
  %down = f32[8]{0} reduce(%x, %one), dimensions={0}, to_apply=%product, turbo={level=3}
  ROOT %out = (f32[4,8]{1,0}, f32[8]{0}) tuple(%all, %down)
}
"""


def test_instructions_without_an_op_are_judged_by_what_they_say():
    module = read_hlo(parse_hlo_text(FOREIGN))
    assert [op.name for op in module.programs()[0].ops].count("hlo.opaque") == 2
    found = {item.rule: item.severity for item in check(module, TRN2) if item.severity == "error"}
    # Across ranks nothing is multiplied; within one that is fine.
    assert found == {"ar-mul": "error"}
    # Without an attribute that nobody knows the reduction has an op, and is judged alike.
    module = read_hlo(parse_hlo_text(FOREIGN.replace(", turbo={level=3}", "")))
    assert [op.name for op in module.programs()[0].ops] == ["hlo.opaque", "reduce"]
    assert {item.rule for item in check(module, TRN2) if item.severity == "error"} == {"ar-mul"}


COMPLEX = """\
HloModule complex_numbers

ENTRY %main (x: f32[8], w: c64[8], v: c128[8]) -> (f32[8], pred[8], c128[8], c64[5]) {
  %x = f32[8]{0} parameter(0)
  %w = c64[8]{0} parameter(1)
  %v = c128[8]{0} parameter(2)
  %z = c64[8]{0} complex(%x, %x)
  %p = c64[8]{0} multiply(%z, %w)
  %r = f32[8]{0} real(%p)
  %same = pred[8]{0} compare(%p, %w), direction=EQ
  %n = c128[8]{0} negate(%v)
  %f = c64[5]{0} fft(%x), fft_type=RFFT, fft_length={8}
  ROOT %out = (f32[8], pred[8], c128[8], c64[5]) tuple(%r, %same, %n, %f)
}
"""


@pytest.mark.parametrize("target", ["inf2", "trn1", "trn2", "trn3"])
def test_complex_numbers_are_refused_by_name(target: str):
    module = read_hlo(parse_hlo_text(COMPLEX))
    request = Request(target, 1 if target in ("inf2", "trn1") else 2)
    items = [item for item in check(module, request) if item.rule in ("complex", "dtype")]
    assert {(item.severity, item.code) for item in items} == {("error", "NCC_EVRF004")}
    assert sorted(item.what.partition(":")[0] for item in items) == [
        "compare of c64[8]", "complex of c64[8]", "fft of c64[5]", "multiply of c64[8]",
        "negate of c128[8]", "parameter of c128[8]", "parameter of c64[8]", "real of c64[8]",
    ]  # fmt: skip


def test_complex_numbers_of_the_next_sdk():
    module = read_hlo(parse_hlo_text(COMPLEX))
    items = check(module, Request("trn2", 2, sdk_next=True))
    refused = [item.op for item in items if item.rule == "complex" and item.severity == "error"]
    assert sorted(refused) == ["fft", "negate", "parameter"]
    warned = [item.op for item in items if item.rule == "complex" and item.severity == "warn"]
    assert sorted(warned) == ["compare", "complex", "multiply", "parameter", "real"]


def test_real_programs_have_no_complex_numbers():
    assert "complex" not in ids(DOT.format(kind="f32"))


@pytest.mark.parametrize("groups", ["{{0,1},{2}}", "{{0},{1},{0}}"])
def test_the_groups_of_such_an_instruction(groups: str):
    module = read_hlo(parse_hlo_text(FOREIGN.replace("{{0,1},{2,3}}", groups)))
    assert "ar-groups" in {item.rule for item in check(module, TRN2)}
