"""Extract layers as modules: the ops between two cuts and their weight programs.

Names of a layer's weights and states are made those of no layer in particular, so that two layers
are the same module just when they compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.analysis import called, fingerprint, inlined
from graphgen.analysis.layer_cuts import ProgramCuts, cut_program, layer_scopes
from graphgen.analysis.stage_chain import part_of
from graphgen.errors import GraphgenError
from graphgen.exec.weights import weight_programs
from graphgen.ir import RANK, Entry, Function, Module, Op, Role, Value
from graphgen.ops import Trait, has_trait

# Collectives after which every rank of a group has the same.
_JOINING = ("all_reduce", "all_gather")


def varying_values(module: Module, function: Function) -> set[Value]:
    """The values of a program that differ from rank to rank.

    Args:
        module: has the interface, the mesh and the weight programs.
        function: a program without calls.
    """
    prepared: set[str] = set()
    for program in weight_programs(module):
        varying = _varying(module, program, prepared)
        prepared |= {name for name, value in program.outputs if value in varying}
    return _varying(module, function, prepared)


def _varying(module: Module, function: Function, prepared: set[str]) -> set[Value]:
    found = {value for value in function.args if _differs(module, value.name or "", prepared)}
    for op in function.block:
        differs = any(value in found for value in op.operands)
        if has_trait(op, Trait.COLLECTIVE):
            differs = not _joins_all(module, op)
        if differs:
            found.update(op.results)
    return found


def _differs(module: Module, name: str, prepared: set[str]) -> bool:
    row = module.interface.get(name)
    if name in prepared or (name == RANK and row is None):
        return True
    return row is not None and row.role is Role.STATE and _packed_by_rank(module, row)


def _packed_by_rank(module: Module, row: Entry) -> bool:
    """True if each rank keeps its own part of a state."""
    if not row.pack:
        return False
    pack = module.function(row.pack)
    varying = _varying(module, pack, set())
    return any(value in varying for _, value in pack.outputs)


def _joins_all(module: Module, op: Op) -> bool:
    groups = op.attrs.groups("replica_groups") if op.name in _JOINING else ()
    return len(groups) == 1 and len(groups[0]) == module.ranks


# The residual stream at the beginning and at the end of a segment.
SEGMENT_INPUT = "segment.input"
SEGMENT_OUTPUT = "segment.output"


@dataclass(frozen=True, slots=True)
class Segment:
    """Some neighboring stages of a module, as a module.

    Attributes:
        label: for people, such as ``model.layers.17``.
        module: programs of the segment alone, and the functions that pack and unpack its states.
        prepare: the parts of ``@weights.global`` and ``@weights.rank`` that it needs, in order.
        weights: row of each checkpoint tensor it reads, by its name in the segment.
        names: name in the whole module of each state and output, by its name in the segment.
        key: equal for segments that compute the same from the same.
        addends: which of its ends are the residual stream as a sum over the ranks.
    """

    label: str
    module: Module
    prepare: tuple[Function, ...]
    weights: Mapping[str, Entry]
    names: Mapping[str, str]
    key: str
    addends: frozenset[str] = frozenset()


class LayeredModule:
    """A module divided into stages.

    Args:
        module: any level; not changed, and not to be changed while this is in use.
        programs: names of the programs that are run.
        scopes: of the layers; by default those of the first program.
    """

    def __init__(
        self, module: Module, programs: Sequence[str], scopes: Sequence[str] | None = None
    ) -> None:
        flat = [inlined(module, module.function(name)) for name in programs]
        self.module = module
        self.scopes = list(scopes) if scopes is not None else layer_scopes(flat[0])
        if not self.scopes:
            raise GraphgenError(
                "GG0705",
                f"@{module.name} has no layers: no op has a scope with a number",
                help="leave out --layerwise",
            )
        self.programs = [cut_program(module, function, self.scopes) for function in flat]
        self._varying = set[Value]()
        if module.ranks > 1:
            self._varying.update(*(varying_values(module, function) for function in flat))
        self._whole = {f.name: f for f in weight_programs(module)}
        self._made: dict[tuple[int, int], Segment] = {}

    def cuts(self) -> dict[int, list[Value]]:
        """Last stage before each cut that all programs have -> the value in each program."""
        common = set(self.programs[0].cuts)
        for program in self.programs[1:]:
            common &= set(program.cuts)
        return {stage: [p.cuts[stage] for p in self.programs] for stage in sorted(common)}

    def is_partial(self, stage: int) -> bool:
        """True if the values cut at after ``stage`` are addends, one a rank, of what they mean."""
        return any(value in self._varying for value in self.cuts()[stage])

    @property
    def stages(self) -> int:
        """Number of stages: one a layer, one before and one after them."""
        return len(self.scopes) + 2

    def segment(self, first: int, last: int) -> Segment:
        """The stages from ``first`` to ``last`` as a module; there are cuts before and after."""
        found = self._made.get((first, last))
        if found is None:
            found = self._made[first, last] = self._segment(first, last)
        return found

    def label(self, first: int, last: int) -> str:
        """A name of some stages for people."""
        names = ["embedding", *self.scopes, "head"]
        return names[first] if first == last else f"{names[first]} to {names[last]}"

    def _segment(self, first: int, last: int) -> Segment:
        inside = self.scopes[max(first - 1, 0) : last]
        names = _ShortNames({scope: place for place, scope in enumerate(inside)})
        functions = [_part(program, first, last, names) for program in self.programs]
        read = {value.name or "" for f in functions for value in f.args}
        prepare = _preparation(self._whole, {names.original(name) for name in read}, names)
        held = read | {value.name or "" for f in prepare for value in f.args}
        rows = {
            short: replace(self.module.interface[real], name=short)
            for short, real in sorted((name, names.original(name)) for name in held)
            if real in self.module.interface
        }
        rows |= self._outputs(functions, names)
        made = Module("segment", self.module.level, dict(self.module.mesh), {}, rows)
        for function in (*functions, *self._run(functions, rows)):
            made.add(function)
        key = fingerprint(
            Module("", "", made.mesh, {**{f.name: f for f in prepare}, **made.functions}, rows)
        )
        weights = {
            name: self.module.interface[names.original(name)]
            for name, row in rows.items()
            if row.role is Role.WEIGHT
        }
        known = {
            name: names.original(name)
            for name, row in rows.items()
            if row.role in (Role.STATE, Role.OUTPUT)
        }
        ends = (SEGMENT_INPUT, first - 1), (SEGMENT_OUTPUT, last)
        addends = frozenset(name for name, at in ends if name in rows and self.is_partial(at))
        return Segment(self.label(first, last), made, prepare, weights, known, key, addends)

    def _outputs(self, functions: Sequence[Function], names: _ShortNames) -> dict[str, Entry]:
        """Rows of what the segment gives, its boundaries included."""
        rows: dict[str, Entry] = {}
        for function in functions:
            given = function.arg(SEGMENT_INPUT)
            if given is not None:
                rows[SEGMENT_INPUT] = Entry(Role.INPUT, SEGMENT_INPUT, given.type, given.type)
            for name, value in function.outputs:
                if name == SEGMENT_OUTPUT:
                    rows[name] = Entry(Role.OUTPUT, name, value.type, value.type)
                else:
                    rows[name] = replace(self.module.interface[names.original(name)], name=name)
        return rows

    def _run(self, functions: Sequence[Function], rows: Mapping[str, Entry]) -> list[Function]:
        """Functions that the segment runs: of its loops and branches, and those of its states."""
        packs = {name for row in rows.values() for name in (row.pack, row.unpack) if name}
        own = [self.module.function(name) for name in sorted(packs)]
        inner = {f.name: f for g in (*functions, *own) for f in called(self.module, g)}
        return [*own, *[f for name, f in inner.items() if name not in packs]]


class _ShortNames:
    """Names without the number of a layer: ``#0.`` for the first of the segment's scopes.

    Args:
        scopes: place of each scope in the segment.
    """

    def __init__(self, scopes: Mapping[str, int]) -> None:
        self._scopes = scopes
        self._originals: dict[str, str] = {}

    def short(self, name: str) -> str:
        """The name in the segment."""
        parts = name.split(".")
        made = name
        for count in range(len(parts) - 1, 0, -1):
            place = self._scopes.get(".".join(parts[:count]))
            if place is not None:
                made = ".".join([f"#{place}", *parts[count:]])
                break
        self._originals[made] = name
        return made

    def original(self, name: str) -> str:
        """The name in the whole module of what is called ``name`` in the segment."""
        return self._originals.get(name, name)


def _part(program: ProgramCuts, first: int, last: int, names: _ShortNames) -> Function:
    """The program from the cut before stage ``first`` to the one after stage ``last``."""
    begin, end = program.cuts.get(first - 1), program.cuts.get(last)
    outputs = [
        (name, value)
        for name, value in program.function.outputs
        if first <= _home(value, program.stages) <= last
    ]
    named = [(names.short(name), value) for name, value in outputs]
    if end is not None:
        named.append((SEGMENT_OUTPUT, end))
    return _extracted(program.function, named, begin, names)


def _home(value: Value, stages: Mapping[Value, int]) -> int:
    """The stage that an output is made in: the first for one that belongs to none."""
    return stages.get(value, 0)


def _extracted(
    source: Function,
    outputs: Sequence[tuple[str, Value]],
    begin: Value | None,
    names: _ShortNames,
) -> Function:
    """The part of a function that computes some values, given the value ``begin``."""
    made = part_of(source, source.name, outputs, begin, SEGMENT_INPUT, names.short, names=False)
    made.phase, made.dims = source.phase, dict(source.dims)
    return made


def _preparation(
    whole: Mapping[str, Function], read: set[str], names: _ShortNames
) -> tuple[Function, ...]:
    """The parts of the weight programs that make the params ``read``, in the order they run."""
    wanted = set(read)
    found: list[Function] = []
    for function in reversed(list(whole.values())):
        outputs = [(n, v) for n, v in function.outputs if n in wanted]
        if outputs:
            named = [(names.short(name), value) for name, value in outputs]
            made = _extracted(function, named, None, names)
            found.append(made)
            wanted |= {names.original(v.name or "") for v in made.args if v.name != RANK}
    return tuple(reversed(found))
