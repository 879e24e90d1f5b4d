"""A compiled program with its calling convention: named arguments, donated states."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.exec.bind import array_of
from graphgen.ir import Function, Module, Op, TensorType, Value
from graphgen.lowering.abi import donated
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.given_file import GivenFile
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.ops.admitted_calls import LAPACK, PARTITIONER_MARKER, refused_call
from graphgen.ops.custom_calls import NKI, native_call
from graphgen.ops.external import HOST_OPCODES, refusal

# A tensor on the devices: one buffer, or one a rank; only jaxlib looks inside.
DeviceValue = Any


@dataclass(frozen=True, slots=True)
class ProgramInterface:
    """Interface of an entry program.

    Attributes:
        name: the function's name.
        arguments: name and type of each argument, in order.
        outputs: name of each output, in order.
        states: arguments whose buffers are donated to the output of the same name.
        ranks: devices it runs on.
    """

    name: str
    arguments: tuple[tuple[str, TensorType], ...]
    outputs: tuple[str, ...]
    states: frozenset[str]
    ranks: int

    def argument_arrays(self, inputs: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        """Per argument, an array a rank.

        Raises:
            GraphgenError: GG0402 for a missing argument, another shape, or anything but an array of
                numbers of its type.
        """
        if len(inputs) != self.ranks:
            raise GraphgenError(
                "GG0402", f"@{self.name} runs on {self.ranks} ranks, given {len(inputs)}"
            )
        return [self._arrays(name, type_, inputs) for name, type_ in self.arguments]

    def _arrays(
        self, name: str, type_: TensorType, inputs: Sequence[Mapping[str, Array]]
    ) -> list[Array]:
        arrays: list[Array] = []
        for given in inputs:
            array = array_of(name, type_, given[name]) if name in given else None
            if array is None or array.shape != type_.dims:
                has = "nothing" if array is None else list(array.shape)
                raise GraphgenError(
                    "GG0402", f"@{self.name}: %{name} must be {type_.text}, given {has}"
                )
            arrays.append(array)
        return arrays


@dataclass(frozen=True, slots=True)
class CpuProgram(ProgramInterface):
    """One entry program, compiled.

    Attributes:
        executable: jaxlib's.
        handlers: of the results, for :func:`~graphgen.lowering.cpu.pjrt.launch`.
    """

    executable: pjrt.Executable
    handlers: Any

    def launch(self, values: Mapping[str, DeviceValue]) -> dict[str, list[DeviceValue]]:
        """Run on device values by name; donated states are gone afterwards.

        Returns:
            Per output, one array a rank.
        """
        arguments = [values[name] for name, _ in self.arguments]
        results = pjrt.launch(self.executable, arguments, self.handlers)
        return dict(zip(self.outputs, results, strict=True))

    def run_numpy(self, inputs: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Run on NumPy arrays, one mapping per rank; the caller's arrays are not donated.

        Raises:
            GraphgenError: GG0402, see :meth:`ProgramInterface.argument_arrays`.
        """
        names = [name for name, _ in self.arguments]
        columns = self.argument_arrays(inputs)
        results = self.launch({n: pjrt.put(c) for n, c in zip(names, columns, strict=True)})
        return [
            {name: np.array(per_rank[rank]) for name, per_rank in results.items()}
            for rank in range(self.ranks)
        ]


def compile_program(module: Module, function: Function) -> CpuProgram:
    """Compile one function of a module at level ``target``.

    One with instructions that have no op here, which only HLO can say, goes to XLA as HLO.
    """
    interface, text = written_text(module, function)
    return _described(interface, function, text.compiled(module.ranks))


