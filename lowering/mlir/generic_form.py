"""MLIR through jaxlib: bytecode and every assembly form, printed in the generic form.

jaxlib reads in a process of its own: a file of others can end it, as by types that are nested
deeper than its stack, or by names that are not UTF-8.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.worker_process import WorkerProcess, read_whole, with_length

# The first byte of an answer: the module, MLIR's message, or XLA's.
MADE, UNREAD, UNCONVERTED = b"+", b"-", b"!"
TEXT, HLO = "text", "hlo"
_ENDED: Final = b"its process ended: it is nested too deeply, damaged, or takes too long"
_WORKER: Final = "graphgen.lowering.mlir.jaxlib_worker"


def generic_text(data: str | bytes, filename: str) -> str:
    """Print the module in MLIR's generic form, with locations.

    Raises:
        GraphgenError: GG0201 with MLIR's message.
        ModuleNotFoundError: jaxlib is not installed.
    """
    kind, answer = _asked(TEXT, data)
    if kind == MADE:
        return answer.decode("utf-8", "surrogatepass")
    message = " ".join(answer.decode("utf-8", "replace").split()).replace('"-":', "")
    what = f"MLIR cannot read it: {message}"
    quantized = '"quant"' in message or "quant.uniform" in message
    help = (
        "jaxlib does not have quantized types: write text, by stablehlo-translate "
        "--deserialize, or by stablehlo-opt --mlir-print-op-generic"
        if quantized
        else ""
    )
    raise GraphgenError("GG0201", what, where=filename, help=help)


def hlo_of(data: bytes) -> bytes:
    """Convert StableHLO text or bytecode to an HloModuleProto with jaxlib.

    Raises:
        RuntimeError: XLA cannot convert it.
        ValueError: MLIR cannot read it.
        ModuleNotFoundError: jaxlib is not installed.
    """
    kind, answer = _asked(HLO, data)
    if kind == MADE:
        return answer
    raise (ValueError if kind == UNREAD else RuntimeError)(answer.decode("utf-8", "replace"))


def _asked(wanted: str, data: str | bytes) -> tuple[bytes, bytes]:
    """The kind of jaxlib's answer, and the answer; the end of its process is one, too."""
    if find_spec("jaxlib") is None:
        raise ModuleNotFoundError("jaxlib is not installed", name="jaxlib")
    given = b"b" + data if isinstance(data, bytes) else b"s" + data.encode("utf-8", "surrogatepass")
    request = wanted[:1].encode() + given
    made = _JAXLIB.ask(with_length(request), read_whole)
    return (made[:1], made[1:]) if made else (UNREAD, _ENDED)


# -P: otherwise the current folder comes first on the path.
_JAXLIB: Final = WorkerProcess(lambda: (sys.executable, "-P", "-m", _WORKER))
