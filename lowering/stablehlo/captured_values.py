"""Convert regions to functions: captured values become arguments, or copies of constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from graphgen.ir import Function, Op, Value
from graphgen.lowering.mlir.mlir_types import fits_type, is_open, read_tensor_type
from graphgen.lowering.mlir.syntax_tree import MlirOp, MlirRegion
from graphgen.lowering.mlir.value_names import author_name
from graphgen.lowering.stablehlo.op_row import UnmodelledForm
from graphgen.lowering.stablehlo.read_context import StableHloReadContext

# Ops that are copied into a region's function, instead of passed to it.
_COPIED: Final = frozenset(("constant", "iota"))


def captured_values(
    to: StableHloReadContext, node: MlirOp, regions: Sequence[MlirRegion]
) -> dict[str, Value]:
    """Find the values that regions read from around them, by name, in order of first use."""
    names = dict.fromkeys(name for region in regions for name in _free(region))
    return {name: to.value(name, node) for name in names}


def _free(region: MlirRegion) -> Iterator[str]:
    """List the names that a region reads and does not define."""
    known = {argument.name for argument in region.args}
    for node in region.body:
        for name in node.operands:
            if name not in known and name.removesuffix("#0") not in known:
                yield name
        for inner in node.regions:
            yield from (name for name in _free(inner) if name not in known)
        known.update(node.results)


def passed_values(captured: Mapping[str, Value]) -> list[Value]:
    """Select the captured values that are not copied, each once."""
    return [
        value
        for value in dict.fromkeys(captured.values())
        if value.op is None or value.op.name not in _COPIED
    ]


def inside_values(function: Function, captured: Mapping[str, Value]) -> dict[str, Value]:
    """Map names of captured values to arguments of a function, and to copies of constants."""
    values: dict[Value, Value] = {}
    for value in passed_values(captured):
        values[value] = function.block.add_arg(value.type, value.name or f"outer{len(values)}")
    for value in captured.values():
        if value not in values and value.op is not None:
            op = value.op
            types = [result.type for result in op.results]
            copy = Op(op.name, (), types, op.attrs, op.loc, [result.name for result in op.results])
            function.block.append(copy)
            values.update(zip(op.results, copy.results, strict=True))
    return {name: values[value] for name, value in captured.items()}


def add_arguments(
    function: Function, region: MlirRegion, name: str, given: Sequence[Value] = ()
) -> dict[str, Value]:
    """The arguments of a region as those of its function, by name.

    Args:
        function: the function.
        region: the region.
        name: of arguments that the author gave none, followed by the place.
        given: what the arguments are given, whose types hold where the text leaves sizes open.
    """
    types = [read_tensor_type(argument.type) for argument in region.args]
    for index, value in enumerate(given[: len(types)]):
        if is_open(types[index]) and fits_type(value.type, types[index]):
            types[index] = value.type
    return {
        argument.name: function.block.add_arg(
            types[index], author_name(argument.name) or f"{name}{index}"
        )
        for index, argument in enumerate(region.args)
    }


def read_scalar_function(to: StableHloReadContext, node: MlirOp) -> str:
    """Read the one region of an op as a function of scalars; its name.

    Raises:
        UnmodelledForm: it reads more than constants from around it.
    """
    (region,) = node.regions
    captured = captured_values(to, node, [region])
    if passed_values(captured):
        raise UnmodelledForm("a region that reads values from around it")
    function = to.function(f"{node.name.partition('.')[2]}.body")
    values = add_arguments(function, region, "element") | inside_values(function, captured)
    to.fill(function, region, values, [])
    return function.name
