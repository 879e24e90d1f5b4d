"""Equality of modules in all that their text shows, without writing the text."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir import Function, Module, Op, Value


def same_module(one: Module, other: Module) -> bool:
    """True only where two modules have the same text, names and provenance included.

    Types, attributes and locations are interned, and compared by identity: two modules whose texts
    agree by chance, of parts that are not shared, count as different.
    """
    if _head(one) != _head(other):
        return False
    pairs = zip(one.functions.values(), other.functions.values(), strict=True)
    return all(_same_function(left, right) for left, right in pairs)


def _head(module: Module) -> tuple[object, ...]:
    """The parts outside the functions, in order."""
    tables: tuple[Mapping[str, object], ...] = (module.mesh, module.meta, module.interface)
    listed = [list(table.items()) for table in tables]
    return module.name, module.level, *listed, list(module.functions)


def _same_function(one: Function, other: Function) -> bool:
    heads = [(f.name, f.phase, list(f.dims.items()), len(f.args)) for f in (one, other)]
    if heads[0] != heads[1] or one.annotations is not other.annotations:
        return False
    if one.block.size != other.block.size or len(one.outputs) != len(other.outputs):
        return False
    twins: dict[Value, Value] = {}
    if not all(_same_value(*pair, twins) for pair in zip(one.args, other.args, strict=True)):
        return False
    if not all(_same_op(*pair, twins) for pair in zip(one.block, other.block, strict=True)):
        return False
    return all(
        name == named and twins[value] is twin
        for (name, value), (named, twin) in zip(one.outputs, other.outputs, strict=True)
    )


def _same_op(one: Op, other: Op, twins: dict[Value, Value]) -> bool:
    if (
        one.name != other.name
        or one.attrs is not other.attrs
        or one.loc is not other.loc
        or one.annotations is not other.annotations
        or len(one.results) != len(other.results)
        or [twins[value] for value in one.operands] != list(other.operands)
    ):
        return False
    return all(_same_value(*pair, twins) for pair in zip(one.results, other.results, strict=True))


def _same_value(one: Value, other: Value, twins: dict[Value, Value]) -> bool:
    twins[one] = other
    return (
        one.name == other.name
        and one.type is other.type
        and one.sharding is other.sharding
        and one.annotations is other.annotations
    )
