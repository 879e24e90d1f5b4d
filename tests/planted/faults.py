"""Planted faults: a module, a wrong rewrite of one of its ops, and the same place done right.

The planted pass rebuilds the ops of a program one by one, so that the wrong rewrite is one of
several; in a program of many ops it rebuilds those of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import graphgen.passes.pipelines  # noqa: F401
from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, Rewriter, no_match, parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.rule import NoMatch, Rule
from graphgen.passes.validate import Verdict
from graphgen.passes.validate.rewrite_verdict import RewriteStatus
from graphgen.runtime.accuracy.validate_model import (
    ValidationOptions,
    validate_module,
    validate_wide,
)
from graphgen.text import parse

# Rebuilding a whole program of more ops would take too long.
WHOLE = 40
REPORT = re.compile(r"[\w.-]+/[\w.-]+#\d+")

Make = Callable[[Op, Builder], Sequence[Value]]


def rebuilt(op: Op, b: Builder) -> Sequence[Value]:
    """The op as it is."""
    return b.emit(op.name, op.operands, dict(op.attrs)).results


def again(op: Op, b: Builder, *operands: Value) -> Value:
    """The only result of the op on other operands."""
    return b.emit(op.name, operands, dict(op.attrs)).result


def operand(op: Op, b: Builder) -> Sequence[Value]:
    """The first operand in the place of the result."""
    return [op.operands[0]]


def everywhere(op: Op) -> bool:
    """Any op of the kind."""
    return True


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was said of a fault, or of its right twin.

    Attributes:
        found: whether it was called wrong, or searched where no call of a twin reaches it.
        blamed: whether what is wrong was named.
        said: the words; ``ok`` where nothing is left open.
    """

    found: bool
    blamed: bool
    said: str


class Row(Protocol):
    """A fault of any kind."""

    @property
    def name(self) -> str:
        """A name that no other row of the kind has."""
        ...

    @property
    def report(self) -> str:
        """The public report that it is modelled on, as owner/repository#number, or empty."""
        ...

    def judge(self, *, right: bool = False) -> Judgement:
        """What is said of the fault, or of its right twin."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong rewrite.

    Attributes:
        name: of the pass and its rule.
        module: the text of a module, or a function that builds one.
        root: kind of the op that is rewritten wrongly.
        wrong: how.
        right: the same place rewritten correctly.
        report: public report that the fault is modelled on, as owner/repository#number.
        where: selects the op among those of the kind; of several the first is rewritten.
        program: the function that holds it; any if empty.
        rounding: budget that the pass declares.
        right_module: another module in which ``wrong`` is right; empty if there is none.
        reached: whether a call of the module or of its wide twin can show the fault: a legal call
            of larger ones does where none of theirs can.
    """

    name: str
    module: str | Callable[[], Module]
    root: str
    wrong: Make
    right: Make = rebuilt
    report: str = ""
    where: Callable[[Op], bool] = everywhere
    program: str = ""
    rounding: float = 0.0
    right_module: str = ""
    reached: bool = True

    def built(self) -> Module:
        """The module that the pass is given."""
        return parse(self.module) if isinstance(self.module, str) else clone_module(self.module())

    def judge(self, *, right: bool = False) -> Judgement:
        """Validate the fault, or its right twin, with default options."""
        return validated(self, right=right)

    def here(self, op: Op, function: str) -> bool:
        """Whether this may be the op that is rewritten wrongly."""
        return (
            op.name == self.root and (not self.program or function == self.program)
        ) and self.where(op)


