"""Validation: planted bugs are caught and blamed, right passes are not; journal and command."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Op, Value
from graphgen.ir.clone import clone_module
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import (
    NoMatch,
    Pass,
    Rewriter,
    no_match,
    parse_pipeline,
    rule,
    run_pipeline,
)
from graphgen.passes.core import registry as pass_registry
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.relation import EQUAL, Take
from graphgen.passes.legalize.cpu_products import padded_rows, wide_dot
from graphgen.passes.pipelines import default
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module
from tests.graphgen.cli.conftest import done, error, graphgen, process
from tests.oracles.planted_bugs import (
    BUGS,
    CONFIG,
    NO_BUGS,
    RANKS,
    SIMPLE,
    Bug,
    Planted,
    model,
    script,
)
from tests.oracles.planted_bugs_on_ranks import RANK_BUGS
from tests.oracles.planted_bugs_quantized import QUANTIZED_BUGS

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
PLANTED = (*BUGS, *QUANTIZED_BUGS, *RANK_BUGS)


def names(bugs: Sequence[Bug]) -> list[str]:
    return [bug.name for bug in bugs]


def test_a_right_pass_has_no_guilty_rewrite_although_its_budget_is_nothing():
    """Numbers that are equal to the bit are within a budget of 0."""
    module = parse(
        "module @m level=logical {\n  input %x : f32[2]\n  output %y : f32[2]\n}\n\n"
        "func @f phase=main {\n  arg %x : f32[2]\n  %a = negate(%x) : f32[2]\n"
        "  %b = negate(%x) : f32[2]\n  %y = add(%a, %b) : f32[2]\n  return y = %y\n}\n"
    )
    (verdict,) = validate(module, parse_pipeline("cse"), make_workload(module, seed=0))
    assert (verdict.budget, verdict.rounding.relative) == (0.0, 0.0)
    assert verdict.ok
    assert (verdict.guilty, verdict.together, verdict.first) == (None, (), None)


# ---- planted bugs --------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", PLANTED, ids=names(PLANTED))
@pytest.mark.one_in(6)
def test_a_planted_bug_is_caught_and_the_rewrite_named(bug: Bug):
    module, item = model(bug.after, bug.element, bug.windowed), Planted(bug)
    apply_pass(clone_module(module), item)
    assert item.history.count(True) == 1
    number = item.history.index(True) + 1
    (verdict,) = validate(
        module, [item], script(bug.after, bug.element, bug.shuffled, bug.windowed)
    )
    assert not verdict.ok
    assert verdict.means_the_same == bug.rounding
    guilty = verdict.guilty
    assert guilty is not None
    assert (guilty.number, guilty.rule, guilty.function, guilty.loc.scope) == (
        number,
        bug.name,
        bug.program,
        bug.scope,
    )
    assert f" = {bug.root}(" in guilty.root


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bug", PLANTED, ids=names(PLANTED))
def test_the_same_pass_without_the_bug_is_exact(bug: Bug):
    item = Planted(bug, harmless=True)
    (verdict,) = validate(
        model(bug.after, bug.element, bug.windowed),
        [item],
        script(bug.after, bug.element, bug.shuffled, bug.windowed),
    )
    assert len(item.history) > 1
    assert (verdict.meaning.max_abs, verdict.rounding.max_abs) == (0, 0)
    assert (verdict.ok, verdict.guilty) == (True, None)


@pytest.mark.parametrize("bug", NO_BUGS, ids=names(NO_BUGS))
def test_another_program_of_the_same_meaning_is_not_flagged(bug: Bug):
    item = Planted(bug)
    (verdict,) = validate(model(bug.after, bug.element), [item], script(bug.after, bug.element))
    assert item.history.count(True) == 1
    assert (verdict.ok, verdict.guilty) == (True, None)


def test_ignored_row_ids_show_in_shuffled_rows_only():
    bug = next(bug for bug in BUGS if bug.shuffled)
    (verdict,) = validate(model(), [Planted(bug)], script())
    assert verdict.ok


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.one_in(61)
def test_no_false_alarm_on_the_default_pipeline(seed: int, tp: int, element: str):
    module = model(element=element)
    verdicts = validate(module, default(replace(BUCKETS, tp=tp)), make_workload(module, seed))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


def test_the_guilty_pass_is_named_among_right_ones():
    bug = next(bug for bug in BUGS if bug.name == "masked-as-0")
    before, after = parse_pipeline(SIMPLE), [DeadCodeElimination()]
    seen: list[str] = []
    checks = PassChecks(on_verdict=lambda verdict: seen.append(verdict.pass_text))
    verdicts = validate(model(), [*before, Planted(bug), *after], script(), checks)
    assert [v.ok for v in verdicts] == [True, True, False, True]
    assert seen == [v.pass_text for v in verdicts]
    assert print_module(model()) == print_module(model.__wrapped__())


@dataclass(frozen=True)
class AtOnce(Pass):
    """Every residual sum becomes a difference, all at once whatever the fuel."""

    name: ClassVar[str] = "at-once"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.functions.values():
            for op in list(function.block):
                if op.name == "add":
                    made = rewriter.before(function, op).op("subtract", *op.operands)
                    rewriter.replace(function, op, [made], "subtract")


def test_a_pass_that_cannot_stop_is_to_blame_as_a_whole():
    (verdict,) = validate(model(), [AtOnce()], script())
    assert not verdict.means_the_same
    assert verdict.guilty is None


@rule("silu")
def inline_silu(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    x = op.operands[0]
    # Right for the first of two, wrong for the second.
    inner = x.producer("multiply") is not None
    return [x * b.unary("sine" if inner else "logistic", x)]


@dataclass(frozen=True)
class ToTarget(Pass):
    """Inline ``silu``."""

    name: ClassVar[str] = "to-target"
    output_stage: ClassVar[str] = "target"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.functions.values():
            rewriter.apply_rules(function, [inline_silu])


def test_blame_works_although_a_stopped_pass_is_not_at_its_level():
    # Without its last rewrite the module is not yet what the pass gives.
    module = parse(
        "module @m level=logical {\n  input %x : f32[4]\n  output %y : f32[4]\n}\n"
        "func @f phase=prefill {\n  arg %x : f32[4]\n  %a = silu(%x) : f32[4]\n"
        "  %y = silu(%a) : f32[4]\n  return y = %y\n}\n"
    )
    (verdict,) = validate(module, [ToTarget()], make_workload(module))
    assert verdict.guilty is not None
    assert (verdict.guilty.number, verdict.guilty.root) == (2, "%y = silu(%a)")


# ---- the journal ---------------------------------------------------------------------------------


def small(*lines: str) -> Module:
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"module @m level=logical {{\n}}\n\nfunc @f {{\n{body}\n}}\n")


@rule("negate")
def double_negate(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    inner = op.operands[0].producer("negate")
    if inner is None:
        return no_match("the operand is not a negate", op.operands[0])
    return [inner.operands[0]]


@rule("subtract")
def subtract_as_add(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    return [b.op("add", op.operands[0], b.unary("negate", op.operands[1]))]


NEGATES = (
    "arg %x : f32[4]",
    "%a = negate(%x) : f32[4]  # model.py:3 block.first",
    "%b = negate(%a) : f32[4]  # model.py:4 block.second",
    "%y = subtract(%b, %x) : f32[4]  # model.py:5 block",
    "return y = %y",
)


def test_the_journal_holds_every_rewrite():
    module = small(*NEGATES)
    function = module.function("f")
    _, second, third = function.block
    rewriter = Rewriter("demo", journal := Journal())
    rewriter.apply_rules(function, [double_negate, subtract_as_add])
    rewriter.note(function, "looked")
    first, other, noted = journal.applications
    assert [str(item) for item in (first, other)] == [
        "demo #1: double-negate at %b = negate(%a) (model.py:4 block.second)",
        "demo #2: subtract-as-add at %y = subtract(%x, %x) (model.py:5 block)",
    ]
    assert (first.function, first.created) == ("f", ())
    assert first.replaced == ((second.results[0], function.args[0], EQUAL),)
    (new,) = [value for _, value in function.outputs]
    assert other.replaced == ((third.results[0], new, EQUAL),)
    assert [op.name for op in other.created] == ["negate", "add"]
    assert {op.loc.via for op in other.created} == {("demo",)}
    assert (noted.number, noted.rule, rewriter.applications) == (3, "looked", 3)
    assert journal.of_pass("demo") == journal.applications
    assert journal.of_pass("other") == []


def test_a_replacement_says_how_the_values_relate():
    module = small(
        "arg %x : f32[4]",
        "%y = slice(%x) start_indices=[0] limit_indices=[4] : f32[4]",
        "return y = %y",
    )
    function = module.function("f")
    (op,) = function.block
    rewriter = Rewriter("demo", journal := Journal())
    heads = Take(0, (1, 0, 3, 2))
    rewriter.replace(function, op, [function.args[0]], "permute", heads)
    ((old, new, relation),) = journal.applications[0].replaced
    assert (old, new, relation) == (op.results[0], function.args[0], heads)


def test_a_value_of_another_type_is_refused():
    module = small("arg %x : f32[4]", "%y = convert(%x) dtype=bf16 : bf16[4]", "return y = %y")
    function = module.function("f")
    (op,) = function.block
    rewriter = Rewriter("demo", journal := Journal())
    with pytest.raises(GraphgenError, match=r"GG0304.*convert bf16\[4\] cannot become f32\[4\]"):
        rewriter.replace(function, op, [function.args[0]])
    assert (journal.applications, rewriter.applications) == ([], 0)


def test_an_erased_op_is_recorded():
    module = small("arg %x : f32[4]", "%a = negate(%x) : f32[4]", "return y = %x")
    apply_pass(module, DeadCodeElimination(), journal := Journal())
    (item,) = journal.applications
    assert (item.pass_name, item.rule, item.root) == ("dce", "erase", "%a = negate(%x)")


def test_a_pipeline_numbers_the_rewrites_of_each_pass():
    module = small(
        "arg %x : f32[2,3]",
        "%a = reshape(%x) shape=[6] : f32[6]",
        "%b = reshape(%a) shape=[3,2] : f32[3,2]",
        "%c = reshape(%b) shape=[2,3] : f32[2,3]",
        "return y = %c",
    )
    journal = Journal()
    reports = run_pipeline(module, [Canonicalize(), DeadCodeElimination()], journal=journal)
    for report in reports:
        numbers = [item.number for item in journal.of_pass(report.name)]
        assert numbers == list(range(1, report.applications + 1))
    assert reports[0].applications
    assert reports[1].applications


def test_without_a_journal_nothing_is_recorded_and_the_same_is_done():
    bug = BUGS[0]
    silent, told = clone_module(model()), clone_module(model())
    quiet = apply_pass(silent, Planted(bug))
    loud = apply_pass(told, Planted(bug), journal := Journal())
    assert quiet.journal is None
    assert quiet.applications == loud.applications == len(journal.applications) > 0
    assert journal.misses
    assert print_module(silent) == print_module(told)


@pytest.mark.parametrize("fuel", [0, 1, 2, 7, 30, 31])
def test_fuel_stops_after_exactly_so_many_rewrites(fuel: int):
    bug = next(bug for bug in BUGS if bug.name == "tied-head")
    module = clone_module(model())
    rewriter = apply_pass(module, Planted(bug, harmless=True), journal := Journal(), fuel)
    done_to = [op for f in module.programs() for op in f.block if "planted" in op.loc.via]
    total = 2 * (2 * 7 + 1)
    assert rewriter.applications == len(journal.applications) == len(done_to) == min(fuel, total)
    assert rewriter.exhausted == (fuel <= total)


def test_fuel_stops_passes_that_work_by_hand():
    lines = ["arg %x : f32[4]", *[f"%a{i} = negate(%x) : f32[4]" for i in range(5)]]
    module = small(*lines, "return y = %x")
    assert apply_pass(module, DeadCodeElimination(), fuel=3).applications == 3
    assert module.op_count() == 2


# Rule, lines of a function, scope that is asked about, the reason, the value it was found at.
NEAR_MISSES = {
    "type": (
        "identity",
        ["%a = convert(%x) dtype=bf16 : bf16[4,4]"],
        "",
        "the type changes",
        "x",
    ),
    "permutation": (
        "identity",
        ["%a = transpose(%x) permutation=[1,0] : f32[4,4]"],
        "",
        "the permutation moves dimensions",
        "x",
    ),
    "reordered": (
        "identity",
        ["%a = broadcast_in_dim(%x) shape=[4,4] dimensions=[1,0] : f32[4,4]"],
        "",
        "the dimensions are reordered",
        "x",
    ),
    "the one that got furthest, not the last": (
        "identity",
        [
            "%a = broadcast_in_dim(%x) shape=[4,4] dimensions=[1,0] : f32[4,4]",
            "%b = transpose(%x) permutation=[1,0] : f32[4,4]",
            "%c = reshape(%x) shape=[16] : f32[16]",
        ],
        "",
        "the dimensions are reordered",
        "x",
    ),
    "in a scope": (
        "identity",
        [
            "%a = broadcast_in_dim(%x) shape=[4,4] dimensions=[1,0] : f32[4,4]  # m.py:1 layers.1",
            "%b = transpose(%x) permutation=[1,0] : f32[4,4]  # m.py:2 layers.10.mlp",
            "%c = reshape(%b) shape=[16] : f32[16]  # m.py:3 layers.10.mlp.up",
        ],
        "layers.10",
        "the permutation moves dimensions",
        "x",
    ),
    "no reshape before": (
        "reshape-of-reshape",
        ["%b = negate(%x) : f32[4,4]", "%a = reshape(%b) shape=[16] : f32[16]"],
        "",
        "the operand is not a reshape",
        "b",
    ),
    "no transpose before": (
        "transpose-of-transpose",
        ["%a = transpose(%x) permutation=[1,0] : f32[4,4]"],
        "",
        "the operand is not a transpose",
        "x",
    ),
    "two joined": (
        "concatenate-of-one",
        ["%a = concatenate(%x, %x) dimension=0 : f32[8,4]"],
        "",
        "it joins 2 values",
        None,
    ),
    "nothing constant": (
        "constant-on-the-right",
        ["%a = add(%x, %x) : f32[4,4]"],
        "",
        "the left operand is not constant",
        "x",
    ),
    "all constant": (
        "constant-on-the-right",
        ["%k = constant() value=f32[](2.0) : f32[]", "%a = add(%k, %k) : f32[]"],
        "",
        "both operands are constant",
        "k",
    ),
    "enough rows": (
        "pad-rows",
        [
            "%k = convert(%x) dtype=bf16 : bf16[4,4]",
            "%a = dot_general(%k, %k) lhs_contracting_dims=[1] rhs_contracting_dims=[1] "
            "dtype=f32 : f32[4,4]",
        ],
        "",
        "4 rows are enough",
        "k",
    ),
    "f32 already": (
        "wide-dot",
        [
            "%k = convert(%x) dtype=bf16 : bf16[4,4]",
            "%a = dot_general(%k, %k) lhs_contracting_dims=[1] rhs_contracting_dims=[1] "
            "dtype=f32 : f32[4,4]",
        ],
        "",
        "the result is f32 already",
        "a",
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_the_nearest_miss_says_why_not(case: str):
    name, lines, scope, reason, at = NEAR_MISSES[case]
    module = small("arg %x : f32[4,4]", *lines, "return y = %x")
    journal = Journal()
    apply_pass(module, Canonicalize(), journal)
    rules = [wide_dot, padded_rows(2)]
    Rewriter("rows", journal).apply_rules(module.function("f"), rules)
    miss = journal.nearest(name, scope)
    assert miss is not None
    assert miss.why.reason == reason
    assert (miss.why.at.name if miss.why.at else None) == at


def test_there_is_no_miss_of_a_rule_that_looked_at_nothing():
    apply_pass(clone_module(model()), Canonicalize(), journal := Journal())
    assert journal.nearest("concatenate-of-one") is None
    assert journal.nearest("identity", "model.layers.7") is None


# ---- plugins -------------------------------------------------------------------------------------

PLUGIN = """\
from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, no_match, register, rule


