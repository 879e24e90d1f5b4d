"""Running a function in NumPy, all ranks in step."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import NATIVE, Arithmetic, Array
from graphgen.eval.collectives import COLLECTIVES
from graphgen.eval.composites import COMPOSITES
from graphgen.eval.custom_calls import kernel
from graphgen.eval.rules import RULES, SEVERAL
from graphgen.ir import Function, Op, TensorType, Value

# Instructions that say which rank this is. HLO tells replicas from partitions; ranks are both.
_RANK_OF = ("replica-id", "partition-id")
# Called with each op and its results, one list of arrays a rank.
Probe = Callable[[Op, Sequence[Sequence[Array]]], None]


def evaluate(
    function: Function,
    inputs: Mapping[str, Array],
    arithmetic: Arithmetic = NATIVE,
    probe: Probe | None = None,
) -> dict[str, Array]:
    """Run a function of one rank; :func:`evaluate_output` runs a part of it.

    Args:
        function: static shapes; composites are evaluated as what they mean.
        inputs: an array for each argument, by name.
        arithmetic: in which floats to compute.
        probe: sees every op's results as they are made.

    Returns:
        The outputs by name.

    Raises:
        GraphgenError: GG0402 inputs that do not fit, GG0403 an op without an evaluation rule.
    """
    return evaluate_ranks(function, [inputs], arithmetic, probe)[0]


def evaluate_ranks(
    function: Function,
    inputs: Sequence[Mapping[str, Array]],
    arithmetic: Arithmetic = NATIVE,
    probe: Probe | None = None,
) -> list[dict[str, Array]]:
    """Run a function on every rank, op by op, so that collectives see all ranks' operands.

    Args:
        function: the program all ranks run.
        inputs: per rank, an array for each argument by name.
        arithmetic: in which floats to compute.
        probe: sees every op's results as they are made.

    Returns:
        Per rank, the outputs by name.
    """
    env = _run(function, inputs, arithmetic, probe)
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
    return _run(function, [inputs], arithmetic, None, needed)[wanted][0]


def rank_index(rank: int) -> Array:
    """The rank as programs take it: s32[1]."""
    return np.asarray([rank], np.int32)


def _run(
    function: Function,
    inputs: Sequence[Mapping[str, Array]],
    arithmetic: Arithmetic,
    probe: Probe | None,
    needed: Container[Value] | None = None,
) -> dict[Value, list[Array]]:
    """Every value, or every needed one, with one array a rank."""
    env: dict[Value, list[Array]] = {}
    for value in function.args:
        if needed is None or value in needed:
            env[value] = [_input(function, given, value, arithmetic) for given in inputs]
    with np.errstate(all="ignore"):
        for op in function.block:
            if needed is not None and op.results[0] not in needed:
                continue
            results = _step(op, [env[v] for v in op.operands], len(inputs), arithmetic)
            env.update(zip(op.results, results, strict=True))
            if probe is not None:
                probe(op, results)
    return env


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


def _input(
    function: Function, given: Mapping[str, Array], value: Value, arithmetic: Arithmetic
) -> Array:
    name = value.name or ""
    if name not in given:
        raise GraphgenError("GG0402", f"@{function.name} needs the input %{name} {value.type.text}")
    array = checked(given[name], value.type, name, function)
    if arithmetic.wide is not None and array.dtype == arithmetic.wide:
        # A wide float stays one, also where the program carries its bits as an integer.
        return array
    return array.astype(arithmetic.dtype(value.dtype))


def checked(array: Array, type_: TensorType, name: str, function: Function) -> Array:
    """``array``, whose shape must be that of ``type_`` (GG0402)."""
    if array.shape != type_.dims:
        raise GraphgenError(
            "GG0402",
            f"@{function.name}: input %{name} is {list(array.shape)}, not {type_.text}",
        )
    return array


def _step(
    op: Op, operands: Sequence[list[Array]], ranks: int, arithmetic: Arithmetic
) -> list[list[Array]]:
    """The results of one op: per result, per rank."""
    collective = COLLECTIVES.get(op.name)
    if collective is not None:
        return [collective(op.attrs, operands[0])]
    whole = COMPOSITES.get(op.name) or SEVERAL.get(op.name)
    if op.name == "custom_call":
        whole = kernel(op.attrs)
    rule = RULES.get(op.name)
    per_rank: list[Sequence[Array]] = []
    if op.name == "hlo.opaque" and op.attrs.get("opcode") in _RANK_OF:
        kind = arithmetic.dtype(op.result.dtype)
        return [[np.asarray(rank, kind) for rank in range(ranks)]]
    for rank in range(ranks):
        arrays = [operand[rank] for operand in operands]
        if whole is not None:
            per_rank.append(whole(arithmetic, op.attrs, arrays))
        elif rule is not None:
            per_rank.append([rule(arithmetic, op.attrs, arrays)])
        else:
            inner = op.attrs.get("opcode", op.attrs.get("target", ""))
            what = f"{op.name} {inner}".strip()
            raise GraphgenError("GG0403", f"{what} has no evaluation rule", where=repr(op.loc))
    return [[results[i] for results in per_rank] for i in range(len(op.results))]