@dataclass(frozen=True)
class PlantedFault(Pass):
    """Rebuild ops, one of them wrongly.

    Options:
        fault: which.
        make: how that one is rewritten.
        history: for each rewrite of the last run, whether it was that one.
    """

    name: str  # pyright: ignore[reportIncompatibleVariableOverride]
    fault: Fault
    make: Make
    history: list[bool] = field(default_factory=list[bool])

    @property
    def rounding(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The budget of the fault."""
        return self.fault.rounding

    def __str__(self) -> str:
        return self.name

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Rebuild each function."""
        self.history.clear()
        for function in list(module.functions.values()):
            names = {op.name for op in function.block}
            if function.block.size > WHOLE:
                names &= {self.fault.root}
            rule = Rule(self.name, tuple(sorted(names)), self._rewritten)
            rewriter.apply_rules(function, [rule])

    def _rewritten(self, op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        if self.name in op.loc.via:
            return no_match("it has been rebuilt", next(iter(op.results), None))
        here = not any(self.history) and self.fault.here(op, b.function.name)
        made = self.make(op, b) if here else rebuilt(op, b)
        self.history.append(here)
        return made


def planted(fault: Fault, *, right: bool = False) -> PlantedFault:
    """The pass with the fault, or its right twin."""
    alike = right and bool(fault.right_module)
    return PlantedFault(fault.name, fault, fault.right if right and not alike else fault.wrong)


def given(fault: Fault, *, right: bool = False) -> Module:
    """The module for the fault, or for its right twin."""
    if right and fault.right_module:
        return parse(fault.right_module)
    return fault.built()


def expected(module: Module, item: PlantedFault) -> Rewrite:
    """The rewrite that has to be blamed."""
    run_pass(item, clone_module(module), journal := Journal())
    (at,) = [at for at, wrong in enumerate(item.history) if wrong]
    return journal.applications[at]


def verdicts_of(
    module: Module, item: Pass, options: ValidationOptions | None = None
) -> list[Verdict]:
    """What ``graphgen validate FILE -p PASS`` finds: of the module, and of its wide twin."""
    given = options or ValidationOptions()
    found = [validate_module(module, [item], given)]
    wide = validate_wide(module, lambda _: [item], given)
    return [verdict for one in (*found, *([wide] if wide else [])) for verdict in one.verdicts]


def validated(
    fault: Fault, options: ValidationOptions | None = None, *, right: bool = False
) -> Judgement:
    """Validate a fault, or its right twin."""
    module, item = given(fault, right=right), planted(fault, right=right)
    target = expected(module, item)
    verdicts = verdicts_of(module, item, options)
    wrong = next((verdict for verdict in verdicts if not verdict.passed), None)
    if wrong is None:
        left = [verdict.state for verdict in verdicts if not verdict.ok]
        if not fault.reached and any(_is_searched(verdict, target) for verdict in verdicts):
            return Judgement(found=True, blamed=True, said=left[0])
        return Judgement(found=False, blamed=False, said=left[0] if left else "ok")
    guilty = wrong.guilty
    blamed = wrong.pass_text == item.name and str(guilty) == str(target)
    return Judgement(found=True, blamed=blamed, said=f"{wrong.state}: {guilty}")


def _is_searched(verdict: Verdict, target: Rewrite) -> bool:
    """Whether a rewrite, and no other one, has a counterexample that no call was found to reach."""
    if verdict.rewrites is None:
        return False
    found = verdict.rewrites.having(RewriteStatus.SEARCHED)
    return [str(check.rewrite) for check in found] == [str(target)]


def assert_blamed(row: Row) -> None:
    """Fail unless the fault is called wrong and what is wrong is named."""
    found = row.judge()
    assert found.found, found.said
    assert found.blamed, found.said


def assert_right(row: Row) -> None:
    """Fail unless the right twin is called right, with nothing left open."""
    found = row.judge(right=True)
    assert (found.found, found.said) == (False, "ok"), found.said


def name_of(row: Row) -> str:
    """The identifier of a test."""
    return row.name


def ir(
    *lines: str, y: str, outputs: Sequence[str] = ("y",), functions: str = "", **args: str
) -> str:
    """The text of a module with one program.

    Args:
        lines: of the program; results are ``%y`` and those of ``outputs``.
        y: type of the result.
        outputs: names of results, all of the type ``y`` unless they are ``name : type``.
        functions: the text of other functions.
        args: types of the inputs by name.
    """
    typed = [out if " : " in out else f"{out} : {y}" for out in outputs]
    rows = [f"input %{name} : {kind}" for name, kind in args.items()]
    rows += [f"output %{out}" for out in typed]
    body = [f"arg %{name} : {kind}" for name, kind in args.items()]
    body += [line for text in lines for line in text.splitlines()]
    body += [f"return {name} = %{name}" for name, _, _ in (out.partition(" : ") for out in typed)]
    table, text = "\n  ".join(rows), "\n  ".join(body)
    return (
        f"module @m level=logical {{\n  {table}\n}}\n\n{functions}"
        f"func @main phase=main {{\n  {text}\n}}\n"
    )


def full(name: str, value: object, kind: str) -> str:
    """Lines that give ``%name`` one value in every element."""
    element, _, shape = kind.partition("[")
    scalar = f"%{name}.0 = constant() value={element}[]({value}) : {element}[]"
    return f"{scalar}\n%{name} = broadcast_in_dim(%{name}.0) shape=[{shape} : {kind}"


@cache
def mini(name: str, pipeline: str = "") -> Callable[[], Module]:
    """Builds the mini twin of a model in f32, after some passes; made once."""
    module = build(known_shape(name), f32, mini=True)
    run_pipeline(module, parse_pipeline(pipeline))
    return lambda: module


def in_scope(scope: str) -> Callable[[Op], bool]:
    """Whether an op is in a scope."""

    def inside(op: Op) -> bool:
        return op.loc.scope == scope

    return inside
