"""The process in which jaxlib reads MLIR: modules on standard input, answers on its output."""

# jaxlib's bindings carry no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from typing import Any, Final, cast

from graphgen.lowering.mlir.generic_form import HLO, MADE, TEXT, UNCONVERTED, UNREAD
from graphgen.worker_process import answer_requests

# A portable artifact names its producer after MLIR's magic number.
_PRODUCER: Final = b"StableHLO_v"
# Seconds of processor time: to import jaxlib and some, and for each megabyte.
_SECONDS, _SECONDS_A_MEGABYTE = 60, 10


def _parse(data: str | bytes, context: object) -> Any:
    """Parse the module; a portable artifact is upgraded to the dialect of this jaxlib."""
    from jax.extend import mlir
    from jax.extend.mlir import ir  # a submodule: importing the package does not import it

    if isinstance(data, bytes) and _PRODUCER in data[:32]:
        return mlir.deserialize_portable_artifact(data, context)
    return cast(Any, ir).Module.parse(data, context)


def answer(wanted: str, data: str | bytes) -> bytes:
    """The module in the form that is wanted, or why there is none."""
    from jax.extend.mlir import ir
    from jax.interpreters.mlir import make_ir_context

    error_of_mlir = cast("type[Exception]", cast(Any, ir).MLIRError)
    context = cast(Any, make_ir_context())
    with context:
        try:
            operation = _parse(data, context).operation
        except (error_of_mlir, RuntimeError, ValueError, RecursionError) as error:
            return UNREAD + str(error).encode("utf-8", "replace")
        if wanted != HLO:
            text = str(operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
            return MADE + text.encode("utf-8", "surrogatepass")
        text = str(operation.get_asm(enable_debug_info=True))
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage]

    try:
        made = cast(Any, _jax).mlir.mlir_module_to_xla_computation(text, False, False)
    except (error_of_mlir, RuntimeError, ValueError) as error:
        return UNCONVERTED + str(error).encode("utf-8", "replace")
    return MADE + cast(bytes, made.as_serialized_hlo_module_proto())


def answer_request(request: bytes) -> bytes:
    """The answer to a request: the wanted form, text or bytes, and the module."""
    wanted = HLO if request[:1] == HLO[:1].encode() else TEXT
    data = request[2:] if request[1:2] == b"b" else request[2:].decode("utf-8", "surrogatepass")
    return answer(wanted, data)


if __name__ == "__main__":
    answer_requests(answer_request, lambda size: _SECONDS + _SECONDS_A_MEGABYTE * (size >> 20))
