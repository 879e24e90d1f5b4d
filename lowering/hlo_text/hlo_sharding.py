"""HLO shardings (OpSharding): how a value is laid out over devices; as protobuf and as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.replica_groups import iota_groups
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers
from graphgen.lowering.hlo_text.metadata import parse_metadata, show_metadata
from graphgen.lowering.hlo_text.text_values import BadAttributeError, inside, split_items


class ShardingField:
    """OpSharding."""

    TYPE = 1
    DIMENSIONS = 3
    DEVICES = 4
    MEMBERS = 5
    LAST_REPLICATED = 6
    METADATA = 7
    LAST_DIMS = 8
    IOTA_DIMS = 9
    IOTA_PERMUTATION = 10
    IN_GROUP = 11
    GROUP = 12
    GROUP_TYPE = 13


_F = ShardingField
KINDS = ("replicated", "maximal", "tuple", "devices", "manual", "unknown", "unreduced")
_WHOLE = ("replicated", "manual", "unknown", "unreduced")
_GROUPS = ("shard_as", "shard_like")


@dataclass(frozen=True, slots=True)
class HloSharding:
    """One sharding.

    Attributes:
        kind: one of :data:`KINDS`.
        dims: number of parts of each dimension, then of further ones.
        devices: in the order of the parts; empty for the formula in ``iota``.
        iota: ``(dims, permutation)``: devices as ``arange(n).reshape(dims).transpose(...)``.
        last_replicated: the last of ``dims`` counts copies.
        last_dims: what the last of ``dims`` count, each a kind.
        members: of a tuple.
        group: ``shard_as`` or ``shard_like``, and its number; empty without one.
        metadata: OpMetadata messages, encoded.
    """

    kind: str
    dims: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    iota: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    last_replicated: bool = False
    last_dims: tuple[str, ...] = ()
    members: tuple[HloSharding, ...] = ()
    group: tuple[str, int] | None = None
    metadata: tuple[bytes, ...] = field(default=(), compare=False)

    @property
    def further(self) -> int:
        """The number of ``dims`` after those of the value."""
        return int(self.last_replicated) or len(self.last_dims)

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of parts of each dimension of the value; empty unless it is tiled."""
        return self.dims[: len(self.dims) - self.further]

    @property
    def order(self) -> tuple[int, ...]:
        """The devices in the order of the parts."""
        if self.iota is None:
            return self.devices
        dims, order = self.iota
        count = 1
        for size in dims:
            count *= size
        return iota_groups(1, count, dims, order)[0] if count else ()

    @property
    def text(self) -> str:
        """HLO's spelling: ``{devices=[2,1]<=[2]}``, without metadata."""
        return self._spelled(metadata=False)

    @property
    def full_text(self) -> str:
        """HLO's spelling with metadata."""
        return self._spelled(metadata=True)

    def _spelled(self, *, metadata: bool) -> str:
        if self.kind == "tuple":
            members = [member._spelled(metadata=metadata) for member in self.members]
            return "{" + ", ".join(members) + "}"
        tail = f" {self.group[0]} {self.group[1]}" if self.group else ""
        if metadata and self.metadata:
            shown_ = [show_metadata(Message(item)) or "{}" for item in self.metadata]
            tail += f" metadata={shown_[0] if len(shown_) == 1 else '{' + ', '.join(shown_) + '}'}"
        if self.kind == "maximal":
            return f"{{maximal device={','.join(map(str, self.devices))}{tail}}}"
        if self.kind != "devices":
            return f"{{{self.kind}{tail}}}"
        shown = f"devices=[{_list(self.dims)}]{self._devices()}"
        if self.last_replicated:
            shown += " last_tile_dim_replicate"
        if self.last_dims:
            shown += " last_tile_dims={" + ", ".join(self.last_dims) + "}"
        return f"{{{shown}{tail}}}"

    def _devices(self) -> str:
        if self.iota is None:
            return _list(self.devices)
        dims, order = self.iota
        turned = order not in ((), tuple(range(len(dims))))
        return f"<=[{_list(dims)}]" + (f"T({_list(order)})" if turned else "")


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def read_sharding(message: Message) -> HloSharding:
    """Decode an OpSharding (GG0801 for a kind that is unknown)."""
    number = message.integer(_F.TYPE)
    if number >= len(KINDS):
        raise GraphgenError("GG0801", f"a sharding of the unknown kind {number}")
    grouped = message.boolean(_F.IN_GROUP)
    iota = message.integers(_F.IOTA_DIMS)
    return HloSharding(
        KINDS[number],
        message.integers(_F.DIMENSIONS),
        message.integers(_F.DEVICES),
        (iota, message.integers(_F.IOTA_PERMUTATION)) if iota else None,
        message.boolean(_F.LAST_REPLICATED),
        tuple([KINDS[min(kind, len(KINDS) - 1)] for kind in message.integers(_F.LAST_DIMS)]),
        tuple([read_sharding(item) for item in message.messages(_F.MEMBERS)]),
        (_GROUPS[message.integer(_F.GROUP_TYPE) & 1], message.integer(_F.GROUP))
        if grouped
        else None,
        tuple([item.source[slice(*item.span)] for item in message.messages(_F.METADATA)]),
    )


