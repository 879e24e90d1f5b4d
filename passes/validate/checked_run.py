"""One run of a pass, compared with a second run on the same module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from graphgen.analysis import fingerprint
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass
from graphgen.passes.core.crash import guarded
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.settings import Verify, debugging
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.validate.reproducer import failure_of
from graphgen.passes.validate.verdict import RaisedError, RunDifference, Verdict
from graphgen.text import print_module


def same_module(one: Module, other: Module) -> bool:
    """True only where two modules have the same text, names and provenance included.

    Types, attributes and locations are interned, and compared by identity: two modules whose texts
    agree by chance, of parts that are not shared, count as different.
    """
    if _head(one) != _head(other):
        return False
    pairs = zip(one.functions.values(), other.functions.values(), strict=True)
    return all(_same_function(left, right) for left, right in pairs)


def _head(module: Module) -> tuple[object, ...]:
    """The parts outside the functions, in order."""
    tables: tuple[Mapping[str, object], ...] = (module.mesh, module.meta, module.interface)
    listed = [list(table.items()) for table in tables]
    return module.name, module.level, *listed, list(module.functions)


def _same_function(one: Function, other: Function) -> bool:
    heads = [(f.name, f.phase, list(f.dims.items()), len(f.args)) for f in (one, other)]
    if heads[0] != heads[1] or one.annotations is not other.annotations:
        return False
    if one.block.size != other.block.size or len(one.outputs) != len(other.outputs):
        return False
    twins: dict[Value, Value] = {}
    if not all(_same_value(*pair, twins) for pair in zip(one.args, other.args, strict=True)):
        return False
    if not all(_same_op(*pair, twins) for pair in zip(one.block, other.block, strict=True)):
        return False
    return all(
        name == named and twins[value] is twin
        for (name, value), (named, twin) in zip(one.outputs, other.outputs, strict=True)
    )


def _same_op(one: Op, other: Op, twins: dict[Value, Value]) -> bool:
    if (
        one.name != other.name
        or one.attrs is not other.attrs
        or one.loc is not other.loc
        or one.annotations is not other.annotations
        or len(one.results) != len(other.results)
        or [twins[value] for value in one.operands] != list(other.operands)
    ):
        return False
    return all(_same_value(*pair, twins) for pair in zip(one.results, other.results, strict=True))


def _same_value(one: Value, other: Value, twins: dict[Value, Value]) -> bool:
    twins[one] = other
    return (
        one.name == other.name
        and one.type is other.type
        and one.sharding is other.sharding
        and one.annotations is other.annotations
    )


T = TypeVar("T")

# The step after a pass, in verdicts.
RUN_AFTER = "a run of the module that the pass left"


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """Result of running a pass.

    Attributes:
        before: a copy of the module as the pass got it.
        changed: whether the pass left another module.
        rewrites: how many rewrites it counted.
        varies: the first difference to a second run; ``None`` where they agree.
        left: the fingerprint of the module that the pass left.
    """

    before: Module
    changed: bool
    rewrites: int
    varies: RunDifference | None
    left: str = ""

    @property
    def silent(self) -> bool:
        """True for a change that the pass did not count as a rewrite."""
        return self.changed and not self.rewrites


def run_checked(module: Module, item: Pass, given: str = "") -> CheckedRun:
    """Run a pass in place, and once more on a copy; a failure leaves a reproducer folder.

    Args:
        module: changed.
        item: the pass.
        given: the fingerprint of ``module``, where it is known.

    Raises:
        Exception: what the pass or the verifier raises in the first run; its help or notes name the
            reproducer.
    """
    before, again = clone_module(module), clone_module(module)
    with guarded(before, [item], debugging(), Verify.MODULE) as crash:
        if crash is not None:
            crash.enter(0, None)
        rewriter = apply_pass(module, item, Journal())
    left, given = fingerprint(module), given or fingerprint(before)
    varies = _repeated(module, again, item)
    return CheckedRun(before, left != given, rewriter.applications, varies, left)


def check_each(
    passes: Sequence[Pass],
    check: Callable[[Pass, str], Verdict],
    on_verdict: Callable[[Verdict], None] | None,
) -> list[Verdict]:
    """Check each pass of a pipeline, in order, until one raises.

    Args:
        passes: the pipeline.
        check: runs one pass; its second argument describes the step.
        on_verdict: called after each pass.
    """
    verdicts: list[Verdict] = []
    for number, item in enumerate(passes, 1):
        verdicts.append(check(item, f"pass {number} of {len(passes)}: {item}"))
        if on_verdict is not None:
            on_verdict(verdicts[-1])
        if verdicts[-1].raised is not None:
            break
    return verdicts


def no_progress(step: str) -> None:
    """Report no progress."""


def attempt(action: Callable[[], T], during: str) -> T | RaisedError:
    """The result of ``action``, or the exception that it raised as a verdict keeps it.

    Args:
        action: what to do.
        during: what it is, for the verdict.
    """
    try:
        return action()
    except MemoryError:
        raise
    except Exception as error:
        return raised_error(error, during)


def _repeated(module: Module, again: Module, item: Pass) -> RunDifference | None:
    """The first line that a second run of the pass, without a journal, makes another one."""
    failed = attempt(lambda: apply_pass(again, item), "a second run")
    if isinstance(failed, RaisedError):
        return RunDifference("", str(failed.failure))
    if same_module(module, again):
        return None
    first, second = print_module(module), print_module(again)
    if first == second:
        return None
    lines = zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            return RunDifference(one.strip(), other.strip(), number)
    return None


def raised_error(error: Exception, during: str) -> RaisedError:
    """The exception as a verdict keeps it."""
    if isinstance(error, GraphgenError):
        return RaisedError(failure_of(error), during, error.where, error.note, error.help)
    notes: list[str] = getattr(error, "__notes__", [])
    return RaisedError(failure_of(error), during, help="\n".join(notes))
