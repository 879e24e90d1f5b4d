"""The op table: per op its operands, typed attributes, type inference, traits, factors and cost.

Evaluation and lowering rules live in their own layer's table, keyed by the same names; a test
asserts that none is missing. The docstring of an inference function is the op's page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import cache
from typing import TypeAlias, cast

from graphgen.config.fields import MismatchError, TypedField, ValueType, read_field, unknown_name
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import Attrs, AttrValue, Dim, Op, TensorType, attrs_of
from graphgen.ops.factors import FactorRule, Factors, elementwise_factors
from graphgen.ops.traits import (
    IMPURE,
    Chooses,
    LinearIn,
    Property,
    Trait,
    Types,
    UpdatesPart,
)


class InferError(Exception):
    """Type inference failed; the builder and the verifier add the location.

    Attributes:
        operand: index of the operand at fault, ``None`` for an attribute.
        help: the remedy; may be empty.
    """

    def __init__(self, what: str, operand: int | None = None, help: str = "") -> None:
        super().__init__(what)
        self.operand = operand
        self.help = help


# One attribute of an op: HLO's spelling, a type of :mod:`graphgen.ops.attr_types`, the default.
Attr: TypeAlias = TypedField[AttrValue]


def attr(name: str, type: ValueType[AttrValue], default: object = MISSING) -> Attr:
    """An attribute of an op; without a default it must be given."""
    return TypedField(name, type, cast(AttrValue, default))


Infer = Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]
# Operand types, result types, attributes -> floating-point or integer operations, and
# transcendentals.
Cost = Callable[[Types, Types, Attrs], tuple[Dim, Dim]]


@dataclass(frozen=True, slots=True)
class OpDef:
    """One entry of the op table.

    Attributes:
        name: the HLO opcode if the op is an HLO op.
        operands: names in order; a last one that starts with ``*`` is variadic, and those that end
            with ``?`` come last and are optional.
        attrs: the attributes in order.
        infer: result types from operand types, as strict as XLA's verifier.
        doc: the op's page, with an example in IR text.
        traits: the properties that hold for all operands and attributes.
        linear: sets of operands in which the op is linear.
        updates: index of the operand that overwrites a part of operand 0, ``None`` for other ops.
        chooses: the operand that is put in order and the results that follow; ``None`` for other
            ops.
        factor_rule: the sharding rule (Shardy: ``OpShardingRule``); ``None`` for an op that every
            rank runs on whole values.
        cost: operation counts; by default one operation per result element.
    """

    name: str
    operands: tuple[str, ...]
    attrs: tuple[Attr, ...]
    infer: Infer
    doc: str
    traits: frozenset[Trait] = frozenset()
    linear: tuple[LinearIn, ...] = ()
    updates: int | None = None
    chooses: Chooses | None = None
    factor_rule: FactorRule | None = None
    cost: Cost | None = None

    def has(self, *traits: Trait) -> bool:
        """True if the op has all of ``traits``."""
        return self.traits.issuperset(traits)

    @property
    def composite(self) -> bool:
        """True if ``graphgen.composites`` decomposes the op."""
        return Trait.COMPOSITE in self.traits

    @property
    def collective(self) -> bool:
        """True if the op communicates with other ranks."""
        return Trait.COLLECTIVE in self.traits

    def factors(self, operands: Types, results: Types, attrs: Attrs) -> Factors | None:
        """The factors for these types; ``None`` for an op that every rank runs on whole values."""
        if self.factor_rule is None:
            return None
        found = self.factor_rule(operands, results, attrs)
        sets = tuple(
            frozenset(item.operands or range(len(operands)))
            for item in self.linear
            if item.when(operands, results, attrs)
        )
        return replace(found, linear_in=sets) if sets else found


OPS: dict[str, OpDef] = {}


def define(
    name: str,
    operands: str,
    *attrs: Attr,
    traits: Sequence[Property] = (),
    factors: FactorRule | None = None,
    cost: Cost | None = None,
) -> Callable[[Infer], Infer]:
    """Register the decorated inference function as the op ``name``.

    Args:
        name: the op.
        operands: operand names separated by spaces, as in :class:`OpDef`.
        attrs: its attributes.
        traits: its properties; ``PURE`` is implied unless one of :data:`IMPURE` is listed.
        factors: its sharding rule; that of an elementwise op is implied.
        cost: its operation counts, if not one per result element.
    """
    own = {trait for trait in traits if isinstance(trait, Trait)}
    if own.isdisjoint(IMPURE):
        own.add(Trait.PURE)
    rule = factors or (elementwise_factors if Trait.ELEMENTWISE in own else None)
    updates = next((item.update for item in traits if isinstance(item, UpdatesPart)), None)
    chooses = next((item for item in traits if isinstance(item, Chooses)), None)

    def register(infer: Infer) -> Infer:
        assert name not in OPS, name
        doc = (infer.__doc__ or "").strip()
        assert doc, f"op {name} has no documentation"
        OPS[name] = OpDef(
            name,
            tuple(operands.split()),
            attrs,
            infer,
            doc,
            frozenset(own),
            tuple([item for item in traits if isinstance(item, LinearIn)]),
            updates,
            chooses,
            rule,
            cost,
        )
        ops_with.cache_clear()
        return infer

    return register


def has_trait(op: Op, *traits: Trait) -> bool:
    """True if ``op`` is in the table and has all of ``traits``."""
    definition = OPS.get(op.name)
    return definition is not None and definition.has(*traits)


@cache
def ops_with(*traits: Trait) -> tuple[str, ...]:
    """The ops that have all of ``traits``, in the order of their definition."""
    return tuple([name for name, definition in OPS.items() if definition.has(*traits)])


def op_def(name: str) -> OpDef:
    """The entry of an op (GG0103 with the nearest names if it is unknown)."""
    found = OPS.get(name)
    if found is None:
        from graphgen.ops.suggestions import elsewhere

        guess = did_you_mean(name, OPS) or "see `graphgen ops`"
        raise GraphgenError("GG0103", f"unknown op '{name}'", help=elsewhere(name) or guess)
    return found


_checked_attrs: dict[tuple[str, Attrs], Attrs] = {}


def make_attrs(name: str, given: Mapping[str, AttrValue]) -> Attrs:
    """Check attributes against the op's entry and fill in the defaults.

    Raises:
        GraphgenError: GG0104 naming the op and the attribute.
    """
    try:
        raw = attrs_of(given)
    except TypeError:
        # A list has no hash; it is read as a tuple, or refused.
        return _check_attrs(op_def(name), given)
    done = _checked_attrs.get((name, raw))
    if done is None:
        done = _checked_attrs[name, raw] = _check_attrs(op_def(name), given)
    return done


def _check_attrs(definition: OpDef, given: Mapping[str, AttrValue]) -> Attrs:
    known = {attr.name for attr in definition.attrs}
    for key in given:
        if key not in known:
            raise unknown_name(definition.name, "attribute", key, sorted(known), "GG0104")
    out: dict[str, AttrValue] = {}
    for attr in definition.attrs:
        if attr.name in given:
            try:
                out[attr.name] = attr.type.read(given[attr.name])
            except MismatchError:
                # Fails again, with the error that users see.
                read_field(definition.name, attr, given[attr.name], "GG0104")
        elif attr.required:
            raise GraphgenError("GG0104", f"{definition.name} needs the attribute '{attr.name}'")
        else:
            out[attr.name] = attr.default
    return attrs_of(out)


_inferred: dict[tuple[str, Attrs, tuple[TensorType, ...]], tuple[TensorType, ...]] = {}


def infer(name: str, types: tuple[TensorType, ...], attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the result types of an op; memoized, because layers repeat.

    Raises:
        InferError: the operands do not fit the op.
    """
    key = (name, attrs, types)
    found = _inferred.get(key)
    if found is None:
        definition = op_def(name)
        _check_arity(definition, len(types))
        _check_tokens(definition, types)
        found = definition.infer(types, attrs)
        _check_tokens(definition, found)
        _inferred[key] = found
    return found