@dataclass(frozen=True, slots=True)
class XlaText:
    """A program in the form in which XLA is given it.

    Attributes:
        data: StableHLO, or an HLO protobuf.
        is_hlo: whether it is the protobuf.
        calls_lapack: whether it calls functions of LAPACK.
    """

    data: str | bytes
    is_hlo: bool
    calls_lapack: bool = False

    def request(self) -> tuple[Mapping[str, object], bytes]:
        """The message to the process that compiles it, and the bytes."""
        binary = isinstance(self.data, bytes)
        head = {"hlo": self.is_hlo, "binary": binary, "lapack": self.calls_lapack}
        return head, self.data if isinstance(self.data, bytes) else self.data.encode()

    def compiled(self, ranks: int) -> pjrt.Executable:
        """Compile it for a number of ranks (GG0401 if XLA refuses it)."""
        if self.calls_lapack:
            pjrt.initialize_lapack()
        if not self.is_hlo:
            return pjrt.compile_text(self.data, ranks)
        assert isinstance(self.data, bytes)
        return pjrt.compile_text(pjrt.stablehlo_of(self.data), ranks)


@dataclass(frozen=True, slots=True)
class WrittenProgram:
    """A program, not compiled yet.

    Attributes:
        interface: what it takes and gives.
        text: what XLA is given.
    """

    interface: ProgramInterface
    text: XlaText | GivenFile


def file_program(module: Module, function: Function, file: GivenFile) -> WrittenProgram:
    """The program of a file, which is compiled as it stands.

    Args:
        module: what was read from the file.
        function: the program.
        file: its bytes.

    Raises:
        GraphgenError: GG0403 for an instruction that XLA would refuse in its own terms.
    """
    for op in [op for item in module.functions.values() for op in item.block]:
        if op.name == "hlo.opaque":
            _check_opaque(op)
    results = tuple([value.type for _, value in function.outputs])
    return WrittenProgram(_interface(module, function), replace(file, results=results))


def write_program(module: Module, function: Function) -> WrittenProgram:
    """Write one function of a module at level ``target`` for XLA; see :func:`written_text`."""
    return WrittenProgram(*written_text(module, function))


def written_text(module: Module, function: Function) -> tuple[ProgramInterface, XlaText]:
    """The interface of one function of a module at level ``target``, and what XLA is given.

    Raises:
        GraphgenError: GG0401 for an op that has no form there, GG0403 for a custom call that is
            not admitted.
    """
    # Only here: programs of an artifact are loaded without the dialects.
    from graphgen.lowering.cpu_kernels.kernel_calls import with_custom_calls
    from graphgen.lowering.stablehlo import emit_stablehlo

    lapack = False
    every = [op for item in module.functions.values() for op in item.block]
    for op in every:
        for target in called_targets(op):
            _check_target(op, target)
            lapack |= target in LAPACK
        if op.name == "hlo.opaque":
            _check_opaque(op)
    module, function = with_custom_calls(module, function, kernel_library().targets)
    interface = _interface(module, function)
    # StableHLO of XLA says nothing of the layouts that a function of LAPACK takes.
    if lapack or any(op.name == "hlo.opaque" for op in every):
        from graphgen.lowering.hlo import emit_hlo

        return interface, XlaText(emit_hlo(module, function), True, lapack)
    text = emit_stablehlo(module, function, preserved=False)
    return interface, XlaText(text, False, lapack)


def called_targets(op: Op) -> list[str]:
    """The targets of the custom calls in an op, those in its regions included."""
    if op.name == "custom_call":
        return [op.attrs.text("target")]
    if op.name != "hlo.opaque" or op.attrs.text("text"):
        return []
    from graphgen.lowering.hlo.subcomputations import targets_inside
    from graphgen.lowering.hlo_proto.fields import InstructionField
    from graphgen.lowering.hlo_proto.wire import Message

    found = targets_inside(op.attrs.text("regions"))
    if op.attrs.text("opcode") == "custom-call":
        fields = Message(bytes.fromhex(op.attrs.text("fields")))
        found.append(fields.text(InstructionField.CUSTOM_CALL_TARGET))
    return found