def write_sharding(sharding: HloSharding) -> bytes:
    """Encode an OpSharding."""
    iota = sharding.iota or ((), ())
    out = integer(_F.TYPE, KINDS.index(sharding.kind))
    out += integers(_F.DIMENSIONS, sharding.dims) + integers(_F.DEVICES, sharding.devices)
    out += b"".join([delimited(_F.MEMBERS, write_sharding(item)) for item in sharding.members])
    out += integer(_F.LAST_REPLICATED, int(sharding.last_replicated))
    out += b"".join([delimited(_F.METADATA, item) for item in sharding.metadata])
    out += integers(_F.LAST_DIMS, [KINDS.index(kind) for kind in sharding.last_dims])
    out += integers(_F.IOTA_DIMS, iota[0]) + integers(_F.IOTA_PERMUTATION, iota[1])
    if sharding.group:
        out += integer(_F.IN_GROUP, 1) + integer(_F.GROUP, sharding.group[1])
        out += integer(_F.GROUP_TYPE, _GROUPS.index(sharding.group[0]))
    return out


_INTS = r"\s*\[([\d,\s]*)\]"
_METADATA = r"(?:\s+metadata=(?P<metadata>\{.*\}))?"
_ONE = re.compile(
    rf"\{{\s*(?:(?P<whole>{'|'.join(_WHOLE)})|maximal\s+device=(?P<one>-?\d+)"
    rf"|devices=(?P<dims>{_INTS})\s*(?:<=(?P<iota>{_INTS})(?:\s*T\((?P<order>[\d,\s]*)\))?"
    rf"|(?P<listed>[\d,\s]+?))(?P<last>\s+last_tile_dim_replicate)?"
    rf"(?:\s+last_tile_dims=\{{(?P<kinds>[\w,\s]*)\}})?)(?:\s+(?P<group>shard_as|shard_like)"
    rf"\s+(?P<number>\d+))?{_METADATA}\s*\}}",
    re.DOTALL,
)


def parse_sharding(text: str) -> HloSharding:
    """Parse HLO's spelling of a sharding, with its metadata (GG0201)."""
    text = text.strip()
    if text.startswith("{{") or re.fullmatch(r"\{\s*\}", text):
        return HloSharding("tuple", members=tuple(map(parse_sharding, split_items(text[1:-1]))))
    found = _ONE.fullmatch(text)
    if found is None:
        raise GraphgenError("GG0201", f"'{text}' is not a sharding", help="{devices=[2,1]<=[2]}")
    group = (found["group"], int(found["number"])) if found["group"] else None
    metadata = _metadata(found["metadata"] or "")
    if found["whole"]:
        return HloSharding(found["whole"], group=group, metadata=metadata)
    if found["one"]:
        device = (int(found["one"]),)
        return HloSharding("maximal", (), device, group=group, metadata=metadata)
    iota = None
    if found["iota"]:
        dims = _numbers(found["iota"])
        iota = (dims, _numbers(found["order"] or "") or tuple(range(len(dims))))
    return HloSharding(
        "devices",
        _numbers(found["dims"]),
        _numbers(found["listed"] or ""),
        iota,
        bool(found["last"]),
        tuple(re.findall(r"\w+", found["kinds"] or "")),
        (),
        group,
        metadata,
    )


def _metadata(text: str) -> tuple[bytes, ...]:
    listed = inside(text) if text else ""
    items = split_items(listed) if listed.startswith("{") else [text] if text else []
    try:
        return tuple(map(parse_metadata, items))
    except (BadAttributeError, ValueError) as error:
        raise GraphgenError("GG0201", str(error)) from error


def _numbers(text: str) -> tuple[int, ...]:
    return tuple([int(item) for item in re.findall(r"\d+", text)])
