"""A platform ``neuron`` of two cores: it runs on the CPU what its compile hook has a NEFF for."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import libneuronxla  # pyright: ignore[reportMissingImports]
from jax._src import xla_bridge
from jaxlib import xla_client

from graphgen.lowering.hlo.read import read_hlo
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ProgramShapeField
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.passes.core import Rewriter
from graphgen.passes.legalize.legalize import Legalize

LOADED: list[str] = []


class Client:
    """A CPU client that asks the hook before it compiles."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def compile_and_load(self, text: Any, devices: Any, options: Any) -> Any:
        """Load a program, whose NEFF must be the one of its HLO."""
        mlir: Any = xla_client._xla.mlir  # pyright: ignore
        computation = mlir.mlir_module_to_xla_computation(text)
        code = computation.as_serialized_hlo_module_proto()
        status, wrapped = libneuronxla.neuronx_cc(code, b"hlo", b"3.0", b"prefix")
        if status or b"AwsNeuronNeff" not in wrapped:
            raise RuntimeError("the hook gave no program")
        before, after = open_hlo(code), open_hlo(wrapped)
        (call,) = [
            item
            for item in after.entry.instructions()
            if item.text(InstructionField.OPCODE) != "parameter"
        ]
        assert call.integer(InstructionField.ID) == after.entry.root_id
        taken = call.integers(InstructionField.OPERAND_IDS)
        parameters = before.entry.message.message(ComputationField.PROGRAM_SHAPE)
        assert parameters is not None
        assert len(taken) == len(parameters.spans(ProgramShapeField.PARAMETERS))
        neff = call.data(InstructionField.BACKEND_CONFIG)
        with tarfile.open(fileobj=io.BytesIO(neff[1024:]), mode="r:gz") as archive:
            info = archive.extractfile("info.json")
            assert info is not None
            LOADED.append(json.loads(info.read())["name"])
        if b"AwsNeuron" in code:
            text = _without_kernels(code)
        return self._client.compile_and_load(text, devices, options)


def _without_kernels(code: bytes) -> str:
    """StableHLO of a program in which kernels of Neuron are their published meaning."""
    module = read_hlo(code)
    (function,) = module.programs()
    Legalize(min_rows=1).run(module, Rewriter("legalize"))
    return emit_stablehlo(module, function, preserved=False)


def initialize() -> None:
    """Register the platform."""

    def factory() -> Any:
        return Client(xla_client.make_cpu_client(num_devices=2))

    xla_bridge.register_backend_factory("neuron", factory, priority=0, fail_quietly=False)
