"""MLIR through jaxlib: bytecode and every assembly form, printed in the generic form."""

# jaxlib's bindings carry no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from typing import Any, cast

from graphgen.errors import GraphgenError

# A portable artifact names its producer after MLIR's magic number.
_PRODUCER = b"StableHLO_v"


def generic_text(data: str | bytes, filename: str) -> str:
    """Print the module in MLIR's generic form, with locations.

    Raises:
        GraphgenError: GG0201 with MLIR's message.
        ModuleNotFoundError: jaxlib is not installed.
    """
    from jax.interpreters.mlir import make_ir_context

    context = cast(Any, make_ir_context())
    with context:
        try:
            module = _parse(data, context)
        except (_mlir_error(), RuntimeError, ValueError, RecursionError) as error:
            message = " ".join(str(error).split()).replace('"-":', "")
            what = f"MLIR cannot read it: {message}"
            quantized = '"quant"' in message or "quant.uniform" in message
            help = (
                "jaxlib does not have quantized types: write text, by stablehlo-translate "
                "--deserialize, or by stablehlo-opt --mlir-print-op-generic"
                if quantized
                else ""
            )
            raise GraphgenError("GG0201", what, where=filename, help=help) from error
        return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))


def hlo_of(data: bytes) -> bytes:
    """Convert StableHLO text or bytecode to an HloModuleProto with jaxlib.

    Raises:
        RuntimeError: XLA cannot convert it.
        ValueError: MLIR cannot read it.
        ModuleNotFoundError: jaxlib is not installed.
    """
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage]
    from jax.interpreters.mlir import make_ir_context

    context = cast(Any, make_ir_context())
    with context:
        try:
            text = str(_parse(data, context).operation.get_asm(enable_debug_info=True))
        except _mlir_error() as error:
            raise ValueError("MLIR cannot read it") from error
    computation = cast(Any, _jax).mlir.mlir_module_to_xla_computation(text, False, False)
    return cast(bytes, computation.as_serialized_hlo_module_proto())


def _mlir_error() -> type[Exception]:
    from jax.extend.mlir import ir

    return cast("type[Exception]", cast(Any, ir).MLIRError)


def _parse(data: str | bytes, context: object) -> Any:
    """Parse the module; a portable artifact is upgraded to the dialect of this jaxlib."""
    from jax.extend import mlir
    from jax.extend.mlir import ir  # a submodule: importing the package does not import it

    if isinstance(data, bytes) and _PRODUCER in data[:32]:
        return mlir.deserialize_portable_artifact(data, context)
    return cast(Any, ir).Module.parse(data, context)
