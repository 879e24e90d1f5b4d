"""Reads an HLO protobuf as a module: one program, its interface and its states."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import RANK, Function, Module, Op, Role, Value, entry, tensor
from graphgen.ir.dtype import s32
from graphgen.lowering.hlo.function_reader import HloFunctionReader, read_values
from graphgen.lowering.hlo.hlo_file import HloFile, ir_name
from graphgen.lowering.hlo.hlo_locations import HloLocations
from graphgen.lowering.hlo.hlo_summary import COLLECTIVES
from graphgen.lowering.hlo.module_annotations import MAY_ALIAS, module_annotations
from graphgen.lowering.hlo_proto.fields import AliasField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.instruction import ALIASED, INPUT_NAMES, OUTPUT_NAMES
from graphgen.lowering.hlo_proto.proto_module import HloModule, open_hlo, read_frontend_attributes
from graphgen.lowering.hlo_proto.replica_groups import ReplicaGroups, read_groups, read_pairs
from graphgen.lowering.hlo_proto.wire import Message, Source
from graphgen.ops import OPS

PHASE = "main"


@paused_collector()
def read_hlo(source: Source, name: str = "<bytes>") -> Module:
    """Read an HLO protobuf of any version of XLA.

    The entry computation becomes the one program, its callees become functions. A parameter keeps
    its runtime name (``neff_input_names``), else its own; a parameter that an output aliases is a
    state, and the output takes its name. Copies are dropped; other fields that ops of the IR do not
    carry are counted in ``meta["dropped"]``. An instruction that is not modelled becomes
    ``hlo.opaque``, counted with the reason in ``meta["opaque"]``. Elements of constants stay in
    ``source``. The level is ``sharded`` if there are collectives, else ``logical``.

    Args:
        source: an HloModuleProto, HloProto or HloSnapshot.
        name: of the file, for error messages.

    Raises:
        GraphgenError: GG0801 damaged or no HLO, GG0103 an instruction that contradicts itself
            or has dynamic sizes, GG0101 one of a type that is unknown here (complex numbers,
            tokens), with the file and the instruction.
    """
    try:
        return _read(open_hlo(source))
    except GraphgenError as error:
        error.where = f"{name}: {error.where}" if error.where else name
        raise


def _read(hlo: HloModule) -> Module:
    by_id = {item.id: item for item in hlo.computations}
    file = HloFile(hlo, HloLocations(hlo.message), by_id, read_values)
    module = Module(ir_name(hlo.name or "module", set()))
    function = Function(ir_name(hlo.entry.name or "main", file.names), PHASE)
    reader = HloFunctionReader(file, hlo.entry, function)
    results = reader.read()
    for item in (*file.functions.values(), function):
        module.add(item)
    ranks = max(map(_ranks, module.functions.values()))
    _Interface(file, module, reader, results, ranks).fill()
    if ranks:
        module.mesh["replica"] = ranks
    module.level = "sharded" if ranks else "logical"
    module.meta["format"] = "hlo"
    module.meta.update(module_annotations(hlo))
    if file.dropped:
        counts = (f"{what} ({count})" for what, count in file.dropped.items())
        module.meta["dropped"] = ", ".join(counts)
    if file.opaque:
        counts = (f"{what} ({count})" for what, count in file.opaque.items())
        module.meta["opaque"] = "; ".join(counts)
    if file.contradictions:
        module.meta["invalid"] = "\n".join(file.contradictions)
    return module


def _ranks(function: Function) -> int:
    """The number of ranks that the collectives name, 0 without collectives."""
    ranks = [
        rank
        for op in function.block
        for groups in _groups(op)
        for group in groups
        for rank in group
    ]
    return max(ranks, default=-1) + 1


def _groups(op: Op) -> list[ReplicaGroups]:
    """The replica groups and pairs of a collective, modelled or opaque."""
    if OPS[op.name].collective:
        keys = ("replica_groups", "source_target_pairs")
        return [op.attrs.groups(key) for key in keys if key in op.attrs]
    if op.name == "hlo.opaque" and op.attrs.text("opcode") in COLLECTIVES:
        fields = Message(bytes.fromhex(op.attrs.text("more")))
        return [read_groups(fields), read_pairs(fields)]
    return []


class _Interface:
    """Names arguments and outputs, and fills the interface table."""

    def __init__(
        self,
        file: HloFile,
        module: Module,
        reader: HloFunctionReader,
        results: list[Value],
        ranks: int,
    ) -> None:
        self.file = file
        self.module = module
        self.reader = reader
        self.function = reader.function
        self.results = results
        self.ranks = ranks
        self.may_alias: set[Value] = set()
        self.states = self._states()

    def _states(self) -> dict[Value, int]:
        """Map each aliased argument to the output that takes over its buffer."""
        table = self.file.module.message.message(ModuleField.ALIAS)
        found: dict[Value, int] = {}
        for item in table.messages(AliasField.ENTRIES) if table else []:
            target = item.integers(AliasField.OUTPUT_INDEX)
            output = target[0] if target else 0
            argument = self._argument(
                item.integer(AliasField.PARAMETER), item.integers(AliasField.PARAMETER_INDEX)
            )
            fits = (
                argument is not None
                and len(target) <= 1
                and 0 <= output < len(self.results)
                and self.results[output].type is argument.type
                and argument not in found
                and output not in found.values()
            )
            if fits and argument is not None:
                found[argument] = output
                if item.integer(AliasField.KIND) == AliasField.MAY_ALIAS:
                    self.may_alias.add(argument)
            else:
                self.file.drop("aliases that do not fit")
        return found

    def _argument(self, number: int, index: tuple[int, ...]) -> Value | None:
        """The argument of a parameter, or of an element of a tuple parameter."""
        found = self.reader.parameters.get(number)
        place = index[0] if index else 0
        fits = found is not None and len(index) <= 1 and 0 <= place < len(found[1])
        return found[1][place] if found and fits else None

    def fill(self) -> None:
        """Name all values of the interface and enter them into the table."""
        taken: set[str] = set()
        for number in range(len(self.reader.parameters)):
            instruction, made = self.reader.parameters[number]
            attrs = read_frontend_attributes(instruction, InstructionField.FRONTEND_ATTRIBUTES)
            given = attrs.get(INPUT_NAMES)
            for value in made:
                name = (given if len(made) == 1 else None) or value.name or ""
                if value in self.states:
                    name = name.removesuffix(ALIASED)
                value.name = ir_name(name, taken)
        self._apart(taken)
        self.function.block.keep_args(self.function.args)
        self.function.outputs = list(zip(self._outputs(taken), self.results, strict=True))
        self._rows()
        donors = self._donors()
        if donors:
            self.module.meta["donated"] = ", ".join(donors)
        loose = [value.name or "" for value in self.function.args if value in self.may_alias]
        if loose:
            self.module.meta[MAY_ALIAS] = ", ".join(loose)

    def _apart(self, taken: set[str]) -> None:
        """Rename values whose name an argument has."""
        for op in self.function.block:
            for value in op.results:
                if value.name in taken:
                    value.name = ir_name(f"{value.name}.value", self.reader.builder.taken | taken)

    def _outputs(self, taken: set[str]) -> list[str]:
        root = self.reader.root
        assert root is not None, "the reader has raised without a root"
        attrs = read_frontend_attributes(root, InstructionField.FRONTEND_ATTRIBUTES)
        given = attrs.get(OUTPUT_NAMES, "").split(",")
        if len(given) != len(self.results) or not all(given):
            given = [f"output{index}" for index in range(len(self.results))]
        states = {output: value.name or "" for value, output in self.states.items()}
        return [
            states[index] if index in states else ir_name(name, taken)
            for index, name in enumerate(given)
        ]

    def _rows(self) -> None:
        rows = self.module.interface
        for value in self.function.args:
            name = value.name or ""
            if name == RANK and value.type is tensor(s32, (1,)) and self.ranks > 1:
                continue
            role = Role.STATE if value in self.states else Role.INPUT
            rows[name] = entry(role, name, value.type)
        for name, value in self.function.outputs:
            if name not in rows:
                rows[name] = entry(Role.OUTPUT, name, value.type)

    def _donors(self) -> list[str]:
        """Names of the arguments whose buffers any output may reuse."""
        table = self.file.module.message.message(ModuleField.DONORS)
        found: list[str] = []
        for item in table.messages(AliasField.ENTRIES) if table else []:
            value = self._argument(
                item.integer(AliasField.DONOR_PARAMETER), item.integers(AliasField.DONOR_INDEX)
            )
            if value is not None and value not in self.states:
                found.append(value.name or "")
        return found
