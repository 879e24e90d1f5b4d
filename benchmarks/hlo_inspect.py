"""How long ``graphgen inspect`` takes for HLO text of 56 MB, and its memory, beside XLA's parser.

The text is a lowered decoder with the table of rotary positions as a constant, copied into one
ENTRY until it is as long. Each measurement is a process of its own: CPU seconds of all of it, with
imports, and its peak memory.
"""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.rows import Row, table

_NAME = re.compile(r"%([\w.\-]+)")
_PARAMETER = re.compile(r"parameter\((\d+)\)")
_LAYERS, _POSITIONS, _HALF = 16, 512, 64
_XLA = "import sys; from jaxlib import _hlo; _hlo.hlo_module_from_text(open(sys.argv[1]).read())"
_XLA_IMPORTS = "from jaxlib import _hlo"


def decoder() -> str:
    """The HLO text of one decode step of a decoder of some layers, as XLA prints it."""
    from jaxlib import _hlo

    from graphgen.config.compile_config import CompileConfig
    from graphgen.ir.dtype import bf16
    from graphgen.lowering.hlo import emit_hlo
    from graphgen.models import build, known_shape
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.pipelines import default

    shape = {**known_shape("llama-3.1-8b"), "num_hidden_layers": _LAYERS}
    module = build(shape, bf16, phases=("decode",))
    config = CompileConfig(target="trn2", tp=8, batch=(1,), context=(512,), tokens=(512,))
    run_pipeline(module, default(config))
    proto = emit_hlo(module, module.programs()[-1])
    return str(_hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string())


def text_of(megabytes: float) -> tuple[str, int]:
    """A text of about so many megabytes, and its number of instructions."""
    whole = decoder()
    before, _, entry = whole.partition("\nENTRY ")
    header = f"HloModule decoder\n{before.partition(chr(10))[2]}"
    lines = [line for line in entry.splitlines()[1:] if " = " in line]
    kind = f"f32[{_POSITIONS},{_HALF}]{{1,0}}"
    rows = ", ".join(f"{{{', '.join(_angles(at))}}}" for at in range(_POSITIONS))
    lines.insert(0, f"  %rotary = {kind} constant({{ {rows} }})")
    body = "\n".join(lines).replace("ROOT ", "")
    root = re.search(r"ROOT %([\w.\-]+) = (.*) tuple\(", entry)
    assert root is not None
    parameters = 1 + max(map(int, _PARAMETER.findall(body)))
    called = set(re.findall(r"^%([\w.\-]+) ", before, re.MULTILINE))
    copies = max(1, round(megabytes * 1e6 / len(body)))
    parts = [_copy(body, number, number * parameters, called) for number in range(copies)]
    shapes = ", ".join([root[2]] * copies)
    roots = ", ".join(f"%{root[1]}.c{number}" for number in range(copies))
    last = f"  ROOT %all = ({shapes}) tuple({roots})"
    text = "\n".join([header, "ENTRY %main {", *parts, last, "}", ""])
    return text, copies * len(lines) + 1


def _angles(position: int) -> list[str]:
    return [f"{position / 10000 ** (index / _HALF):.6g}" for index in range(_HALF)]


def _copy(body: str, number: int, parameters: int, called: set[str]) -> str:
    """The instructions with names and parameters of their own."""

    def name(match: re.Match[str]) -> str:
        return match[0] if match[1] in called else f"%{match[1]}.c{number}"

    def parameter(match: re.Match[str]) -> str:
        return f"parameter({int(match[1]) + parameters})"

    return _PARAMETER.sub(parameter, _NAME.sub(name, body))


def used(command: Sequence[str]) -> tuple[float, int]:
    """CPU seconds and peak megabytes of a command that has to succeed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def measure(megabytes: float) -> list[Row]:
    """Both forms of inspect on one text, and XLA's parser on it."""
    python = [sys.executable, "-m", "graphgen", "inspect"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.hlo"
        text, count = text_of(megabytes)
        file.write_text(text)
        theirs, their_peak = used([sys.executable, "-c", _XLA, str(file)])
        imports, _ = used([sys.executable, "-c", _XLA_IMPORTS])
        rows: list[Row] = []
        for case, command in (
            ("inspect", [*python, str(file)]),
            ("inspect --summary", [*python, "--summary", str(file)]),
        ):
            ours, peak = used(command)
            extra = {
                "ops": count,
                "text MB": round(len(text) / 1e6),
                "peak MB": peak,
                "XLA peak MB": their_peak,
            }
            rows.append(Row(case, ours, f"jaxlib {version('jaxlib')}", theirs - imports, extra))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; see the module's own text."""
    parser = argparse.ArgumentParser(description=__doc__, prog="hlo_inspect")
    parser.add_argument("--megabytes", type=float, default=56)
    rows = measure(parser.parse_args(arguments).megabytes)
    sys.stdout.write(table(rows, ["ops", "text MB", "peak MB", "XLA peak MB"]) + "\n")


if __name__ == "__main__":
    main()
