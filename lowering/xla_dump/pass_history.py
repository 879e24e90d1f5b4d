"""Changes of each recorded pass of XLA, and the history of one op.

Ops are known by their names, which XLA keeps while it keeps an op. One that is gone is looked for
among the new ones: with the same opcode, shape and place in the traced program it was renamed, or
it was fused if it is now in a fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.json_value import Json
from graphgen.lowering.hlo_proto.fields import InstructionField, MetadataField
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.shape import read_shape
from graphgen.lowering.hlo_proto.wire import Source
from graphgen.lowering.xla_dump.dump_files import AFTER, BEFORE, DumpFile
from graphgen.lowering.xla_dump.dump_folder import hlo_source

F = InstructionField


@dataclass(frozen=True, slots=True)
class OpState:
    """One instruction at one time.

    Attributes:
        name: unique in the module.
        code: its opcode.
        shape: of its result, with the layout.
        computation: that it is in.
        inside: the fusion that it is in; empty outside of fusions.
        operands: names.
        layer: its place in the traced program.
    """

    name: str
    code: str
    shape: str
    computation: str
    inside: str
    operands: tuple[str, ...]
    layer: str

    @property
    def plain_shape(self) -> str:
        """The shape without its layout."""
        return self.shape.partition("{")[0]


State = dict[str, OpState]


@dataclass(slots=True)
class PassChange:
    """The changes between two records of a module.

    Attributes:
        name: of the pass, or of what ran in between.
        pipeline: that it is a part of.
        before, after: numbers of instructions.
        added: names of new ops.
        removed: names of ops that are gone.
        fused: name of an op, and the fusion that it is in now.
        renamed: old and new name.
        rewritten: name, and what of it is otherwise.
    """

    name: str
    pipeline: str
    before: int
    after: int
    added: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    fused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    renamed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    rewritten: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def is_empty(self) -> bool:
        """Nothing changed."""
        return not (self.added or self.removed or self.fused or self.renamed or self.rewritten)

    def to_json(self) -> dict[str, Json]:
        """Its facts."""
        return {
            "pass": self.name,
            "pipeline": self.pipeline,
            "ops_before": self.before,
            "ops_after": self.after,
            "added": [*self.added],
            "removed": [*self.removed],
            "fused": [[*pair] for pair in self.fused],
            "renamed": [[*pair] for pair in self.renamed],
            "rewritten": [[*pair] for pair in self.rewritten],
        }


def read_state(source: Source) -> State:
    """The instructions of a module by name (GG0801)."""
    module = open_hlo(source)
    callers: dict[int, str] = {}
    rows: list[tuple[int, str, list[OpState]]] = []
    for computation in module.computations:
        items = [*computation.instructions()]
        names = {item.integer(F.ID): item.text(F.NAME) for item in items}
        made: list[OpState] = []
        for item in items:
            code = item.text(F.OPCODE)
            if code == "fusion":
                callers |= dict.fromkeys(item.integers(F.CALLED_IDS), item.text(F.NAME))
            metadata = item.message(F.METADATA)
            made.append(
                OpState(
                    item.text(F.NAME),
                    code,
                    read_shape(item.data(F.SHAPE)).text,
                    computation.name,
                    "",
                    tuple([names.get(number, "?") for number in item.integers(F.OPERAND_IDS)]),
                    metadata.text(MetadataField.OP_NAME) if metadata else "",
                )
            )
        rows.append((computation.id, computation.name, made))
    return {
        item.name: OpState(
            item.name, item.code, item.shape, item.computation, callers.get(number, ""),
            item.operands, item.layer,
        )
        for number, _, made in rows
        for item in made
    }  # fmt: skip


def compare_states(first: State, second: State, name: str, pipeline: str) -> PassChange:
    """Compare two records of a module."""
    change = PassChange(name, pipeline, len(first), len(second))
    gone = [item for key, item in first.items() if key not in second]
    fresh = [item for key, item in second.items() if key not in first]
    waiting: dict[tuple[str, str, str], list[OpState]] = {}
    for item in fresh:
        waiting.setdefault((item.code, item.plain_shape, item.layer), []).append(item)
    found: set[str] = set()
    for item in gone:
        alike = waiting.get((item.code, item.plain_shape, item.layer), [])
        partner = alike.pop(0) if alike and item.code != "parameter" else None
        if partner is None:
            change.removed.append(item.name)
            continue
        found.add(partner.name)
        if partner.inside and not item.inside:
            change.fused.append((item.name, partner.inside))
        else:
            change.renamed.append((item.name, partner.name))
    change.added = [item.name for item in fresh if item.name not in found]
    names = dict(change.renamed)
    for key, item in first.items():
        if key in second:
            _rewritten(item, second[key], names, change)
    return change


def _rewritten(one: OpState, other: OpState, names: dict[str, str], change: PassChange) -> None:
    """Note how an op that stayed differs."""
    if other.inside and not one.inside:
        change.fused.append((one.name, other.inside))
        return
    parts: list[str] = []
    if one.code != other.code:
        parts.append(f"opcode {one.code} to {other.code}")
    if one.shape != other.shape:
        parts.append(f"{one.shape} to {other.shape}")
    if tuple([names.get(name, name) for name in one.operands]) != other.operands:
        parts.append("operands")
    if one.computation != other.computation:
        parts.append(f"moved from %{one.computation} to %{other.computation}")
    if parts:
        change.rewritten.append((one.name, ", ".join(parts)))


def pass_changes(states: Sequence[DumpFile]) -> list[PassChange]:
    """The changes from each record of a module to the next; those without any are left out."""
    found: list[PassChange] = []
    last: State | None = None
    for file in states:
        state = read_state(hlo_source(file.path))
        if last is not None:
            name = {BEFORE: "start", AFTER: "end of all passes"}.get(file.kind, file.after)
            change = compare_states(last, state, name, file.pipeline)
            if not change.is_empty:
                found.append(change)
        last = state
    return found


def follow_op(changes: Sequence[PassChange], name: str) -> list[tuple[PassChange, str]]:
    """Follow one op: each pass that touched it, and its effect."""
    out: list[tuple[PassChange, str]] = []
    for change in changes:
        renamed, fused, rewritten = (
            dict(pairs) for pairs in (change.renamed, change.fused, change.rewritten)
        )
        if name in change.added:
            out.append((change, f"makes {name}"))
        elif name in renamed:
            out.append((change, f"renames {name} to {renamed[name]}"))
            name = renamed[name]
        elif name in fused:
            out.append((change, f"fuses {name} into {fused[name]}"))
        elif name in rewritten:
            out.append((change, f"changes {name}: {rewritten[name]}"))
        elif name in change.removed:
            out.append((change, f"removes {name}"))
    return out