def _check_tokens(definition: OpDef, types: Sequence[TensorType]) -> None:
    """Refuse tokens in ops of elements: only what other functions or the host do takes them."""
    if not (definition.has(Trait.EXTERNAL) or definition.has(Trait.CONTROL)):
        for type_ in types:
            require(not type_.dtype.is_token, "a token has no elements")


def _check_arity(definition: OpDef, count: int) -> None:
    names = definition.operands
    variadic = bool(names) and names[-1].startswith("*")
    least = sum(1 for name in names if not name.startswith("*") and not name.endswith("?"))
    if count < least or (count > len(names) and not variadic):
        open_ended = variadic or least < len(names)
        takes = f"at least {least}" if open_ended and count < least else str(len(names))
        word = "operand" if takes in ("1", "at least 1") else "operands"
        raise InferError(f"takes {takes} {word} ({', '.join(names)}), got {count}")


def require(condition: bool, what: str, operand: int | None = None) -> None:
    """Raise :class:`InferError` unless ``condition`` holds."""
    if not condition:
        raise InferError(what, operand)


def same_type(types: Sequence[TensorType]) -> None:
    """Require one type for all operands."""
    for index, other in enumerate(types):
        if other is not types[0]:
            what = f"operand types differ: {types[0].text} and {other.text}"
            raise InferError(what, index, _make_equal(types[0], other))


def _make_equal(one: TensorType, other: TensorType) -> str:
    """The remedy for two types that differ."""
    if one.dtype is not other.dtype:
        return f"b.convert makes one of them {one.dtype} or {other.dtype}"
    return (
        "ops want one shape; operators and methods of the builder repeat sizes of 1 and missing "
        "leading dimensions, no others"
    )


def float_operand(types: Sequence[TensorType], index: int = 0) -> None:
    """Require a floating-point operand."""
    require(types[index].dtype.is_float, f"needs floating point, got {types[index].text}", index)


def number_operand(types: Sequence[TensorType], index: int = 0) -> None:
    """Require an integer or floating-point operand."""
    require(types[index].dtype.is_number, f"has no meaning for {types[index].text}", index)


def inexact_operand(types: Sequence[TensorType], index: int = 0) -> None:
    """Require a floating-point or complex operand."""
    kind, text = types[index].dtype, types[index].text
    require(kind.is_float or kind.is_complex, f"needs floating point, got {text}", index)


def arithmetic_operand(types: Sequence[TensorType], index: int = 0) -> None:
    """Require an integer, floating-point or complex operand."""
    kind = types[index].dtype
    require(kind.is_number or kind.is_complex, f"has no meaning for {types[index].text}", index)


def ordered_operand(types: Sequence[TensorType], index: int = 0) -> None:
    """Require an operand with an order: an integer, floating-point or pred one."""
    require(not types[index].dtype.is_complex, f"has no order: {types[index].text}", index)


def reducible_operand(types: Sequence[TensorType], kind: str) -> None:
    """Require an operand that ``kind`` reduces: complex numbers have sums, and no maximum."""
    if kind in ("maximum", "minimum"):
        ordered_operand(types)


def rank_of(types: Sequence[TensorType], index: int, rank: int, what: str) -> None:
    """Require an operand of ``rank`` dimensions."""
    require(
        types[index].rank == rank, f"{what} needs {rank} dimensions, got {types[index].text}", index
    )
