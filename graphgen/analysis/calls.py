"""Programs that run other functions: which those are, and the same program without calls."""

from __future__ import annotations

from collections.abc import Callable

from graphgen.ir import Function, Loc, Module, Op, Value, loc
from graphgen.ir.clone import Cloner
from graphgen.ops import Trait, has_trait
from graphgen.ops.control import CONTROL, callees
from graphgen.ops.external import has_effect


def inlined(
    module: Module, function: Function, copies: dict[Value, Value] | None = None
) -> Function:
    """``function`` without calls; itself if it has none. Bodies of loops and branches stay theirs.

    What is copied out of a body is in the scope of the call, as :func:`within` says, so layers that
    share a function are told apart again.

    Args:
        module: has the functions that are called.
        function: well formed, as the verifier leaves it; left as it is.
        copies: is told what the values of ``function`` have become.
    """
    if not any(op.name == "call" for op in function.block):
        return function
    made = Function(function.name, function.phase, dict(function.dims))
    inliner = _Inliner(module, {} if copies is None else copies)
    for value in function.args:
        inliner.argument(value, made)
    inliner.ops(function, made)
    made.outputs = [(name, inliner.mapping[value]) for name, value in function.outputs]
    return made


def called(module: Module, function: Function) -> list[Function]:
    """The functions that a function runs, transitively, in the order of the module."""
    found: set[str] = set()
    work = [function]
    while work:
        for op in work.pop().block:
            for name in callees(op):
                if name not in found:
                    found.add(name)
                    work.append(module.function(name))
    return [item for name, item in module.functions.items() if name in found]


def run_by_programs(module: Module) -> set[str]:
    """The names of the functions that the programs run, transitively."""
    return {item.name for program in module.programs() for item in called(module, program)}


def holds_any(module: Module, op: Op, what: Callable[[Op], bool]) -> bool:
    """True if ``what`` holds for an op, or for an op of a function that it runs."""
    if op.name not in CONTROL:
        return what(op)
    functions = [module.function(name) for name in callees(op)]
    return any(holds_any(module, inner, what) for function in functions for inner in function.block)


def acts(module: Module, op: Op) -> bool:
    """True if an op, or an op of a function that it runs, has a side effect."""
    return holds_any(module, op, lambda inner: has_effect(inner.name, inner.attrs))


def is_foreign(module: Module, op: Op) -> bool:
    """True if an op, or an op of a function that it runs, is external."""
    return holds_any(module, op, lambda inner: has_trait(inner, Trait.EXTERNAL))


def within(outer: Loc, inner: Loc) -> Loc:
    """The place of an op of a body, seen from a call of it: its scope is inside of the call's."""
    scope = ".".join([part for part in (outer.scope, inner.scope) if part])
    return loc(inner.file, inner.line, scope, inner.via)


def outside(outer: str, inner: Loc) -> Loc:
    """The location of an op without the outer scope ``outer``: the inverse of :func:`within`."""
    scope = inner.scope.removeprefix(outer).removeprefix(".")
    return loc(inner.file, inner.line, scope, inner.via)


class _Inliner(Cloner):
    """Copies ops with the bodies of calls in their place, inside the scope of ``caller``."""

    def __init__(
        self, module: Module, mapping: dict[Value, Value], caller: Loc | None = None
    ) -> None:
        super().__init__(mapping)
        self.module = module
        self.caller = caller
        self._places: dict[Loc, Loc] = {}

    def loc(self, where: Loc) -> Loc:
        if self.caller is None:
            return where
        return self._places.get(where) or self._places.setdefault(where, within(self.caller, where))

    def ops(self, source: Function, target: Function) -> None:
        """Copy the ops of ``source``, whose arguments are in the mapping already."""
        for op in source.block:
            if op.name == "call":
                self._inline(op, target)
            else:
                self.op(op, target.block)

    def _inline(self, op: Op, target: Function) -> None:
        body = self.module.function(op.attrs.text("to_apply"))
        operands = [self.mapping[value] for value in op.operands]
        inner = _Inliner(self.module, dict(zip(body.args, operands, strict=True)), self.loc(op.loc))
        inner.ops(body, target)
        for old, (_, value) in zip(op.results, body.outputs, strict=True):
            new = self.mapping[old] = inner.mapping[value]
            if new.op is not None and old.name is not None:
                new.name = old.name
