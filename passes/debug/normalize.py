"""A module in a form that depends on what it computes only, so that texts can be compared."""

from __future__ import annotations

from dataclasses import replace

from graphgen.analysis import inlined
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Function, Module, Op, Role, Value
from graphgen.ops import OPS
from graphgen.ops.foreign import FOREIGN, has_effect


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
    called = {
        op.attrs.text("to_apply")
        for function in module.functions.values()
        for op in function.block
        if op.name == "call"
    }
    count = 0
    for function in module.functions.values():
        if function.name in called:
            continue
        name = function.name
        if function.phase and not keep_names:
            name, count = f"program{count}", count + 1
        target = made.add(Function(name, function.phase, dict(function.dims)))
        _copy(inlined(module, function), target, names)
    return made


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


def _copy(source: Function, target: Function, names: dict[str, str]) -> None:
    copies: dict[Value, Value] = {}
    made: dict[object, Op] = {}
    taken: dict[str, int] = {}
    for value in source.args:
        name = names.get(value.name or "", value.name or "")
        copies[value] = target.block.add_arg(value.type, name)
        copies[value].sharding = value.sharding
    for op in in_order(source):
        key = _key(op, [copies[value] for value in op.operands])
        if key in made:
            copies.update(zip(op.results, made[key].results, strict=True))
            continue
        results: list[str] = []
        for result in op.results:
            base = f"{op.name}.{result.type.text_name}".rstrip(".")
            taken[base] = taken.get(base, -1) + 1
            results.append(f"{base}.{taken[base]}")
        types = [result.type for result in op.results]
        operands = tuple([copies[value] for value in op.operands])
        copy = Op(op.name, operands, types, op.attrs, names=results)
        target.block.append(copy)
        made[key] = copy
        for old, new in zip(op.results, copy.results, strict=True):
            copies[old] = new
            new.sharding = old.sharding
    target.outputs = [(names.get(name, name), copies[value]) for name, value in source.outputs]


def _key(op: Op, operands: list[Value]) -> object:
    """Equal for ops that give the same; of what is foreign nobody knows."""
    if op.name in FOREIGN or OPS[op.name].collective:
        return op
    types = tuple([(result.type, result.sharding) for result in op.results])
    return (op.name, op.attrs, types, *operands)


def in_order(function: Function) -> list[Op]:
    """The ops that outputs and effects need, each after what it reads, in order of first need."""
    done: dict[Op, None] = {}
    roots = [value.op for _, value in function.outputs if value.op is not None]
    roots += [op for op in function.block if has_effect(op.name, op.attrs)]
    for root in roots:
        work = [root]
        while work:
            op = work[-1]
            above = [v.op for v in op.operands if v.op is not None and v.op not in done]
            if above:
                work += reversed(above)
            else:
                done[op] = None
                work.pop()
    return list(done)