@rule("attention")
def order_operands(op, b):
    if "order-operands" in op.loc.via:
        return no_match("they are in order")
    query, key, value, mask = op.operands
    if op.loc.scope == "model.layers.1.self_attn":
        key, value = value, key
    return [b.attention(query, key, value, mask, op.attrs.number("scale"))]


@register
@dataclass(frozen=True)
class OrderOperands(Pass):
    name: ClassVar[str] = "order-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.functions.values():
            rewriter.apply_rules(function, [order_operands])
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "order.py"
    path.write_text(PLUGIN)
    return path


def test_a_pass_from_a_file(plugin: Path, registry: dict[str, type[Pass]]):
    pass_registry.load_file(str(plugin))
    (item,) = parse_pipeline("order-operands")
    assert item.name == "order-operands"
    assert type(item) is registry["order-operands"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a Python file"),
        ("x = 1 +", "fails: SyntaxError: "),
        ("import no_such_module", "fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('no')", "fails: ValueError: no"),
    ],
)
def test_a_file_that_is_no_plugin(tmp_path: Path, text: str | None, message: str):
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GraphgenError) as caught:
        pass_registry.load_file(str(path))
    assert str(caught.value).startswith(f"error[GG0705]: the plugin '{path}' {message}")


def test_a_pass_from_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: dict[str, type[Pass]]
):
    (tmp_path / "installed_order.py").write_text(PLUGIN.replace("order-operands", "installed"))
    monkeypatch.syspath_prepend(tmp_path)
    asked: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("order", "installed_order", group)]

    monkeypatch.setattr(pass_registry, "entry_points", entry_points)
    assert "installed" not in registry
    (item,) = parse_pipeline("installed")
    assert str(item) == "installed"
    assert asked == ["graphgen.passes"]


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "mini.gg"
    path.write_text(print_module(model()))
    return path


