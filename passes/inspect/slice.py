"""Extract a subprogram as a module: some ops, a layer, or the ops below an output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from graphgen.analysis import called, inlined
from graphgen.analysis.calls import inner_functions
from graphgen.analysis.layers import layers_of
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import RANK, Function, Module, Op, Role, entry
from graphgen.ir.clone import Cloner
from graphgen.ir.names import fresh_name
from graphgen.numbers import is_digits
from graphgen.text.printer import value_names

# Ops that are copied into a slice rather than cut at: they cost nothing and show a value's meaning.
# Then ops that are copied if they only spread such a value.
_PLAIN = frozenset(("constant", "iota"))
_SPREADS = frozenset(("broadcast_in_dim", "convert", "reshape"))


def function_of(module: Module, function: Function, names: Sequence[str]) -> Function:
    """The function that makes the values called ``names``: the program, or one that it runs.

    Args:
        module: has the functions.
        function: the program, without calls.
        names: as printed; ``@f/%x`` is in the function ``@f``, ``%w.body/%x`` in the body of the
            loop that gives ``%w``.

    Raises:
        GraphgenError: GG0202 for a place that does not exist, and for values that several
            functions make.
    """
    places = {name.rpartition("/")[0] for name in names}
    inner = {item.place: item.function for item in inner_functions(module, function)}
    others = {f"@{item.name}": item for item in inner.values()}
    for item in called(module, module.functions.get(function.name, function)):
        # Calls are inlined where they run: in them, values have the names of the text.
        others.setdefault(f"@{item.name}", inlined(module, item))
    if places != {""}:
        place = min(places)
        found = inner.get(place) or others.get(place)
        if len(places) > 1 or found is None:
            what = f"@{function.name} runs nothing at {', '.join(sorted(places))}"
            known = ", ".join([*others][:8]) or "no other function"
            raise GraphgenError("GG0202", what, help=f"it runs {known}")
        return found
    if _makes(function, names):
        return function
    made_in = [name for name, item in others.items() if _makes(item, names)]
    if len(made_in) > 1:
        what = f"{', '.join(names)} is made in {', '.join(made_in)}"
        raise GraphgenError("GG0202", what, help=f"choose one: {made_in[0]}/{names[0]}")
    return others[made_in[0]] if made_in else function


def _makes(function: Function, names: Sequence[str]) -> bool:
    made = {name for value, name in value_names(function).items() if value.op is not None}
    return all(f"%{name.removeprefix('%')}" in made for name in names)


def function_with_layer(module: Module, function: Function, layer: str) -> Function:
    """The function that has a layer: the program, else the first one that it runs with it."""
    inner = [item.function for item in inner_functions(module, function)]
    return next((item for item in (function, *inner) if _layer(item, layer) is not None), function)


def _layer(function: Function, layer: str) -> set[Op] | None:
    for name, ops in layers_of(function).items():
        if layer == name or (layer.isdigit() and name.rpartition(".")[2] == layer):
            return set(ops)
    return None


def ops_called(function: Function, names: Iterable[str], depth: int = 0) -> set[Op]:
    """Ops that define the values ``names``, and their producers up to ``depth`` levels.

    Args:
        function: the program.
        names: with or without ``%``; as printed, perhaps after a place (:func:`function_of`).
        depth: how far up; 0 for the ops alone.

    Raises:
        GraphgenError: GG0202 for a name that no op's result has, with the nearest.
    """
    known = {name: value for value, name in value_names(function).items()}
    found: set[Op] = set()
    for name in [name.rpartition("/")[2] for name in names]:
        value = known.get("%" + name.removeprefix("%"))
        if value is None or value.op is None:
            what = "is an argument" if value is not None else "is not made"
            hint = did_you_mean(f"%{name.removeprefix('%')}", known)
            raise GraphgenError("GG0202", f"{name} {what} in @{function.name}", help=hint)
        found.add(value.op)
    edge = set(found)
    for _ in range(depth):
        edge = {value.op for op in edge for value in op.operands if value.op is not None} - found
        found |= edge
    return found


def ops_of_layer(function: Function, layer: str) -> set[Op]:
    """The ops of a layer, by its name or its number (GG0202 naming those there are)."""
    found = _layer(function, layer)
    if found is not None:
        return found
    known = list(layers_of(function))
    shown = f"{known[0]} to {known[-1]}" if known else "none"
    raise GraphgenError(
        "GG0202", f"@{function.name} has no layer '{layer}'", help=f"it has {shown}"
    )


def ops_below(function: Function, output: str) -> set[Op]:
    """All ops below an output, by name or position (GG0202 lists the outputs)."""
    names = [name for name, _ in function.outputs]
    if output not in names and not (is_digits(output) and int(output) < len(names)):
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        what = f"@{function.name} has no output '{output}'"
        raise GraphgenError("GG0202", what, help=f"it has {shown}")
    value = function.outputs[names.index(output) if output in names else int(output)][1]
    work = [value.op] if value.op is not None else []
    found = set(work)
    while work:
        above = {v.op for v in work.pop().operands if v.op is not None} - found
        found |= above
        work += above
    return found


def sliced(module: Module, function: Function, ops: Collection[Op], only: str = "") -> Module:
    """A module that computes these ops.

    Values from elsewhere become inputs of the same name, or keep their role in the interface;
    constants come along. Values that are read elsewhere or returned become outputs. Types are those
    of one rank.

    Args:
        module: for its interface.
        function: without calls; see :func:`graphgen.analysis.inlined`.
        ops: some of its ops.
        only: the name of the only output wanted, of those that the program has; empty for all.

    Raises:
        GraphgenError: GG0304 when there is nothing to compute.
    """
    if not ops:
        raise GraphgenError("GG0304", f"a slice of @{function.name} without any op")
    made = Module(f"{module.name}.slice", module.level, dict(module.mesh))
    target = made.add(Function(function.name, function.phase or "main", dict(function.dims)))
    return _Cut(module, function, made, target).cut(ops, only)


def without_interface(module: Module) -> Module:
    """The module with its functions alone: its interface says nothing of a loop's body."""
    made = Module(module.name, module.level, dict(module.mesh))
    made.functions.update(module.functions)
    return made


