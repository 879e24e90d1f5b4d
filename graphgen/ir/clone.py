"""Copying ops from one function into another under a mapping of values."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir.attrs import Attrs, AttrValue, attrs_of
from graphgen.ir.dims import Dim, Poly, bind
from graphgen.ir.graph import Op, Value
from graphgen.ir.loc import Loc
from graphgen.ir.module import Function
from graphgen.ir.types import TensorType


def bind_attrs(attrs: Attrs, values: Mapping[str, Dim]) -> Attrs:
    """The attributes with the symbols in ``values`` replaced."""
    changed = {key: _bind_value(value, values) for key, value in attrs.items()}
    return attrs_of(changed)


def _bind_value(value: AttrValue, values: Mapping[str, Dim]) -> AttrValue:
    if isinstance(value, Poly):
        return bind(value, values)
    if isinstance(value, tuple) and any(isinstance(item, Poly) for item in value):
        return tuple(bind(item, values) for item in value if isinstance(item, int | Poly))
    if isinstance(value, tuple) and any(isinstance(item, TensorType) for item in value):
        return tuple(item.bind(values) for item in value if isinstance(item, TensorType))
    return value


class Binder:
    """Clones ops with symbols replaced, remembering what each attribute set becomes.

    Args:
        values: what the symbols become.
        overrides: attributes set on every op that has them.
    """

    def __init__(
        self, values: Mapping[str, Dim], overrides: Mapping[str, AttrValue] | None = None
    ) -> None:
        self.values = values
        self.overrides = overrides or {}
        self._attrs: dict[Attrs, Attrs] = {}
        self._types: dict[TensorType, TensorType] = {}

    def attrs(self, attrs: Attrs) -> Attrs:
        """The bound and overridden attribute set."""
        found = self._attrs.get(attrs)
        if found is None:
            found = bind_attrs(attrs, self.values)
            hit = {key: value for key, value in self.overrides.items() if key in found}
            found = self._attrs[attrs] = attrs_of({**found, **hit}) if hit else found
        return found

    def type(self, type_: TensorType) -> TensorType:
        """The bound type."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = type_.bind(self.values)
        return found

    def clone(self, source: Function, target: Function, via: str) -> Mapping[Value, Value]:
        """Copy arguments, ops and outputs of ``source`` into the empty ``target``.

        Returns:
            The copy of each value.
        """
        mapping: dict[Value, Value] = {}
        for value in source.args:
            mapping[value] = target.block.add_arg(self.type(value.type), value.name or "")
            mapping[value].sharding = value.sharding
        locs: dict[Loc, Loc] = {}
        for op in source.block:
            where = locs.get(op.loc) or locs.setdefault(op.loc, op.loc.through(via))
            copy = Op(
                op.name,
                tuple([mapping[v] for v in op.operands]),
                [self.type(result.type) for result in op.results],
                self.attrs(op.attrs),
                where,
                [result.name for result in op.results],
            )
            target.block.append(copy)
            for old, new in zip(op.results, copy.results, strict=True):
                mapping[old] = new
                new.sharding = old.sharding
        target.outputs = [(name, mapping[value]) for name, value in source.outputs]
        return mapping