def test_the_table_of_the_default_pipeline(mini: Path):
    head, *lines = done("validate", mini, "--seed", 4).stdout.splitlines()
    rows = lines[: lines.index("")]
    assert re.split(r"  +", head) == [
        *["pass", "meaning", "max abs", "ulp", "cosine", "rounding", "budget"],
        *["rewrites", "verdict"],
    ]
    assert [re.split(r"  +", row)[0] for row in rows] == [str(p) for p in default(BUCKETS)]
    assert {re.split(r"  +", row)[-1] for row in rows} == {"ok"}
    places = next(line for line in lines if line.startswith("places: "))
    assert "@decode.b3.c16 positions 0..15 of 16 in rows 0..2" in places
    assert any(line.startswith("coverage: programs 3 of 3, B") for line in lines)
    (wide,) = [line for line in lines if line.startswith("wide twin, ")]
    assert wide.endswith(f" all {len(rows)} passes: ok")


NO_CHOICES = {"compared": 0, "replayed": 0, "wrong": 0, "alone": 0}


def test_the_verdicts_as_json(mini: Path):
    said = json.loads(done("validate", mini, "-p", "canonicalize,dce", "--json").stdout)
    assert said.pop("wide")["passed"]
    assert said.pop("coverage")["complete"]
    assert said.pop("subnormals") == {"kept_by_comparison": True, "targets": {}}
    assert [each.pop("coverage")["complete"] for each in said["passes"]] == [True, True]
    assert said == {
        "passes": [
            {
                "pass": name,
                "ok": True,
                "state": "ok",
                "meaning": 0.0,
                "max_abs": 0.0,
                "ulp": 0.0,
                "cosine": pytest.approx(1),
                "rounding": 0.0,
                "meaning_element": 0.0,
                "rounding_element": 0.0,
                "other_bits": 0,
                "budget": 0.0,
                "declared_budget": 0.0,
                "explained_budget": 0.0,
                "finite_math_only": False,
                "where": "",
                "guilty": None,
                "together": [],
                "recovered": None,
                "first": None,
                "silent": False,
                "proof": None,
                "pipeline": None,
                "indices": None,
                "repeatable": True,
                "varies": None,
                "raised": None,
                "rewrites": None,
                "uncovered": [],
                "layers": None,
                "choices": NO_CHOICES,
                "rounded_choices": NO_CHOICES,
            }
            for name in ("canonicalize", "dce")
        ],
        "not_run": [],
    }


