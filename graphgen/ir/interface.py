"""The interface table: inputs, outputs, weights and states, declared once for all entry programs.

Each entry has a *logical* type, which the user of the module sees, and a *physical* type, which the
programs see. A pass that changes the representation (partition, padding, quantisation) changes the
physical type and names functions of the module, ``pack`` and ``unpack``, that go between the two.
Comparing two modules therefore never needs to know which passes ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from graphgen.ir.dims import Dim
from graphgen.ir.domain import Domain
from graphgen.ir.loc import UNKNOWN, Loc
from graphgen.ir.sharding import Sharding
from graphgen.ir.types import TensorType


class Role(Enum):
    """The role of an interface entry."""

    INPUT = "input"  # given at every call
    WEIGHT = "weight"  # a tensor of the checkpoint
    PARAM = "param"  # a prepared tensor: made by @weights.rank, read by the programs
    STATE = "state"  # kept between calls: read, and replaced by the output of the same name
    OUTPUT = "output"  # handed back at every call
    LAYOUT = "layout"  # where states keep what they hold; read by pack and unpack too
    SLOTTED = "slotted"  # tensors of adapters, one to a slot of dimension 0; written at run time


# Roles of tensors that stay the same from call to call, and that are prepared before.
HELD_ROLES = (Role.WEIGHT, Role.SLOTTED)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the interface table.

    Attributes:
        role: what it is.
        name: the checkpoint's name for a weight, else the builder's.
        logical: type before any pass changed the representation; may hold symbols.
        physical: type the programs see on one rank.
        pack: function ``(logical, rank s32[1], layouts...) -> physical``; empty when they are the
            same. Of a layout, a function ``() -> logical`` that makes one for any calls.
        unpack: function ``(stacked physical [n, ...], layouts...) -> logical`` of the first n
            ranks' parts, one where every rank keeps the same; empty when the types are the same. A
            second output ``held``, pred, says which elements are kept at all.
        sharding: annotated layout, by the user or a rule, ``None`` without one.
        last: of a cache, how many positions a row keeps, the newest ones: position p is in slot
            ``p mod last`` of what is packed, and logical slots of other positions hold nothing
            that is defined. 0 for all of them, each in its own slot.
        domain: of an element in logical terms, the values that a caller may give; ``None`` for all
            values of the type. Its symbols are those of the programs.
        loc: where a builder declared it first; no part of the text, nor of equality.
    """

    role: Role
    name: str
    logical: TensorType
    physical: TensorType
    pack: str = ""
    unpack: str = ""
    sharding: Sharding | None = None
    last: int = 0
    domain: Domain | None = None
    loc: Loc = field(default=UNKNOWN, compare=False, repr=False)

    def with_physical(self, physical: TensorType, pack: str = "", unpack: str = "") -> Entry:
        """The entry after a pass changed its representation."""
        return replace(self, physical=physical, pack=pack, unpack=unpack)

    def bind(self, sizes: Mapping[str, Dim]) -> Entry:
        """The entry with the symbols of ``sizes`` replaced in types and domain."""
        logical, physical = self.logical.bind(sizes), self.physical.bind(sizes)
        domain = self.domain.bind(sizes).within(logical.dtype) if self.domain is not None else None
        return replace(self, logical=logical, physical=physical, domain=domain)


def entry(
    role: Role, name: str, type: TensorType, domain: Domain | None = None, loc: Loc = UNKNOWN
) -> Entry:
    """An entry with its logical representation."""
    return Entry(role, name, type, type, domain=domain, loc=loc)
