"""Compare a program op by op with the one read back from its file; names of values do not count."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import AttrValue, Function, Module, Op, Value
from graphgen.ops.control import callees, renamed
from graphgen.text.printer import attr_text

# Fields of a custom call that the reader keeps as bytes: what the writer chose by default.
_OWN = {"custom_call": "more"}


def first_difference(module: Module, function: Function, read: Module) -> str:
    """The first difference of a program and the only one of a module that was read; empty for none.

    Args:
        module: of the program.
        function: the program, as it was written.
        read: what the reader made of the file.
    """
    programs = read.programs()
    if len(programs) != 1:
        return f"the file has {len(programs)} programs"
    if read.ranks not in (1, module.ranks):
        return f"the file is for {read.ranks} ranks, the module for {module.ranks}"
    return _Comparison(module, read).functions(function, programs[0])


class _Comparison:
    """A comparison of functions of two modules, each pair once."""

    def __init__(self, module: Module, read: Module) -> None:
        self.module = module
        self.read = read
        self.seen: set[tuple[str, str]] = set()

    def functions(self, ours: Function, theirs: Function) -> str:
        """The first difference of two functions."""
        if (ours.name, theirs.name) in self.seen:
            return ""
        self.seen.add((ours.name, theirs.name))
        place = f"@{ours.name}"
        found = _types(ours.args, theirs.args)
        if found:
            return f"{place}: arguments: {found}"
        number = dict(zip(ours.args, theirs.args, strict=True))
        for count, (a, b) in enumerate(zip(ours.block, theirs.block, strict=False)):
            found = self._ops(a, b, number)
            if found:
                return f"{place}: op {count}: {found}"
            number |= zip(a.results, b.results, strict=True)
        if ours.block.size != theirs.block.size:
            return f"{place}: {theirs.block.size} ops instead of {ours.block.size}"
        given = [number[value] for _, value in ours.outputs]
        if given != [value for _, value in theirs.outputs]:
            return f"{place}: other results"
        return ""

    def _ops(self, ours: Op, theirs: Op, number: dict[Value, Value]) -> str:
        if ours.name != theirs.name:
            return f"{theirs.name} instead of {ours.name}"
        if [number[value] for value in ours.operands] != [*theirs.operands]:
            return f"{ours.name} has other operands"
        found = _types(ours.results, theirs.results)
        if found:
            return f"results of {ours.name}: {found}"
        names, others = callees(ours), callees(theirs)
        if len(names) != len(others):
            return f"{ours.name} runs other functions"
        for name, other in zip(names, others, strict=True):
            found = self.functions(self.module.function(name), self.read.function(other))
            if found:
                return found
        if _attrs(ours, {}) != _attrs(theirs, dict(zip(others, names, strict=True))):
            return f"{ours.name} has{attr_text(theirs)} instead of{attr_text(ours)}"
        return ""


def _attrs(op: Op, names: dict[str, str]) -> dict[str, AttrValue]:
    found = dict(renamed(op, names) if names else op.attrs)
    found.pop(_OWN.get(op.name, ""), None)
    return found


def _types(ours: Sequence[Value], theirs: Sequence[Value]) -> str:
    if len(ours) != len(theirs):
        return f"{len(theirs)} instead of {len(ours)}"
    for a, b in zip(ours, theirs, strict=True):
        if a.type is not b.type:
            return f"{b.type.text} instead of {a.type.text}"
    return ""
