"""The rewriter: rules run until none fires, types are kept, and every new op knows who made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps

import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from graphgen.ir.dtype import bf16
from graphgen.ops import verify
from graphgen.passes.core import NoMatch, Rewriter, no_match, rule
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.pipeline import run_pipeline
from graphgen.passes.core.rule import Apply, Rule
from graphgen.passes.pipelines import parse as parse_pipeline
from graphgen.text import parse, print_module
from tests.oracles import small_modules as programs

CHAIN = ["%a = negate(%x) : f32[2]", "%b = negate(%a) : f32[2]", "%c = negate(%b) : f32[2]"]


@rule("negate")
def double_negation(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``-(-x)`` is x."""
    inner = op.operands[0].producer("negate")
    return no_match("not negated", op.operands[0]) if inner is None else [inner.operands[0]]


@rule("exponential")
def as_negation(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Not a true rewrite, but one that makes a root of another rule."""
    return [-op.operands[0]]


def names(function: Function) -> list[str]:
    return [op.name for op in function.ops]


def test_readers_of_what_was_replaced_are_looked_at_again():
    module = parse(programs.function("arg %x : f32[2]", *CHAIN, "return y = %c"))
    rewriter = Rewriter("test")
    rewriter.apply_rules(module.function("f"), [double_negation])
    verify(module)
    # b = --x is x, so c reads x: nothing is left that is negated twice.
    assert rewriter.applications == 1
    (_, out) = module.function("f").outputs[0]
    assert out.op is not None
    assert out.op.operands[0].name == "x"


def test_what_a_rule_makes_is_looked_at_as_well():
    lines = ["%a = negate(%x) : f32[2]", "%y = exponential(%a) : f32[2]  # m.py:3 top"]
    module = parse(programs.function("arg %x : f32[2]", *lines, "return y = %y"))
    rewriter = Rewriter("test")
    rewriter.apply_rules(module.function("f"), [as_negation, double_negation])
    verify(module)
    assert rewriter.applications == 2
    assert module.function("f").outputs[0][1].name == "x"


def test_new_ops_know_their_pass_and_take_the_name():
    line = "%y = exponential(%x) : f32[2]  # m.py:3 top"
    module = parse(programs.function("arg %x : f32[2]", line, "return y = %y"))
    Rewriter("test").apply_rules(module.function("f"), [as_negation])
    (op,) = module.function("f").ops
    assert (op.name, repr(op.loc), op.result.name) == ("negate", "m.py:3 top via test", "y")


def test_a_replacement_of_another_type_is_refused():
    @rule("negate")
    def narrow(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """Forgets to convert back."""
        return [b.convert(op.operands[0], bf16)]

    line = "%y = negate(%x) : f32[2]  # m.py:3 top"
    module = parse(programs.function("arg %x : f32[2]", line, "return y = %y"))
    with pytest.raises(GraphgenError) as caught:
        Rewriter("test").apply_rules(module.function("f"), [narrow])
    assert caught.value.code == "GG0304"
    assert caught.value.what == "test: negate f32[2] cannot become bf16[2]"
    assert caught.value.where == "m.py:3 top"


def test_ops_of_a_rule_that_declines_are_erased_and_not_looked_at():
    @rule("negate")
    def wasteful(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """Builds first and asks later."""
        b.unary("exponential", b.silu(op.operands[0]))
        return no_match("changed its mind")

    module = parse(programs.function("arg %x : f32[2]", CHAIN[0], "return y = %a"))
    before, journal = print_module(module), Journal()
    rewriter = Rewriter("test", journal)
    rewriter.apply_rules(module.function("f"), [wasteful, as_negation])
    verify(module)
    assert print_module(module) == before
    assert (rewriter.applications, journal.applications) == (0, [])
    assert [miss.why.reason for miss in journal.misses] == ["changed its mind"]


def test_a_rule_that_declines_leaves_nothing_to_the_next():
    @rule("negate")
    def wasteful(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """Builds first and asks later."""
        b.silu(op.operands[0])
        return no_match("changed its mind")

    @rule("negate")
    def absolute(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``-x`` is ``|x|``, for the test."""
        return [b.unary("abs", op.operands[0])]

    module = parse(programs.function("arg %x : f32[2]", CHAIN[0], "return y = %a"))
    journal = Journal()
    Rewriter("test", journal).apply_rules(module.function("f"), [wasteful, absolute])
    verify(module)
    assert names(module.function("f")) == ["abs"]
    (entry,) = journal.applications
    assert [op.name for op in entry.created] == ["abs"]


def test_rules_are_named_like_their_functions():
    assert (double_negation.name, double_negation.roots) == ("double-negation", ("negate",))


def test_a_rule_runs_inside_its_own_builder_only():
    module = parse(programs.function("arg %x : f32[2]", *CHAIN, "return y = %c"))
    Rewriter("test").apply_rules(module.function("f"), [double_negation])
    assert names(module.function("f")) == ["negate", "negate"]
    with pytest.raises(GraphgenError, match="inside `with Builder"):
        Builder.current()


def test_of_several_refusals_the_deepest_is_the_nearest():
    assert no_match("first").depth == 1
    assert no_match("third", depth=3).depth == 3
    assert NoMatch("nothing of the pattern").depth == 0
    later = no_match("second of a part", depth=2).after(3)
    assert (later.reason, later.at, later.depth) == ("second of a part", None, 5)


ANNOTATED = """module @m level=logical {
  meta format = "stablehlo"
  input %x : f32[B,4]
  output %y : f32[B,4]
}

func @main phase=main {
  arg %x : f32[B,4] hlo.sharding="{replicated}"
  %a = reshape(%x) shape=[B,4] mlir.my.note="1" hlo.statistics="{visualizing_index=0}" : f32[B,4]
  %b = sine(%a) mlir.my.note="2" : f32[B,4]
  %c = sine(%a) mlir.my.note="2" : f32[B,4]
  %dead = cosine(%a) mlir.my.note="3" : f32[B,4]
  %y = add(%b, %c) : f32[B,4]
  return y = %y
}
"""


@pytest.mark.parametrize(
    ("pipeline", "remarks"),
    [
        # Equal ones are merged, and what nothing reads goes: nothing is lost.
        ("cse", ()),
        ("dce", ()),
        ("canonicalize", ("dropped annotations: mlir.my.note of 1 reshape",)),
        # Another type: what the file says of the old one is not true of it.
        (
            "specialize{dims=[B=2]}",
            (
                "dropped annotations: hlo.sharding of 1 argument; "
                "mlir.my.note of 1 reshape, 2 sine, 1 cosine",
            ),
        ),
    ],
    ids=["cse", "dce", "canonicalize", "specialize"],
)
def test_annotations_that_a_pass_drops_are_reported(pipeline: str, remarks: tuple[str, ...]):
    (report,) = run_pipeline(parse(ANNOTATED), parse_pipeline(pipeline))
    assert report.remarks == remarks


def positive(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """The function that a factory makes a rule of."""
    return [b.abs(op.operands[0])]


def plain(make: Apply) -> Apply:
    def apply(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        return list(make(op, b))  # pyright: ignore[reportArgumentType]

    return apply


def twice(make: Apply) -> Apply:
    return plain(plain(make))


def marked(make: Apply) -> Apply:
    @wraps(make)
    def apply(*given: object) -> Sequence[Value] | NoMatch:
        return list(make(*given))  # pyright: ignore[reportArgumentType, reportCallIssue]

    return apply


class Called:
    def __init__(self, make: Apply) -> None:
        self.make = make

    def method(self, op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        return [b.abs(op.operands[0])]


def first_line(function: Callable[..., object]) -> int:
    return function.__code__.co_firstlineno


def rule_line(apply: Apply) -> int:
    """The line that a rewrite by this function is attributed to."""
    module = parse(programs.function("arg %x : f32[2]", *CHAIN[:1], "return y = %a"))
    rewriter = Rewriter("test", journal := Journal())
    rewriter.apply_rules(module.function("f"), [Rule("positive", ("negate",), apply)])
    file, line = journal.applications[0].source.split(":")
    assert file.endswith("test_rewriter.py")
    return int(line)


@pytest.mark.parametrize("factory", [plain, twice, marked, partial])
def test_a_rule_is_where_its_innermost_function_is(factory: Callable[[Apply], Apply]):
    assert rule_line(factory(positive)) == first_line(positive)


def test_a_rule_is_where_its_own_function_is_beside_helpers():
    def fits(one: Op, other: Op) -> bool:
        return one is other

    def wanted(op: Op) -> bool:
        return fits(op, op)

    def apply(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        return positive(op, b) if wanted(op) and fits(op, op) else no_match("none", op.result)

    assert rule_line(apply) == first_line(apply)
    assert rule_line(Called(positive).method) == first_line(Called.method)