GUILTY = re.compile(
    r"order-operands #2: order-operands at %\S+ = attention\(.*\) "
    r"\(\S+:\d+ model\.layers\.1\.self_attn\)"
)


def test_a_wrong_plugin_is_found_out(mini: Path, plugin: Path, registry: dict[str, type[Pass]]):
    pipeline = ("-p", "canonicalize,order-operands,dce", "--plugin", plugin)
    result = graphgen("validate", mini, *pipeline)
    assert result.exit_code == 1
    rows = result.stdout.splitlines()
    assert [row.split()[-1] for row in rows[1:4]] == ["ok", "WRONG", "ok"]
    assert rows[4] == ""
    assert GUILTY.fullmatch(rows[5].removeprefix("first wrong rewrite: ")), rows[5]
    assert rows[6].startswith("  seen at: ")


def test_a_wrong_plugin_is_found_out_in_json(mini: Path, plugin: Path):
    # A process of its own: nothing but the option may bring the pass.
    pipeline = ("-p", "canonicalize,order-operands", "--plugin", plugin)
    result = process("validate", mini, *pipeline, "--json")
    # Steps that take long on a slow machine are told with their time.
    told = [
        line
        for line in result.stderr.splitlines()
        if not re.fullmatch(r"note: .* \(after \d+ s\)", line)
    ]
    assert (result.returncode, told) == (1, [])
    right, wrong = json.loads(result.stdout)["passes"]
    assert (right["ok"], right["guilty"]) == (True, None)
    assert wrong["ok"] is False
    assert GUILTY.fullmatch(wrong["guilty"])
    assert wrong["meaning"] > 1e-3


def test_mistakes_of_the_user(mini: Path, tmp_path: Path):
    missing = tmp_path / "no.py"
    assert error("validate", mini, "--plugin", missing).startswith(
        f"error[GG0705]: the plugin '{missing}' is not a Python file"
    )
    assert error("validate", mini, "-p", "canonicalise").startswith(
        "error[GG0301]: unknown pass 'canonicalise'"
    )


def test_the_ranks_of_a_split_module_are_compared(mini: Path, tmp_path: Path):
    split = tmp_path / "split.gg"
    done("opt", mini, "-p", f"canonicalize,{RANKS}", "-o", split)
    rows = done("validate", split, "-p", "lift-weights,dce").stdout.splitlines()
    assert [row.split()[-1] for row in rows[1:3]] == ["ok", "ok"]
    assert CONFIG.num_key_value_heads == 2
