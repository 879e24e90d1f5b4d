"""The process that compiles and runs programs by IREE: requests on standard input."""

# IREE carries no types; this file is where that ends.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.lowering.cpu.isolated_run import MADE, packed, refusal, unpacked
from graphgen.worker_process import answer_requests

# Programs that stay compiled.
_KEPT: Final = 32
_programs: OrderedDict[bytes, Any] = OrderedDict()
_FLAGS: Final = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-type=stablehlo",
    # By default f64 becomes f32, and arguments of f64 are refused.
    "--iree-input-demote-f64-to-f32=false",
    "--iree-input-demote-i64-to-i32=false",
)


def answer(body: bytes) -> bytes:
    """The results of a program, or the error."""
    arrays = unpacked(body)[1]
    try:
        return MADE + packed({}, _run(arrays[0].tobytes(), arrays[1:]))
    except GraphgenError as error:
        return refusal(error)


def _run(text: bytes, arrays: Sequence[Array]) -> list[Array]:
    key = hashlib.sha256(text).digest()
    function = _programs.pop(key, None)
    if function is None:
        function = _loaded(_compiled(text))
    _programs[key] = function
    if len(_programs) > _KEPT:
        _programs.popitem(last=False)
    try:
        made = function(*arrays)
        results = made if isinstance(made, list | tuple) else [made]
        return [np.asarray(result) for result in results]
    except Exception as error:
        # Python exceptions of its binding, of many classes.
        what = f"IREE cannot run the program: {_first_line(str(error))}"
        raise GraphgenError("GG0401", what) from error


def _compiled(text: bytes) -> bytes:
    """The program as IREE's bytecode (GG0401 if IREE refuses it)."""
    from iree.compiler.api import Output, Session, Source

    session = Session()
    session.set_flags(*_FLAGS)
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    source = Source.wrap_buffer(session, text + b"\0")
    with _console() as console:
        compiled = invocation.parse_source(source) and invocation.execute()
        console.seek(0)
        said = console.read().decode(errors="replace")
    if not compiled:
        raise GraphgenError("GG0401", f"IREE refuses the program: {_first_line(said)}")
    output = Output.open_membuffer()
    invocation.output_vm_bytecode(output)
    return bytes(output.map_memory())


def _loaded(data: bytes) -> Any:
    """The only function of a compiled program."""
    from iree.runtime import Config, SystemContext, VmModule

    context = SystemContext(config=Config("local-sync"))
    module = VmModule.copy_buffer(context.instance, data)
    context.add_vm_module(module)
    bound = context.modules[module.name]
    names = [name for name in module.function_names if not name.startswith("__")]
    return bound[next(name for name in names if not name.endswith("$async"))]


@contextmanager
def _console() -> Generator[IO[bytes]]:
    """The file to which libraries write what they would write to standard error."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(text: str) -> str:
    """The first error of a text, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (errors or lines or ["no reason given"])[0]


if __name__ == "__main__":
    answer_requests(answer)