class _Cut:
    def __init__(self, module: Module, source: Function, made: Module, target: Function) -> None:
        self.module = module
        self.source = source
        self.made = made
        self.target = target
        self.names = {value: name[1:] for value, name in value_names(source).items()}
        self.cloner = Cloner(shardings=False)
        self.copies = self.cloner.mapping

    def cut(self, ops: Collection[Op], only: str) -> Module:
        wanted = {op for op in self.source.block if op in ops}
        inside = wanted | self.plain(wanted)
        self.arguments(inside)
        for op in self.source.block:
            if op in inside:
                self.cloner.op(op, self.target.block)
        self.outputs(wanted, only)
        self.rows()
        self.bodies()
        return self.made

    def bodies(self) -> None:
        """Copy the functions that loops and conditionals run, in front of their callers."""
        for function in called(self.module, self.target):
            body = self.made.add(Function(function.name, function.phase, dict(function.dims)))
            Cloner().function(function, body)
        target = self.made.functions.pop(self.target.name)
        self.made.add(target)

    def plain(self, wanted: set[Op]) -> set[Op]:
        """Constants that the ops read, through whatever spreads them."""
        known: set[Op] = set()
        for op in self.source.block:
            above = [value.op for value in op.operands]
            if op.name in _PLAIN or (op.name in _SPREADS and all(item in known for item in above)):
                known.add(op)
        work = [v.op for op in wanted for v in op.operands if v.op is not None and v.op in known]
        found = set(work)
        for op in reversed(self.source.block):
            if op in found:
                found.update(value.op for value in op.operands if value.op is not None)
        return found

    def arguments(self, inside: set[Op]) -> None:
        """Arguments in the order they had, then the values that are cut at, in program order."""
        read = {value: None for op in self.source.block if op in inside for value in op.operands}
        cut = [value for value in read if value.op is not None and value.op not in inside]
        for value in [*[v for v in self.source.args if v in read], *cut]:
            name = self.names[value]
            # A digit is a name the text gives to what has none.
            name = f"value.{name}" if name.isdigit() else name
            self.cloner.argument(value, self.target, name)

    def outputs(self, wanted: set[Op], only: str) -> None:
        taken = {value.name or "" for value in self.target.args}
        states = {row.name for row in self.module.entries(Role.STATE)}
        for name, value in self.source.outputs:
            if value.op in wanted and only in ("", name):
                kept = name in states and self.target.arg(name) is not None
                self.target.outputs.append(
                    (name if kept else _free(name, taken), self.copies[value])
                )
                taken.add(name)
        if only:
            return
        for op in self.source.block:
            for value in op.results if op in wanted else ():
                if any(user not in wanted for user in value.users) and not self.source.returns(
                    value
                ):
                    name = self.names[value]
                    name = _free(f"value.{name}" if name.isdigit() else name, taken)
                    self.target.outputs.append((name, self.copies[value]))
        if not self.target.outputs:
            last = [value for op in self.source.block if op in wanted for value in op.results][-1]
            self.target.outputs.append((_free("result", taken), self.copies[last]))

    def rows(self) -> None:
        given = dict(self.target.outputs)
        for value in self.target.args:
            name = value.name or ""
            row = self.module.interface.get(name)
            if name == RANK and row is None:
                continue
            role = row.role if row is not None else Role.INPUT
            if role is Role.OUTPUT or (role is Role.STATE and name not in given):
                role = Role.INPUT
            # The producer of a prepared weight is not here.
            role = Role.WEIGHT if role is Role.PARAM else role
            domain = row.domain if row is not None else None
            self.made.interface[name] = entry(role, name, value.type, domain)
        for name, value in self.target.outputs:
            if name not in self.made.interface:
                self.made.interface[name] = entry(Role.OUTPUT, name, value.type)


def _free(wanted: str, taken: set[str]) -> str:
    """``wanted``, ``wanted.out``, ``wanted.out2`` ...: the first free one, added to ``taken``."""
    found = wanted
    if wanted in taken:
        found = fresh_name(f"{wanted}.out", taken, 2, "{name}{number}")
    taken.add(found)
    return found
