"""The verifier: structural and type checks of a module, run after every pass by default.

A check of one op is a rule in :data:`OP_RULES`, one of a function in :data:`FUNCTION_RULES`; each
yields its violations as ``(code, text)``. Layers repeat, so an op whose types and attributes were
checked before is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import RANK, Function, Module, Op, Role, TensorType, Value, tensor
from graphgen.ir.domain import check_domain
from graphgen.ir.dtype import pred, s32
from graphgen.ir.loc import UNKNOWN
from graphgen.ops.control import CONTROL, SCALAR, branch_operands, callees, scalar_signature
from graphgen.ops.legality import IR_STAGES, IRStage
from graphgen.ops.opdef import OPS, InferError, infer, op_def


def verification_error(code: str, op: Op, function: Function, what: str) -> GraphgenError:
    """Build the error ``code`` about ``op`` in ``function``, with its location and its line."""
    where = f"{op.loc!r}, in @{function.name}"
    results = ", ".join(f"%{r.name or '?'}" for r in op.results)
    operands = ", ".join(f"%{v.name or '?'} : {v.type.text}" for v in op.operands)
    return GraphgenError(
        code, f"{op.name}: {what}", where=where, note=f"{results} = {op.name}({operands})"
    )


def verify_control(op: Op, function: Function, before: Mapping[str, Function]) -> None:
    """Check a call, a loop or a choice, which stands in ``function``.

    Its callees are among the functions ``before`` this one, so that there is no recursion.

    Raises:
        GraphgenError: GG0202 no such function, GG0203 other types, GG0204 an entry program.
    """
    results = [value.type for value in op.results]
    if op.name == "conditional":
        given = [[value.type for value in part] for part in branch_operands(op)]
        for name, types in zip(callees(op), given, strict=True):
            _agrees(op, function, before, name, types, results)
        return
    if op.name in SCALAR:
        takes, gives = scalar_signature(op)
        _agrees(op, function, before, op.attrs.text("to_apply"), takes, gives)
        return
    types = [value.type for value in op.operands]
    if op.name == "while":
        _agrees(op, function, before, op.attrs.text("condition"), types, [tensor(pred)])
        _agrees(op, function, before, op.attrs.text("body"), types, results)
        return
    _agrees(op, function, before, op.attrs.text("to_apply"), types, results)


def _agrees(
    op: Op,
    function: Function,
    before: Mapping[str, Function],
    name: str,
    takes: Sequence[TensorType],
    gives: Sequence[TensorType],
) -> None:
    """The function called ``name`` is there, and takes and gives these types."""
    callee = before.get(name)
    if callee is None:
        raise verification_error(
            "GG0202", op, function, f"no function @{name} stands before this one"
        )
    if callee.phase:
        raise verification_error("GG0204", op, function, f"@{name} is an entry program")
    for what, given, values in (
        ("operands", takes, callee.args),
        ("results", gives, [value for _, value in callee.outputs]),
    ):
        if list(given) != [value.type for value in values]:
            texts = ", ".join([value.type.text for value in values])
            raise verification_error("GG0203", op, function, f"the {what} of @{name} are {texts}")


def verify(module: Module) -> None:
    """Check every function and the interface.

    Raises:
        GraphgenError: GG0202 a value is used before its definition, or a callee is missing, GG0203
            a wrong type, GG0204 broken bookkeeping, GG0205 interface and program disagree, GG0206
            an op is illegal in this stage, GG0108 a domain that its row does not have.
    """
    stage = IR_STAGES.get(module.level)
    if stage is None:
        raise GraphgenError(
            "GG0204", f"unknown level '{module.level}'", help=f"levels: {', '.join(IR_STAGES)}"
        )
    scope = _Scope(stage, module.ranks if module.mesh else 0)
    before: dict[str, Function] = {}
    for function in module.functions.values():
        for op in _verify_ops(function, scope):
            verify_control(op, function, before)
        for rule in FUNCTION_RULES:
            for violation in rule(module, function):
                raise violation
        before[function.name] = function
    _verify_packs(module)
    _verify_domains(module)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The parts of a module that its ops are checked against.

    Attributes:
        stage: of the module.
        ranks: of its mesh; 0 without a mesh.
    """

    stage: IRStage
    ranks: int