def _check_opaque(op: Op) -> None:
    """Refuse by name an instruction that XLA would refuse, or wait in for a host (GG0403)."""
    from graphgen.lowering.hlo.subcomputations import opcodes
    from graphgen.lowering.hlo_proto.fields import InstructionField
    from graphgen.lowering.hlo_proto.literal import read_literal
    from graphgen.lowering.hlo_proto.wire import Message

    error = refusal(op)
    if error is not None:
        raise error
    waits = [code for code in opcodes(op.attrs.text("regions")) if code in HOST_OPCODES]
    if waits:
        what = f"{waits[0]} in {op.attrs.text('opcode')} needs a host that sends or receives"
        raise GraphgenError("GG0403", f"{what}, which is not here", where=repr(op.loc))
    fields = Message(bytes.fromhex(op.attrs.text("fields")))
    if op.attrs.text("opcode") == "constant":
        literal = fields.message(InstructionField.LITERAL)
        if literal is None or read_literal(literal).data is None:
            raise GraphgenError(
                "GG0403",
                f"the elements of the constant {op.result.type.text} were left out",
                where=repr(op.loc),
                help="dump the program as a protobuf, or as text with its large constants",
            )


def _check_target(op: Op, target: str) -> None:
    """Refuse a call that XLA is not given (GG0403)."""
    if target not in (*LAPACK, *kernel_library().targets, PARTITIONER_MARKER):
        raise _no_kernel(op, target)


def _no_kernel(op: Op, target: str) -> GraphgenError:
    """The error for a call of ``target``, which is not known here."""
    if op.name == "custom_call" and target == NKI:
        from graphgen.eval.native_kernels import unknown_kernel

        found = unknown_kernel(native_call(op.attrs).kernel)
        return GraphgenError(
            found.code, found.what, where=repr(op.loc), note=found.note, help=found.help
        )
    return refused_call(op, target)


def load_program(module: Module, function: Function, data: bytes) -> CpuProgram | None:
    """The program of ``function`` from bytes that :func:`serialize_program` gave here before.

    Returns:
        ``None`` if XLA cannot load the bytes, or if the executable has parameters or results of
        other shapes or element types than the function.
    """
    executable = pjrt.deserialize(data, module.ranks)
    if executable is None:
        return None
    outputs = [value for _, value in function.outputs]
    if pjrt.signature(executable) != (_kinds(function.args), _kinds(outputs)):
        return None
    return describe_program(module, function, executable)


def _kinds(values: Iterable[Value]) -> list[pjrt.Kind]:
    """Shape and element type of each value, as XLA has them."""
    return [(value.type.dims, np.dtype(numpy_dtype(value.type.dtype))) for value in values]


def serialize_program(program: CpuProgram) -> bytes:
    """The compiled program as bytes; see :func:`program_key` for when they may be used."""
    return pjrt.serialize(program.executable)


def program_identity(name: str, text: str) -> bytes:
    """The bytes that are hashed before a compiled program, so that no other one passes for it.

    Args:
        name: of the program.
        text: SHA-256 of its StableHLO without locations.

    Returns:
        The name and the hash, the key of the machine and that of the kernels.
    """
    return json.dumps([name, text, pjrt.cpu_key(), kernel_library().key]).encode()


def program_key(text: str) -> str:
    """Names a compiled program: its StableHLO text without locations, the machine, the kernels."""
    where = f"{pjrt.cpu_key()}{kernel_library().key}"
    return hashlib.sha256(f"{where}\n{text}".encode()).hexdigest()[:24]


def describe_program(module: Module, function: Function, executable: pjrt.Executable) -> CpuProgram:
    """A loaded executable with the interface of its function."""
    return _described(_interface(module, function), function, executable)


def _interface(module: Module, function: Function) -> ProgramInterface:
    arguments = tuple((value.name or "", value.type) for value in function.args)
    return ProgramInterface(
        function.name,
        arguments,
        tuple(name for name, _ in function.outputs),
        frozenset(arguments[index][0] for index in donated(module, function)),
        module.ranks,
    )


def _described(
    interface: ProgramInterface, function: Function, executable: pjrt.Executable
) -> CpuProgram:
    kinds = _kinds(value for _, value in function.outputs)
    handlers = pjrt.result_handlers(kinds, interface.ranks)
    return CpuProgram(
        interface.name,
        interface.arguments,
        interface.outputs,
        interface.states,
        interface.ranks,
        executable,
        handlers,
    )
