"""Running a function in NumPy, all ranks in step."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import NATIVE, Arithmetic, Array
from graphgen.eval.bits import carried_parts
from graphgen.eval.control import run_control
from graphgen.eval.external import kernel
from graphgen.eval.float_bits import computes_with_bits, is_made_of_floats
from graphgen.eval.map_reduce import run_applied
from graphgen.eval.observer import Columns, Observer
from graphgen.eval.registry import EvalRule
from graphgen.eval.rules import COLLECTIVES, COMPOSITES, RULES, SEVERAL, UPDATES
from graphgen.ir import Dim, Function, Module, Op, TensorType, Value
from graphgen.ir.clone import bind_function
from graphgen.ir.dims import Poly
from graphgen.ops.admitted_calls import refused_call
from graphgen.ops.control import CONTROL, SCALAR
from graphgen.ops.external import refusal
from graphgen.ops.opdef import has_trait
from graphgen.ops.traits import Trait

# Instructions whose results are their operands, from the first on; tokens hold nothing.
_HANDED_ON = ("opt-barrier", "add-dependency", "domain")
# Instructions that return the rank. HLO separates replicas from partitions; ranks are both.
_RANK_OF = ("replica-id", "partition-id")
# The instructions without an op that are evaluated here.
IN_NUMPY = frozenset((*_RANK_OF, *_HANDED_ON, "after-all"))
# Ops whose operands may be bits, which floats are carried in the place of.
_OF_BITS = ("bitcast_convert", "convert")
# Called with each op and its results, one list of arrays a rank.
Probe = Callable[[Op, Sequence[Sequence[Array]]], None]


def evaluate(
    function: Function,
    inputs: Mapping[str, Array],
    arithmetic: Arithmetic = NATIVE,
    probe: Probe | None = None,
    module: Module | None = None,
    observer: Observer | None = None,
) -> dict[str, Array]:
    """Run a function of one rank; :func:`evaluate_output` runs a part of it.

    Args:
        function: static shapes; composites are evaluated as what they mean.
        inputs: an array for each argument, by name.
        arithmetic: in which floats to compute.
        probe: sees the results of every op of ``function`` as they are made.
        module: has the functions that are called, looped over or chosen from.
        observer: sees every op, those of the functions it runs included, and may replace results.

    Returns:
        The outputs by name.

    Raises:
        GraphgenError: GG0402 inputs that do not fit, GG0403 an op without an evaluation rule,
            GG0404 a loop without an end.
    """
    return evaluate_ranks(function, [inputs], arithmetic, probe, module, observer)[0]


def evaluate_ranks(
    function: Function,
    inputs: Sequence[Mapping[str, Array]],
    arithmetic: Arithmetic = NATIVE,
    probe: Probe | None = None,
    module: Module | None = None,
    observer: Observer | None = None,
    donated: Container[str] = (),
) -> list[dict[str, Array]]:
    """Run a function on every rank, op by op, so that collectives see all ranks' operands.

    Args:
        function: the program all ranks run.
        inputs: per rank, an array for each argument by name.
        arithmetic: in which floats to compute.
        probe: sees the results of every op of ``function`` as they are made.
        module: has the functions that are called, looped over or chosen from. Ranks may go
            different ways only where they need not talk to each other on the way.
        observer: sees every op, those of the functions it runs included, and may replace results.
        donated: arguments whose arrays nothing reads any more, as caches of the last call: of a
            function of one rank their updates are written in place.

    Returns:
        Per rank, the outputs by name.
    """
    machine = _Machine(arithmetic, module, len(inputs), observer)
    env = _run(function, inputs, machine, probe, donated=donated)
    return [{name: env[v][rank] for name, v in function.outputs} for rank in range(len(inputs))]


def arguments_of(function: Function, output: str) -> list[str]:
    """The arguments that one output is computed from, in order (GG0202 for no such output)."""
    _, needed = _behind(function, output)
    return [value.name or "" for value in function.args if value in needed]


def evaluate_output(
    function: Function,
    output: str,
    inputs: Mapping[str, Array],
    arithmetic: Arithmetic = NATIVE,
) -> Array:
    """One output of a function of one rank, computing nothing else.

    Args:
        function: static shapes.
        output: its name.
        inputs: at least the arguments that :func:`arguments_of` names.
        arithmetic: in which floats to compute.
    """
    wanted, needed = _behind(function, output)
    machine = _Machine(arithmetic, None, 1)
    return _run(function, [inputs], machine, None, needed)[wanted][0]


def evaluate_values(
    given: Mapping[Value, Array], wanted: Sequence[Value], module: Module | None = None
) -> list[Array]:
    """Some values of a function of one rank, computing nothing else.

    Args:
        given: an array for each value that is not to be computed.
        wanted: values that depend on those and on constants.
        module: has the functions that are run on the way.

    Raises:
        GraphgenError: GG0403 an op without an evaluation rule.
    """
    machine = _Machine(NATIVE, module, 1)
    env: dict[Value, Sequence[Array]] = {value: [array] for value, array in given.items()}
    with np.errstate(all="ignore"):
        for value in wanted:
            work = [value]
            while work:
                op = work[-1].op
                missing = [v for v in op.operands if v not in env] if op is not None else []
                if work[-1] in env:
                    work.pop()
                elif missing:
                    work += missing
                else:
                    assert op is not None, f"{work[-1]!r} is not given"
                    results = _step(op, [env[v] for v in op.operands], range(1), machine)
                    env.update(zip(op.results, results, strict=True))
    return [env[value][0] for value in wanted]


def evaluate_op(
    op: Op,
    operands: Columns,
    ranks: int,
    arithmetic: Arithmetic = NATIVE,
    module: Module | None = None,
) -> Columns:
    """The results of one op: per result, one array a rank.

    Args:
        op: static shapes.
        operands: per operand, one array a rank.
        ranks: how many run it; all of them.
        arithmetic: in which floats to compute.
        module: has the functions that ``op`` runs.

    Raises:
        GraphgenError: GG0403 an op without an evaluation rule.
    """
    with np.errstate(all="ignore"):
        return _step(op, operands, range(ranks), _Machine(arithmetic, module, ranks))


def rank_index(rank: int) -> Array:
    """The rank as programs take it: s32[1]."""
    return np.asarray([rank], np.int32)


def bind_to_shapes(function: Function, arrays: Mapping[Value, Array]) -> Function:
    """``function`` with its symbols bound by the shapes of arrays; itself where it has none.

    Args:
        function: shapes may hold symbols.
        arrays: argument -> its array, as far as known.

    Raises:
        GraphgenError: GG0402 two arrays that give a symbol two sizes.
    """
    sizes = _shape_symbols(function, arrays)
    return bind_function(function, sizes, {**function.dims, **sizes}) if sizes else function


def _shape_symbols(function: Function, arrays: Mapping[Value, Array]) -> dict[str, Dim]:
    """Symbol -> size, for the symbols that are whole dimensions of arguments."""
    sizes: dict[str, Dim] = {}
    first: dict[str, str] = {}
    for value in function.args:
        array = arrays.get(value)
        if value.type.static or array is None or len(array.shape) != value.type.rank:
            continue
        for dim, size in zip(value.shape, array.shape, strict=True):
            name = str(dim)
            if not isinstance(dim, Poly) or not name.isidentifier():
                continue
            if sizes.setdefault(name, size) != size:
                what = f"{name} is {sizes[name]} in %{first[name]} and {size} in %{value.name}"
                raise GraphgenError("GG0402", f"@{function.name}: {what}")
            first.setdefault(name, value.name or "")
    return sizes


@dataclass(frozen=True, slots=True)
class _Machine:
    """Constants of a run: arithmetic, module, number of ranks, observer."""

    arithmetic: Arithmetic
    module: Module | None
    ranks: int
    observer: Observer | None = None

    def body(self, op: Op, name: str, given: Columns, ranks: Sequence[int]) -> list[list[Array]]:
        """See :class:`~graphgen.eval.control.RunBody`."""
        if self.module is None:
            what = f"{op.name} runs @{name}, a function of a module that is not at hand"
            raise GraphgenError("GG0403", what, where=repr(op.loc), help="evaluate the module")
        function = self.module.function(name)
        if ranks and any(not value.type.static for value in function.args):
            first = {v: column[0] for v, column in zip(function.args, given, strict=True)}
            function = bind_to_shapes(function, first)
        if self.observer is not None:
            self.observer.enter(function, ranks)
        env: dict[Value, Sequence[Array]] = dict(zip(function.args, given, strict=True))
        for inner in function.block:
            if _is_same_scalar(inner):
                # Also of arrays that stand for scalars.
                env[inner.result] = env[inner.operands[0]]
                continue
            results = _step(inner, [env[v] for v in inner.operands], ranks, self)
            env.update(zip(inner.results, results, strict=True))
        return [list(env[value]) for _, value in function.outputs]

    def apply(
        self,
        op: Op,
        ranks: Sequence[int],
        given: Columns,
        shape: Sequence[int],
        rank: int | None = None,
    ) -> list[list[Array]]:
        """See :class:`~graphgen.eval.map_reduce.Apply`; arrays stand for scalars."""
        name, who = op.attrs.text("to_apply"), ranks if rank is None else [ranks[rank]]
        if self.module is None or _is_pointwise(self.module.function(name)):
            made = self.body(op, name, given, who)
            return [[np.broadcast_to(array, shape) for array in column] for column in made]
        function = self.module.function(name)
        out = [
            [np.empty(shape, self.arithmetic.dtype(v.dtype)) for _ in who]
            for _, v in function.outputs
        ]
        for place in np.ndindex(*shape):
            scalars = [[np.broadcast_to(x, shape)[place] for x in column] for column in given]
            for column, made in zip(out, self.body(op, name, scalars, who), strict=True):
                for array, scalar in zip(column, made, strict=True):
                    array[place] = scalar
        return out


def _is_same_scalar(op: Op) -> bool:
    """A scalar in another spelling of its shape."""
    views = ("reshape", "broadcast_in_dim", "transpose", "reverse")
    return op.name in views and op.result.type.rank == 0 and op.operands[0].type.rank == 0


def _is_pointwise(function: Function) -> bool:
    """Every op does to the elements of arrays what it does to scalars."""
    return all(
        op.name in ("constant", "bitcast_convert")
        or has_trait(op, Trait.ELEMENTWISE)
        or _is_same_scalar(op)
        for op in function.block
    ) and all(value.type.rank == 0 for op in function.block for value in op.results)


def _run(
    function: Function,
    inputs: Sequence[Mapping[str, Array]],
    machine: _Machine,
    probe: Probe | None,
    needed: Container[Value] | None = None,
    donated: Container[str] = (),
) -> dict[Value, Sequence[Array]]:
    """Every value, or every needed one, with one array a rank."""
    env: dict[Value, Sequence[Array]] = {}
    for value in function.args:
        if needed is None or value in needed:
            env[value] = _inputs(function, inputs, value, machine.arithmetic)
    ranks = range(len(inputs))
    # Who observes may keep what an update has made.
    seen = probe is not None or machine.observer is not None
    in_place = _in_place(function, donated, seen) if donated and len(inputs) == 1 else ()
    if machine.observer is not None:
        machine.observer.enter(function, ranks)
    with np.errstate(all="ignore"):
        for op in function.block:
            if needed is not None and op.results[0] not in needed:
                continue
            given = [env[v] for v in op.operands]
            if op in in_place:
                results = _updated(op, given, machine)
            else:
                results = _step(op, given, ranks, machine)
            if len(results) == len(op.results) == 1:
                env[op.results[0]] = results[0]
            else:
                env.update(zip(op.results, results, strict=True))
            if probe is not None:
                probe(op, results)
    return env


def _in_place(function: Function, donated: Container[str], seen: bool) -> set[Op]:
    """The updates of donated arguments, and of what updates have made, that nothing else reads.

    Args:
        function: of one rank.
        donated: names of its arguments.
        seen: whether results are seen by others: then only arguments are written.
    """
    owned = {value for value in function.args if (value.name or "") in donated}
    found: set[Op] = set()
    for op in function.block:
        if op.name in UPDATES:
            old = op.operands[0]
            if old in owned and sum(old.users.values()) == 1 and not function.returns(old):
                found.add(op)
            if not seen:
                owned.add(op.results[0])
    return found


def _updated(op: Op, given: Columns, machine: _Machine) -> Columns:
    """The result of an update in place, on one rank."""
    arrays = [column[0] for column in given]
    results = [[UPDATES[op.name](machine.arithmetic, op.attrs, arrays, donated=True)]]
    if machine.observer is None:
        return results
    return machine.observer.made(op, range(1), given, results)


def _behind(function: Function, output: str) -> tuple[Value, set[Value]]:
    """The value of an output, and every value it is computed from, itself included."""
    found = next((value for name, value in function.outputs if name == output), None)
    if found is None:
        raise GraphgenError("GG0202", f"@{function.name} has no output {output}")
    needed: set[Value] = set()
    work = [found]
    while work:
        value = work.pop()
        if value in needed:
            continue
        needed.add(value)
        if value.op is not None:
            needed.update(value.op.results)
            work.extend(value.op.operands)
    return found, needed


def _inputs(
    function: Function, inputs: Sequence[Mapping[str, Array]], value: Value, arithmetic: Arithmetic
) -> list[Array]:
    """An argument on each rank; ranks that are given one array hold one array."""
    name = value.name or ""
    column: list[Array] = []
    first: Array | None = None
    for given in inputs:
        if name not in given:
            what = f"@{function.name} needs the input %{name} {value.type.text}"
            raise GraphgenError("GG0402", what)
        array = given[name]
        column.append(column[0] if array is first else _input(function, array, value, arithmetic))
        first = array if first is None else first
    return column


def _input(function: Function, array: Array, value: Value, arithmetic: Arithmetic) -> Array:
    checked(array, value.type, value.name or "", function)
    if arithmetic.carries(array) or (value.dtype.is_integer and arithmetic.carries_pair(array)):
        # A wide float stays one, also where the program carries its bits as an integer.
        return array
    return array.astype(arithmetic.dtype(value.dtype), copy=False)


def checked(array: Array, type_: TensorType, name: str, function: Function) -> Array:
    """``array``, whose shape must be that of ``type_`` (GG0402)."""
    if array.shape != type_.dims:
        raise GraphgenError(
            "GG0402",
            f"@{function.name}: input %{name} is {list(array.shape)}, not {type_.text}",
        )
    return array


def _step(op: Op, given: Columns, ranks: Sequence[int], machine: _Machine) -> Columns:
    """The results of one op: per result, per rank of those that run it."""
    results = _results(op, given, ranks, machine)
    if machine.observer is None:
        return results
    return machine.observer.made(op, ranks, given, results)


def _results(op: Op, given: Columns, ranks: Sequence[int], machine: _Machine) -> Columns:
    rule = RULES.get(op.name)
    if rule is not None:
        if len(ranks) == 1 and op.name not in _OF_BITS:
            # Most programs have one rank, most ops one result: nothing to look up.
            return [[rule(machine.arithmetic, op.attrs, [column[0] for column in given])]]
        return [_by_rule(rule, op, given, ranks, machine.arithmetic)]
    collective = COLLECTIVES.get(op.name)
    if collective is not None:
        if len(ranks) < machine.ranks:
            what = f"{op.name} is reached by {len(ranks)} of {machine.ranks} ranks: the others wait"
            raise GraphgenError("GG0403", what, where=repr(op.loc))
        _require_ranks(op, machine.ranks)
        return [collective(op.attrs, given[0])]
    if op.name in SCALAR:
        return run_applied(op, given, partial(machine.apply, op, ranks))
    if op.name in CONTROL:
        return run_control(op, given, ranks, machine.body, machine.observer)
    made = _instruction(op, given, ranks, machine) if op.name == "hlo.opaque" else None
    if made is not None:
        return made
    if _alike(given):
        one = _local(op, [column[0] for column in given], machine.arithmetic)
        return [[result] * len(ranks) for result in one]
    rows = [_local(op, arrays, machine.arithmetic) for arrays in zip(*given, strict=True)]
    return [[results[i] for results in rows] for i in range(len(op.results))]


def _require_ranks(op: Op, ranks: int) -> None:
    """Refuse a collective that names ranks beyond those of the module (GG0403)."""
    names = "replica_groups" if "replica_groups" in op.attrs else "source_target_pairs"
    most = max((rank for group in op.attrs.groups(names) for rank in group), default=0)
    if most >= ranks:
        raise GraphgenError(
            "GG0403",
            f"{op.name} names rank {most}, and the module has {ranks}",
            where=repr(op.loc),
            help="a module states its ranks: mhlo.num_replicas, replica_count, or a mesh",
        )


def _by_rule(
    rule: EvalRule, op: Op, given: Columns, ranks: Sequence[int], arithmetic: Arithmetic
) -> list[Array]:
    """The result of an op, per rank."""
    if op.name in _OF_BITS and _is_read_as_bits(op, given, arithmetic):
        kind, arithmetic = op.operands[0].dtype, NATIVE
        given = [[NATIVE.round(x, kind) for x in column] for column in given]
    elif op.name == "bitcast_convert" and op.operands[0].type.rank != op.result.type.rank:
        shape = op.result.type.dims
        given = [[carried_parts(arithmetic, x, shape) for x in column] for column in given]
    if _alike(given):
        return [rule(arithmetic, op.attrs, [column[0] for column in given])] * len(ranks)
    return [rule(arithmetic, op.attrs, arrays) for arrays in zip(*given, strict=True)]


def _is_read_as_bits(op: Op, given: Columns, arithmetic: Arithmetic) -> bool:
    """True for wide floats that become integers with which the program computes."""
    if not any(arithmetic.carries(x) for column in given for x in column):
        return False
    whole = arithmetic.integers and op.name == "convert" and is_made_of_floats(op)
    return whole or computes_with_bits(op)


def _alike(given: Columns) -> bool:
    """True if all ranks hold the same arrays, so that one evaluation serves all of them."""
    for column in given:
        if not column:
            return False
        first = column[0]
        for array in column:
            if array is not first:
                return False
    return True


def _instruction(
    op: Op, given: Columns, ranks: Sequence[int], machine: _Machine
) -> list[list[Array]] | None:
    """The results of an instruction that gives the rank or orders others; ``None`` for others."""
    code = op.attrs.get("opcode")
    if code in _RANK_OF:
        kind = machine.arithmetic.dtype(op.result.dtype)
        return [[np.asarray(rank, kind) for rank in ranks]]
    if code == "after-all":
        return [[np.asarray(False)] * len(ranks)]
    types = [value.type for value in op.operands[: len(op.results)]]
    if code in _HANDED_ON and types == [value.type for value in op.results]:
        return [list(given[index]) for index in range(len(types))]
    return None


def _local(op: Op, arrays: Sequence[Array], arithmetic: Arithmetic) -> Sequence[Array]:
    """The results of one op without a rule of its own name, on one rank."""
    whole = COMPOSITES.get(op.name) or SEVERAL.get(op.name)
    if op.name == "custom_call":
        whole = kernel(op.attrs)
    if whole is not None:
        return whole(arithmetic, op.attrs, arrays)
    if op.name == "rng":
        what = "rng draws other numbers in each run: NumPy's would not be XLA's"
        help = "run it with XLA: graphgen run --on cpu; rng_bit_generator can be repeated"
        raise GraphgenError("GG0403", what, where=repr(op.loc), help=help)
    error = refusal(op)
    if error is not None:
        raise error
    if op.name == "custom_call":
        raise refused_call(op, op.attrs.text("target"))
    what = f"{op.name} {op.attrs.get('opcode', '')}".strip()
    raise GraphgenError("GG0403", f"{what} has no evaluation rule", where=repr(op.loc))