Violation = tuple[str, str]
# Per scope, the signatures (name, attributes, types) of ops that passed all rules.
_Signature = tuple[object, ...]
_passed: dict[tuple[str, int], set[_Signature]] = {}


def _verify_ops(function: Function, scope: _Scope) -> list[Op]:
    """Check every op of a function; returns its control ops."""
    seen: set[Value] = set(function.args)
    passed = _passed.setdefault((scope.stage.name, scope.ranks), set())
    control: list[Op] = []
    count = 0
    for op in function.block:
        count += 1
        if op.name in CONTROL:
            control.append(op)
        types: list[object] = [op.name, op.attrs, len(op.operands)]
        for operand in op.operands:
            if operand not in seen or not operand.is_read_by(op):
                raise _broken_use(op, function, operand, operand in seen)
            types.append(operand.type)
        for result in op.results:
            types.append(result.type)
            seen.add(result)
        signature = tuple(types)
        if signature not in passed:
            for rule in OP_RULES:
                for code, what in rule(op, scope):
                    raise verification_error(code, op, function, what)
            passed.add(signature)
    if count != function.block.size:
        raise GraphgenError("GG0204", f"@{function.name}: {count} ops, size {function.block.size}")
    return control


def _broken_use(op: Op, function: Function, operand: Value, defined: bool) -> GraphgenError:
    if not defined:
        what = f"reads %{operand.name} before it is made"
        return verification_error("GG0202", op, function, what)
    return verification_error("GG0204", op, function, f"%{operand.name} does not know this user")


def _types_rule(op: Op, scope: _Scope) -> Iterator[Violation]:
    """The stated result types are the inferred ones."""
    op_def(op.name)
    try:
        inferred = infer(op.name, tuple([v.type for v in op.operands]), op.attrs)
    except InferError as error:
        yield "GG0105", str(error)
        return
    if len(op.results) != len(inferred):
        yield "GG0203", f"has {len(op.results)} results, but the op gives {len(inferred)}"
        return
    for result, type_ in zip(op.results, inferred, strict=True):
        if result.type is not type_:
            yield "GG0203", f"states {result.type.text}, but the op gives {type_.text}"


def _stage_rule(op: Op, scope: _Scope) -> Iterator[Violation]:
    """The op is legal in the stage of the module."""
    reason = scope.stage.why_not(op)
    if reason:
        yield "GG0206", f"not legal at level '{scope.stage.name}': {reason}"


def _ranks_rule(op: Op, scope: _Scope) -> Iterator[Violation]:
    """The groups of a collective name ranks of the mesh, and cover all of them."""
    if not scope.ranks or not OPS[op.name].collective:
        return
    covers = "replica_groups" in op.attrs
    groups = op.attrs.groups("replica_groups" if covers else "source_target_pairs")
    named = {rank for group in groups for rank in group}
    outside = sorted(named.difference(range(scope.ranks)))
    if outside:
        yield "GG0204", f"speaks of rank {outside[0]}, the mesh has {scope.ranks}"
    missing = sorted(set(range(scope.ranks)) - named)
    if missing and covers:
        yield "GG0204", f"rank {missing[0]} of the mesh is in no group"


OP_RULES: tuple[Callable[[Op, _Scope], Iterator[Violation]], ...] = (
    _types_rule,
    _stage_rule,
    _ranks_rule,
)


