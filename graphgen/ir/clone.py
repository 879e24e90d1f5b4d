"""Cloning: copies of ops, functions and modules under a mapping of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir.attrs import EMPTY, Attrs, AttrValue, attrs_of
from graphgen.ir.dims import Dim, Poly, bind
from graphgen.ir.graph import Block, Op, Value
from graphgen.ir.loc import Loc
from graphgen.ir.module import Function, Module
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


class Cloner:
    """Copies ops, functions and modules under a mapping of values.

    Subclasses override :meth:`attrs`, :meth:`loc`, :meth:`result_types` or :meth:`result_names` to
    change what they copy.

    Args:
        mapping: value -> its copy, for values copied before; extended by every copy.
        symbols: symbol -> what replaces it in types and attributes.
        overrides: attributes set on every op that has them.
        via: name of the pass added to every location, empty for none.
        at: the location of every copy, instead of the original's.
        names: whether copies keep the names of results.
        shardings: whether copies keep the shardings of results.
    """

    def __init__(
        self,
        mapping: dict[Value, Value] | None = None,
        *,
        symbols: Mapping[str, Dim] | None = None,
        overrides: Mapping[str, AttrValue] | None = None,
        via: str = "",
        at: Loc | None = None,
        names: bool = True,
        shardings: bool = True,
    ) -> None:
        self.mapping: dict[Value, Value] = {} if mapping is None else mapping
        self.symbols = symbols or {}
        self.overrides = overrides or {}
        self.via = via
        self.at = at
        self.names = names
        self.shardings = shardings
        self._attrs: dict[Attrs, Attrs] = {}
        self._types: dict[TensorType, TensorType] = {}
        self._locs: dict[Loc, Loc] = {}

    def attrs(self, op: Op) -> Attrs:
        """Attributes of the copy of ``op``: bound and overridden."""
        attrs = op.attrs
        if not self.symbols and not self.overrides:
            return attrs
        found = self._attrs.get(attrs)
        if found is None:
            found = bind_attrs(attrs, self.symbols) if self.symbols else attrs
            hit = {key: value for key, value in self.overrides.items() if key in found}
            found = self._attrs[attrs] = attrs_of({**found, **hit}) if hit else found
        return found

    def type(self, type_: TensorType) -> TensorType:
        """The type of the copy of a value of ``type_``: bound."""
        if not self.symbols:
            return type_
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = type_.bind(self.symbols)
        return found

    def loc(self, where: Loc) -> Loc:
        """The location of the copy of an op at ``where``."""
        if self.at is not None:
            return self.at
        if not self.via:
            return where
        found = self._locs.get(where)
        if found is None:
            found = self._locs[where] = where.through(self.via)
        return found

    def result_types(self, op: Op, operands: Sequence[Value], attrs: Attrs) -> list[TensorType]:
        """Types of the results of the copy of ``op`` on ``operands``."""
        if not self.symbols:
            return [result.type for result in op.results]
        return [self.type(result.type) for result in op.results]

    def result_names(self, op: Op) -> list[str | None]:
        """Names of the results of the copy of ``op``."""
        return [result.name for result in op.results]

    def detached(self, op: Op, operands: Sequence[Value] | None = None) -> Op:
        """A copy of ``op`` in no block, its results entered into the mapping.

        Args:
            op: the original.
            operands: of the copy; by default the copies of the original's.
        """
        if operands is None:
            operands = tuple([self.mapping[value] for value in op.operands])
        attrs = self.attrs(op)
        types = self.result_types(op, operands, attrs)
        names = self.result_names(op) if self.names else ()
        copy = Op(op.name, tuple(operands), types, attrs, self.loc(op.loc), names)
        for old in op.results:
            new = self.mapping[old] = copy.results[old.index]
            if self.shardings:
                new.sharding = old.sharding
        if op.annotations is not EMPTY and all(
            new.type is old.type for old, new in zip(op.results, copy.results, strict=True)
        ):
            # Annotations from a file do not hold for a value of another type.
            copy.annotations = op.annotations
        return copy

    def op(self, op: Op, block: Block, before: Op | None = None) -> Op:
        """A copy of ``op`` in ``block``, in front of ``before`` or at the end."""
        copy = self.detached(op)
        if before is None:
            block.append(copy)
        else:
            block.insert_before(copy, before)
        return copy

    def argument(self, value: Value, target: Function, name: str | None = None) -> Value:
        """A copy of ``value`` as the next argument of ``target``, called ``name`` if given."""
        name = (value.name or "") if name is None else name
        copy = self.mapping[value] = target.block.add_arg(self.type(value.type), name)
        if self.shardings:
            copy.sharding = value.sharding
        if copy.type is value.type:
            copy.annotations = value.annotations
        return copy

    def function(self, source: Function, target: Function) -> Mapping[Value, Value]:
        """Copy arguments, ops and outputs of ``source`` into the empty ``target``.

        Returns:
            value -> its copy, for the values of ``source`` and those copied before.
        """
        for value in source.args:
            self.argument(value, target)
        for op in source.block:
            self.op(op, target.block)
        target.outputs = [(name, self.mapping[value]) for name, value in source.outputs]
        pairs = [(value, self.mapping[value]) for value in (*source.args, *_given(source))]
        if all(new.type is old.type for old, new in pairs):
            target.annotations = source.annotations
        return self.mapping


def _given(function: Function) -> list[Value]:
    return [value for _, value in function.outputs]


def bind_function(
    function: Function, sizes: Mapping[str, Dim], dims: Mapping[str, Dim] | None = None
) -> Function:
    """A copy of ``function`` with the symbols of ``sizes`` replaced, and ``dims`` as its sizes."""
    made = Function(function.name, function.phase, dict(dims or {}))
    Cloner(symbols=sizes).function(function, made)
    return made


def clone_function(function: Function) -> Function:
    """A copy that shares nothing that can change."""
    copy = Function(function.name, function.phase, dict(function.dims))
    Cloner().function(function, copy)
    return copy


def clone_module(module: Module) -> Module:
    """A copy that shares nothing that can change."""
    copy = Module(module.name, module.level, dict(module.mesh), {}, {}, dict(module.meta))
    copy.interface.update(module.interface)
    for function in module.functions.values():
        copy.add(clone_function(function))
    return copy
