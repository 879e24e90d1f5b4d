"""Normalize a module, so that modules with the same computation have the same text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphgen.analysis import called, has_effects, inlined, is_opaque
from graphgen.analysis.annotation_diff import CONTROL, control_edges
from graphgen.ir import (
    RANK,
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    Attrs,
    Function,
    Loc,
    Module,
    Op,
    Role,
    attrs_of,
)
from graphgen.ir.clone import Cloner
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import OPS
from graphgen.ops.control import callees, renamed


def normalized(module: Module, *, keep_names: bool = False) -> Module:
    """The same module with canonical names and order, without places and free text.

    Ops stand in the order in which the outputs need them, from the first output on; those that no
    output needs are left out, and equal ones are shared. A value is called by its op and type, and
    numbered among those of the same, so that an op more changes few names. Calls are inlined.

    Args:
        module: is left as it is.
        keep_names: of the module, its functions, arguments and outputs; otherwise those are
            numbered.
    """
    names = {} if keep_names else _interface_names(module)
    title = module.name if keep_names else "module"
    made = Module(title, module.level, dict(module.mesh))
    for row in module.interface.values():
        made.interface[names.get(row.name, row.name)] = replace(
            row, name=names.get(row.name, row.name)
        )
    bodies = {f.name for each in module.functions.values() for f in called(module, each)}
    plain = {n: inlined(module, f) for n, f in module.functions.items()}
    # Of those, what loops and choices run is there still when calls are written out.
    left = _still_run(module, plain, bodies)
    new = {name: name if keep_names else f"body{i}" for i, name in enumerate(left)}
    count = 0
    for function in module.functions.values():
        if function.name in bodies and function.name not in new:
            continue
        name = new.get(function.name, function.name)
        if function.phase and not keep_names:
            name, count = f"program{count}", count + 1
        target = made.add(Function(name, function.phase, dict(function.dims)))
        given = names
        if function.name in new:
            given = {value.name or "": f"arg{i}" for i, value in enumerate(function.args)}
        _Copy(module, plain[function.name], target, given, new).fill()
    return made


def _still_run(module: Module, plain: Mapping[str, Function], bodies: set[str]) -> list[str]:
    """The functions that are run by programs without calls, in the module's order."""
    found: set[str] = set()
    work = [function for name, function in plain.items() if name not in bodies]
    while work:
        names = {name for op in work.pop().block for name in callees(op)} - found
        found |= names
        work += [plain[name] for name in names]
    return [name for name in module.functions if name in found]


def _interface_names(module: Module) -> dict[str, str]:
    """New names by role and position; those with a meaning of their own stay."""
    counts: dict[Role, int] = {}
    names: dict[str, str] = {}
    prepared = WEIGHTS_GLOBAL in module.functions or WEIGHTS_RANK in module.functions
    for row in module.interface.values():
        number = counts.get(row.role, 0)
        counts[row.role] = number + 1
        # The checkpoint's names are how weights are found.
        keeps = row.name == RANK or (prepared and row.role in (Role.WEIGHT, Role.PARAM))
        names[row.name] = row.name if keeps else f"{row.role.value}{number}"
    return names


class _Copy(Cloner):
    """Writes one function in canonical order.

    Args:
        module: of the function.
        source: the function, without calls.
        target: the copy; empty.
        names: interface name -> its name in the copy.
        bodies: function that ``source`` runs -> its name in the copy.
    """

    def __init__(
        self,
        module: Module,
        source: Function,
        target: Function,
        names: Mapping[str, str],
        bodies: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.module = module
        self.source = source
        self.target = target
        self.renames = names
        self.bodies = bodies
        self._taken: dict[str, int] = {}

    def fill(self) -> None:
        """Fill the target."""
        made: dict[object, Op] = {}
        for value in self.source.args:
            self.argument(value, self.target, self._renamed(value.name or ""))
        for op in in_order(self.module, self.source):
            key = self._key(op)
            copy = made.get(key)
            if copy is None:
                made[key] = self.op(op, self.target.block)
            else:
                self.mapping.update(zip(op.results, copy.results, strict=True))
        self._order()
        self.target.outputs = [
            (self._renamed(name), self.mapping[value]) for name, value in self.source.outputs
        ]

    def _order(self) -> None:
        """Give control dependencies the names of the copies."""
        found: dict[Op, list[str]] = {}
        for maker, op in control_edges(self.source):
            one, other = (self.mapping.get(item.results[0]) for item in (maker, op))
            if one is not None and other is not None and other.op is not None:
                found.setdefault(other.op, []).append(f"%{one.name}")
        for op, names in found.items():
            op.annotations = attrs_of({**op.annotations, CONTROL: ",".join(dict.fromkeys(names))})

    def attrs(self, op: Op) -> Attrs:
        return renamed(op, self.bodies)

    def loc(self, where: Loc) -> Loc:
        return UNKNOWN

    def result_names(self, op: Op) -> list[str | None]:
        names: list[str | None] = []
        for result in op.results:
            base = f"{op.name}.{result.type.text_name}".rstrip(".")
            self._taken[base] = self._taken.get(base, -1) + 1
            names.append(f"{base}.{self._taken[base]}")
        return names

    def _renamed(self, name: str) -> str:
        return self.renames.get(name, name)

    def _key(self, op: Op) -> object:
        """A key that equal ops share; foreign ops and collectives are unique."""
        if OPS[op.name].collective or is_opaque(self.module, op):
            return op
        types = tuple([(result.type, result.sharding) for result in op.results])
        return (op.name, op.attrs, types, *[self.mapping[value] for value in op.operands])


def in_order(module: Module, function: Function) -> list[Op]:
    """Ops needed by outputs and effects, operands first, in order of first use."""
    done: dict[Op, None] = {}
    earlier: dict[Op, list[Op]] = {}
    for maker, op in control_edges(function):
        earlier.setdefault(op, []).append(maker)
    roots = [value.op for _, value in function.outputs if value.op is not None]
    roots += [op for op in function.block if has_effects(module, op)]
    for root in roots:
        work = [root]
        while work:
            op = work[-1]
            needed = [*[v.op for v in op.operands if v.op is not None], *earlier.get(op, ())]
            above = [item for item in needed if item not in done]
            if above:
                work += reversed(above)
            else:
                done[op] = None
                work.pop()
    return list(done)
