"""Contracts: facts are computed from the module; a pass that does not keep its word is named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, entry, symbol, tensor
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import Pass, Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.core.invariants import FACTS, facts_of
from graphgen.passes.core.registry import all_passes
from graphgen.passes.core.settings import Verify, debug, debugging
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

ONE = """\
module @m level=logical {
}

func @f {
  arg %x : f32[4]
  %y = negate(%x) : f32[4]
  return y = %y
}
"""


def test_every_fact_says_what_holds():
    assert all(item.doc and "\n" not in item.doc for item in FACTS.values())
    used = [name for item in all_passes().values() for name in (*item.requires, *item.provides)]
    assert set(used) == set(FACTS)


@pytest.mark.parametrize("tp", [1, 2])
def test_facts_along_the_default_pipeline(tp: int):
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    buckets = CompileConfig(context=(8,), tokens=(8,))
    seen = [("", facts_of(module))]

    def after(item: Pass, module: Module) -> None:
        seen.append((item.name, facts_of(module)))
        assert facts_of(parse(print_module(module))) == seen[-1][1]

    run_pipeline(module, default(replace(buckets, tp=tp)), after=after)
    first = {name: at for at, name in reversed([(i, n) for i, (n, _) in enumerate(seen)])}
    for name, pass_, holds in (
        ("specialized", "specialize", True),
        ("raw-weights", "lift-weights", False),
        *([("partitioned", "shard", False), ("partitioned", "partition", True)] if tp > 1 else []),
    ):
        before, now = seen[first[pass_] - 1][1], seen[first[pass_]][1]
        assert (name in before, name in now) == (not holds, holds)


def test_a_size_in_an_attribute_is_a_size():
    iota = "  %z = iota() dtype=s32 shape=[B] dimension=0 : s32[B]\n  return"
    text = ONE.replace("  return", iota)
    assert "specialized" not in facts_of(parse(text))
    assert "specialized" in facts_of(parse(text.replace("B]", "7]")))


@dataclass(frozen=True)
class Silent(Pass):
    """Changes a module and does not count it."""

    name: ClassVar[str] = "silent"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        op = next(module.function("f").ops)
        rewriter.before(module.function("f"), op).unary("negate", op.operands[0])


@dataclass(frozen=True)
class Loud(Pass):
    """Counts what it does not do."""

    name: ClassVar[str] = "loud"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        rewriter.note(module.function("f"), "nothing at all")


@dataclass(frozen=True)
class Promising(Pass):
    """Says that every size is a number now."""

    name: ClassVar[str] = "promising"
    provides: ClassVar[tuple[str, ...]] = ("specialized",)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        pass


@dataclass(frozen=True)
class Spoiling(Pass):
    """Takes a fact away without a word."""

    name: ClassVar[str] = "spoiling"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        module.interface["p"] = entry(Role.PARAM, "p", tensor(f32, (symbol("B"),)))
        rewriter.note(None, "a param")


@dataclass(frozen=True)
class Unprintable(Pass):
    """Leaves what its text does not tell."""

    name: ClassVar[str] = "unprintable"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        module.interface["x y"] = entry(Role.INPUT, "x y", tensor(f32, (2,)))
        rewriter.note(None, "a name with a space")


def broken(item: Pass, verify: int, text: str = ONE) -> GraphgenError:
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(text), [DeadCodeElimination(), item], verify=verify)
    return caught.value


def test_a_pass_that_changes_without_counting_is_named():
    error = broken(Silent(), 2)
    assert error.code == "GG0305"
    assert error.what == "silent says it changed nothing, but the module is another one"
    assert error.help == "the pass silent did this; a defect of the pass"
    run_pipeline(parse(ONE), [Silent()], verify=1)


def test_a_pass_that_counts_without_changing_is_told():
    passes = [Loud(), CommonSubexpressions(), DeadCodeElimination()]
    reports = run_pipeline(parse(ONE), passes, verify=2)
    assert [(r.applications, r.changed) for r in reports] == [(1, False), (0, False), (0, False)]
    twice = ONE.replace("  return", "  %z = negate(%x) : f32[4]\n  return")
    reports = run_pipeline(parse(twice), passes, verify=2)
    assert [(r.applications, r.changed) for r in reports] == [(1, False), (1, True), (0, False)]
    assert {r.changed for r in run_pipeline(parse(twice), passes, verify=1)} == {None}


def test_a_fact_that_was_promised_is_looked_for():
    error = broken(Promising(), 1, ONE.replace("[4]", "[B]"))
    assert error.code == "GG0305"
    assert error.what == (
        "promising says it provides 'specialized': every size is a number; not so"
    )
    assert run_pipeline(parse(ONE), [Promising()], verify=1)


def test_a_fact_that_is_lost_is_noticed():
    error = broken(Spoiling(), 2)
    assert (error.code, error.what) == (
        "GG0305",
        "spoiling does not say that it takes 'raw-weights' away",
    )


def test_what_the_text_does_not_tell_is_noticed():
    error = broken(Unprintable(), 3)
    assert error.code in ("GG0305", "GG0201")


def test_how_much_is_checked_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GRAPHGEN_VERIFY", raising=False)
    assert debugging().verify is Verify.MODULE
    with debug(verify=2):
        with pytest.raises(GraphgenError, match="GG0305"):
            run_pipeline(parse(ONE), [Silent()])
        with debug(verify=0):
            run_pipeline(parse(ONE), [Silent()])
        assert debugging().verify is Verify.CONTRACT
    monkeypatch.setenv("GRAPHGEN_VERIFY", "3")
    assert debugging().verify is Verify.TEXT
    monkeypatch.setenv("GRAPHGEN_VERIFY", "4")
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(ONE), parse_pipeline("dce"))
    assert caught.value.what == "GRAPHGEN_VERIFY=4 is not an integer from 0 to 3"