def _outputs_rule(module: Module, function: Function) -> Iterator[GraphgenError]:
    """Output names are unique, and their values are defined in the function."""
    seen: set[str] = set()
    for name, value in function.outputs:
        if name in seen:
            yield GraphgenError("GG0107", f"@{function.name} has two outputs called {name}")
        seen.add(name)
        inside = value in function.args if value.op is None else value.op.block is function.block
        if not inside:
            yield GraphgenError("GG0202", f"@{function.name}: output {name} is not defined in it")


def _argument_names_rule(module: Module, function: Function) -> Iterator[GraphgenError]:
    """Argument names of an entry program are unique."""
    names = [value.name for value in function.args]
    if function.phase and len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        yield GraphgenError("GG0107", f"@{function.name} has two arguments called {twice}")


def _arguments_rule(module: Module, function: Function) -> Iterator[GraphgenError]:
    """Arguments of an entry program have the types of their interface rows."""
    for value in function.args if function.phase else ():
        name = value.name or ""
        row = module.interface.get(name)
        if name == RANK and row is None:
            yield from _agree(function, name, value.type, tensor(s32, (1,)))
        elif row is None or row.role is Role.OUTPUT:
            what = f"@{function.name}: argument %{name} has no interface row"
            yield GraphgenError("GG0205", what)
        else:
            yield from _agree(function, name, value.type, row.physical)


def _results_rule(module: Module, function: Function) -> Iterator[GraphgenError]:
    """Outputs of an entry program have the types of their interface rows."""
    for name, value in function.outputs if function.phase else ():
        row = module.interface.get(name)
        if row is None or row.role not in (Role.OUTPUT, Role.STATE):
            yield GraphgenError("GG0205", f"@{function.name}: output {name} has no interface row")
        else:
            yield from _agree(function, name, value.type, row.physical)


def _states_rule(module: Module, function: Function) -> Iterator[GraphgenError]:
    """An entry program returns every state that it has as an argument."""
    given = dict(function.outputs)
    for value in function.args if function.phase else ():
        row = module.interface.get(value.name or "")
        if row and row.role is Role.STATE and row.name not in given:
            yield GraphgenError(
                "GG0205",
                f"@{function.name} takes state {row.name} and drops it",
                where="" if row.loc is UNKNOWN else repr(row.loc),
                help=f"return it: {row.name} = %{row.name} keeps its value",
            )


FUNCTION_RULES: tuple[Callable[[Module, Function], Iterator[GraphgenError]], ...] = (
    _outputs_rule,
    _argument_names_rule,
    _arguments_rule,
    _results_rule,
    _states_rule,
)


def _agree(
    function: Function, name: str, actual: TensorType, physical: TensorType
) -> Iterator[GraphgenError]:
    bound = physical.bind(function.dims)
    if actual is not bound:
        yield GraphgenError(
            "GG0205",
            f"@{function.name}: %{name} is {actual.text}, the interface says {bound.text}",
            help="all entry programs share one representation of a weight or a state",
        )


def _verify_packs(module: Module) -> None:
    """Check that pack functions exist, and that a row without one keeps its type."""
    for row in module.interface.values():
        for name in (row.pack, row.unpack):
            if name and name not in module.functions:
                raise GraphgenError("GG0205", f"{row.role.value} {row.name}: no function @{name}")
        if not row.pack and row.role in (Role.STATE, Role.INPUT) and row.logical != row.physical:
            raise GraphgenError(
                "GG0205", f"{row.role.value} {row.name} changed its type without a pack function"
            )


def _verify_domains(module: Module) -> None:
    """Check that the domain of a row has values of its type, and that no output has one."""
    for row in module.interface.values():
        if row.domain is None:
            continue
        try:
            check_domain(row.domain, row.logical.dtype)
        except GraphgenError as error:
            raise GraphgenError(
                error.code, f"{row.role.value} {row.name}: {error.what}", help=error.help
            ) from error
        if row.role is Role.OUTPUT:
            what = f"the output {row.name} has a domain, {row.domain.text}"
            raise GraphgenError("GG0108", what, help="domains are of what a caller gives")
