"""The verifier: is this module what it claims to be? Runs after every pass by default."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import RANK, Function, Module, Op, Role, TensorType, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.ops.control import CONTROL
from graphgen.ops.levels import LEVELS, Level
from graphgen.ops.opdef import OPS, InferError, infer, op_def
from graphgen.ops.verify_control import verify_control
from graphgen.ops.wrong import wrong


def verify(module: Module) -> None:
    """Check every function and the interface.

    Raises:
        GraphgenError: GG0202 a value read before it is made, or a call of no function, GG0203 a
            wrong type, GG0204 broken bookkeeping, GG0205 interface and program disagree, GG0206 an
            op of another level.
    """
    level = LEVELS.get(module.level)
    if level is None:
        raise GraphgenError(
            "GG0204", f"unknown level '{module.level}'", help=f"levels: {', '.join(LEVELS)}"
        )
    before: dict[str, Function] = {}
    for function in module.functions.values():
        for op in _verify_ops(function, level, module.ranks if module.mesh else 0):
            verify_control(op, function, before)
        _verify_outputs(function)
        if function.phase:
            _verify_program(module, function)
        before[function.name] = function
    _verify_packs(module)


# Signatures of ops found right before, by level and ranks: layers repeat, so nearly all ops hit.
_Signature = tuple[object, ...]
_passed: dict[tuple[str, int], set[_Signature]] = {}


def _verify_ops(function: Function, level: Level, ranks: int) -> list[Op]:
    """Every op of a function; ``ranks`` is 0 while the module has no mesh.

    Returns:
        Those that run other functions.
    """
    seen: set[Value] = set(function.args)
    passed = _passed.setdefault((level.name, ranks), set())
    control: list[Op] = []
    count = 0
    for op in function.block:
        count += 1
        if op.name in CONTROL:
            control.append(op)
        types: list[object] = [op.name, op.attrs, len(op.operands)]
        for operand in op.operands:
            if operand not in seen:
                raise wrong("GG0202", op, function, f"reads %{operand.name} before it is made")
            if op not in operand.users:
                raise wrong("GG0204", op, function, f"%{operand.name} does not know this user")
            types.append(operand.type)
        for result in op.results:
            types.append(result.type)
            seen.add(result)
        signature = tuple(types)
        if signature not in passed:
            _verify_op(op, function, level)
            _verify_ranks(op, function, ranks)
            passed.add(signature)
    if count != function.block.size:
        raise GraphgenError("GG0204", f"@{function.name}: {count} ops, size {function.block.size}")
    return control


def _verify_op(op: Op, function: Function, level: Level) -> None:
    if op.name not in OPS:
        op_def(op.name)
    try:
        wanted = infer(op.name, tuple([v.type for v in op.operands]), op.attrs)
    except InferError as error:
        raise wrong("GG0105", op, function, str(error)) from error
    if len(op.results) != len(wanted):
        what = f"has {len(op.results)} results, but the op gives {len(wanted)}"
        raise wrong("GG0203", op, function, what)
    for result, type_ in zip(op.results, wanted, strict=True):
        if result.type is not type_:
            what = f"states {result.type.text}, but the op gives {type_.text}"
            raise wrong("GG0203", op, function, what)
    reason = level.why_not(op)
    if reason:
        raise wrong("GG0206", op, function, f"not legal at level '{level.name}': {reason}")


def _verify_ranks(op: Op, function: Function, ranks: int) -> None:
    """A collective speaks of the ranks of the mesh, all of them and no other."""
    if not ranks or not OPS[op.name].collective:
        return
    covers = "replica_groups" in op.attrs
    groups = op.attrs.groups("replica_groups" if covers else "source_target_pairs")
    named = {rank for group in groups for rank in group}
    outside = sorted(named.difference(range(ranks)))
    if outside:
        raise wrong("GG0204", op, function, f"speaks of rank {outside[0]}, the mesh has {ranks}")
    missing = sorted(set(range(ranks)) - named)
    if missing and covers:
        raise wrong("GG0204", op, function, f"rank {missing[0]} of the mesh is in no group")


def _verify_outputs(function: Function) -> None:
    seen: set[str] = set()
    for name, value in function.outputs:
        if name in seen:
            raise GraphgenError("GG0107", f"@{function.name} has two outputs called {name}")
        seen.add(name)
        inside = value in function.args if value.op is None else value.op.block is function.block
        if not inside:
            raise GraphgenError("GG0202", f"@{function.name}: output {name} is not defined in it")


def _verify_program(module: Module, function: Function) -> None:
    """Arguments and outputs of an entry program against the interface table."""
    names = [value.name for value in function.args]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GraphgenError("GG0107", f"@{function.name} has two arguments called {twice}")
    for value in function.args:
        name = value.name or ""
        if name == RANK and name not in module.interface:
            _agree(function, name, value.type, tensor(s32, (1,)))
            continue
        row = module.interface.get(name)
        if row is None or row.role is Role.OUTPUT:
            raise GraphgenError(
                "GG0205", f"@{function.name}: argument %{name} has no interface row"
            )
        _agree(function, name, value.type, row.physical)
    given = dict(function.outputs)
    for name, value in function.outputs:
        row = module.interface.get(name)
        if row is None or row.role not in (Role.OUTPUT, Role.STATE):
            raise GraphgenError("GG0205", f"@{function.name}: output {name} has no interface row")
        _agree(function, name, value.type, row.physical)
    for value in function.args:
        row = module.interface.get(value.name or "")
        if row and row.role is Role.STATE and row.name not in given:
            raise GraphgenError("GG0205", f"@{function.name} takes state {row.name} and drops it")


def _agree(function: Function, name: str, actual: TensorType, wanted: TensorType) -> None:
    if actual is not wanted.bind(function.dims):
        raise GraphgenError(
            "GG0205",
            f"@{function.name}: %{name} is {actual.text}, the interface says "
            f"{wanted.bind(function.dims).text}",
            help="all entry programs share one representation of a weight or a state",
        )


def _verify_packs(module: Module) -> None:
    for row in module.interface.values():
        for name in (row.pack, row.unpack):
            if name and name not in module.functions:
                raise GraphgenError("GG0205", f"{row.role.value} {row.name}: no function @{name}")
        if not row.pack and row.role in (Role.STATE, Role.INPUT) and row.logical != row.physical:
            raise GraphgenError(
                "GG0205", f"{row.role.value} {row.name} changed its type without a pack function"
            )
