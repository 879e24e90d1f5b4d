"""Call graph of a module: inline calls, and list the functions that a program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Loc, Module, Op, Value, loc
from graphgen.ir.clone import Cloner
from graphgen.ir.loc import UNKNOWN
from graphgen.limits import OPS as MOST_OPS
from graphgen.ops import OPS, Trait, has_trait
from graphgen.ops.control import CONTROL, branch_operands, callees, kernel_of
from graphgen.ops.custom_calls import NKI
from graphgen.ops.external import has_effect
from graphgen.text.printer import value_names


def inlined(
    module: Module,
    function: Function,
    copies: dict[Value, Value] | None = None,
    *,
    kernels: bool = True,
) -> Function:
    """``function`` without calls; itself if it has none. Bodies of loops and branches stay theirs.

    Copied ops are in the scope of the call, as :func:`within` says, so layers that share a function
    are distinct again.

    Args:
        module: has the functions that are called.
        function: well formed, as the verifier leaves it; left as it is.
        copies: gets the copy of each value of ``function``.
        kernels: also calls that name a kernel, whose function is their meaning.
    """
    # Asked of each program of each call: names are compared first.
    if not any(op for op in function.block if op.name == "call" and _is_inlined(op, kernels)):
        return function
    made = Function(function.name, function.phase, dict(function.dims))
    inliner = _Inliner(module, {} if copies is None else copies, kernels=kernels)
    for value in function.args:
        inliner.argument(value, made)
    inliner.ops(function, made)
    made.outputs = [(name, inliner.mapping[value]) for name, value in function.outputs]
    return made


def require_bounded_calls(module: Module) -> None:
    """Refuse a module whose calls multiply its ops, before anything inlines them (GG1102).

    Forty functions of which each calls the next one twice are 10^12 ops. A module that is long
    itself may become longer than one that is short.

    Args:
        module: well formed, without recursion.
    """
    own = sum(function.block.size for function in module.functions.values())
    most = max(MOST_OPS.most, 16 * own)
    known: dict[str, int] = {}
    for name in module.functions:
        work = [name]
        while work:
            here = module.function(work[-1])
            runs = [each for op in here.block for each in callees(op)]
            missing = [each for each in runs if each not in known]
            if missing:
                work += missing
                continue
            known[work.pop()] = total = here.block.size + sum([known[each] for each in runs])
            if total > most:
                what = f"@{here.name} has more than {most} ops with those of the functions it calls"
                raise GraphgenError("GG1102", what, help=f"--limits {MOST_OPS.name}=N raises this")


def _is_inlined(op: Op, kernels: bool) -> bool:
    return op.name == "call" and (kernels or not kernel_of(op))


def called(module: Module, function: Function, *, native: bool = True) -> list[Function]:
    """The functions that a function runs, transitively, in the order of the module.

    Args:
        module: has the functions.
        function: where to begin.
        native: also the meanings of kernels in NKI, which Neuron's compiler runs in their place.
    """
    found: set[str] = set()
    work = [function]
    while work:
        for op in work.pop().block:
            if not native and kernel_of(op) == NKI:
                continue
            for name in callees(op):
                if name not in found:
                    found.add(name)
                    work.append(module.function(name))
    # Most functions call none: a module of many is not gone through for each.
    return [item for name, item in module.functions.items() if name in found] if found else []


@dataclass(frozen=True, slots=True)
class InnerFunction:
    """A function that an op of a program runs: the body of a loop, a branch, a reducer.

    Attributes:
        function: without calls.
        path: the ops that run it, from the program on, each with its role.
        operands: per argument, the value that the op hands it; ``None`` where there is none.
    """

    function: Function
    path: tuple[str, ...]
    operands: tuple[Value | None, ...]

    @property
    def place(self) -> str:
        """The path as text: ``%w.body/%r.branch1``."""
        return "/".join(self.path)


def inner_functions(module: Module, function: Function) -> Iterator[InnerFunction]:
    """Functions that loops, branches and reducers of a program run, at any depth, in program order.

    A function that several ops run is given for each of them.

    Args:
        module: has the functions.
        function: without calls; see :func:`inlined`.
    """
    whole: dict[str, Function] = {}
    names: dict[Function, dict[Value, str]] = {}
    work: list[InnerFunction] = [InnerFunction(function, (), ())]
    while work:
        outer = work.pop()
        if outer.path:
            yield outer
        found: list[InnerFunction] = []
        for op in outer.function.block:
            for role, name, operands in _runs(op):
                inner = whole.get(name) or whole.setdefault(
                    name, inlined(module, module.function(name))
                )
                if outer.function not in names:
                    names[outer.function] = value_names(outer.function)
                made = names[outer.function][op.results[0]]
                handed = [*operands, *[None] * len(inner.args)][: len(inner.args)]
                found.append(InnerFunction(inner, (*outer.path, f"{made}.{role}"), tuple(handed)))
        work += reversed(found)


def _runs(op: Op) -> list[tuple[str, str, Sequence[Value]]]:
    """Role and name of each function that an op runs, and the values that it hands it whole."""
    if op.name == "conditional":
        pairs = zip(callees(op), branch_operands(op), strict=True)
        return [(f"branch{index}", *pair) for index, pair in enumerate(pairs)]
    if op.name == "while":
        names = zip(("condition", "body"), callees(op), strict=True)
        return [(*pair, op.operands) for pair in names]
    return [("to_apply", name, ()) for name in callees(op)]


def run_by_programs(module: Module) -> set[str]:
    """The names of the functions that the programs run, transitively."""
    return {item.name for program in module.programs() for item in called(module, program)}


def _holds(module: Module, op: Op, what: Callable[[Op], bool]) -> bool:
    """True if ``what`` holds for an op that is not pure, or for one of a function that it runs."""
    if Trait.PURE in OPS[op.name].traits:
        return False
    if op.name not in CONTROL:
        return what(op)
    functions = [module.function(name) for name in callees(op)]
    return any(_holds(module, inner, what) for function in functions for inner in function.block)


def _has_effect(op: Op) -> bool:
    return has_effect(op.name, op.attrs)


def _is_external(op: Op) -> bool:
    return has_trait(op, Trait.EXTERNAL)


def has_effects(module: Module, op: Op) -> bool:
    """True if an op, or an op of a function that it runs, has a side effect."""
    return _holds(module, op, _has_effect)


def is_opaque(module: Module, op: Op) -> bool:
    """True if an op, or an op of a function that it runs, is external."""
    return _holds(module, op, _is_external)


def within(outer: Loc, inner: Loc) -> Loc:
    """The place of an op of a body, seen from a call of it: its scope is inside of the call's.

    One without a place, as in the meaning of a kernel, is where the call is.
    """
    scope = ".".join([part for part in (outer.scope, inner.scope) if part])
    if (inner.file, inner.line) == (UNKNOWN.file, UNKNOWN.line):
        return loc(outer.file, outer.line, scope, (*outer.via, *inner.via))
    return loc(inner.file, inner.line, scope, inner.via)


def outside(outer: str, inner: Loc) -> Loc:
    """The location of an op without the outer scope ``outer``: the inverse of :func:`within`."""
    scope = inner.scope.removeprefix(outer).removeprefix(".")
    return loc(inner.file, inner.line, scope, inner.via)


class _Inliner(Cloner):
    """Copies ops with the bodies of calls in their place, inside the scope of ``caller``."""

    def __init__(
        self,
        module: Module,
        mapping: dict[Value, Value],
        caller: Loc | None = None,
        *,
        kernels: bool,
    ) -> None:
        super().__init__(mapping)
        self.module = module
        self.caller = caller
        self.kernels = kernels
        self._places: dict[Loc, Loc] = {}

    def loc(self, where: Loc) -> Loc:
        if self.caller is None:
            return where
        return self._places.get(where) or self._places.setdefault(where, within(self.caller, where))

    def ops(self, source: Function, target: Function) -> None:
        """Copy the ops of ``source``, whose arguments are in the mapping already."""
        for op in source.block:
            if _is_inlined(op, self.kernels):
                self._inline(op, target)
            else:
                self.op(op, target.block)

    def _inline(self, op: Op, target: Function) -> None:
        body = self.module.function(op.attrs.text("to_apply"))
        operands = [self.mapping[value] for value in op.operands]
        given = dict(zip(body.args, operands, strict=True))
        inner = _Inliner(self.module, given, self.loc(op.loc), kernels=self.kernels)
        inner.ops(body, target)
        for old, (_, value) in zip(op.results, body.outputs, strict=True):
            new = self.mapping[old] = inner.mapping[value]
            if new.op is not None and old.name is not None:
                new.name = old.name
