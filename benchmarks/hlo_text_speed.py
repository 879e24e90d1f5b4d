"""How many instructions of HLO text a second are parsed, beside XLA's own parser.

The text is one ENTRY of equal layers in the form XLA prints, with metadata on every line. Seconds
are CPU seconds of one process after imports.
"""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

from benchmarks.rows import Row, table

# Opcode and operands of the ops of a layer; ``{0}`` is its number, ``{1}`` the one before.
_LAYER = (
    ("w", "bf16[64,64]{1,0}", "broadcast", "%c", ", dimensions={}"),
    ("d", "bf16[8,64]{1,0}", "dot", "%out.{1}, %w.{0}",
     ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("a", "bf16[8,64]{1,0}", "add", "bf16[8,64]{1,0} %d.{0}, bf16[8,64]{1,0} %out.{1}", ""),
    ("t", "bf16[64,8]{0,1}", "transpose", "%a.{0}", ", dimensions={1,0}"),
    ("m", "bf16[8,64]{1,0}", "multiply", "%a.{0}, %d.{0}", ""),
    ("out", "bf16[8,64]{1,0}", "tanh", "%m.{0}", ""),
)  # fmt: skip


def text_of(count: int) -> str:
    """HLO text of about so many instructions."""
    lines = [
        "HloModule layers\n\nENTRY %main (out.0: bf16[8,64]) -> bf16[8,64] {",
        "  %out.0 = bf16[8,64]{1,0} parameter(0)\n  %c = bf16[] constant(1)",
    ]
    layers = max(count // len(_LAYER), 1)
    for layer in range(1, layers + 1):
        for line, (name, shape, code, reads, attributes) in enumerate(_LAYER, 10):
            given = reads.replace("{0}", str(layer)).replace("{1}", str(layer - 1))
            lines.append(
                f"  %{name}.{layer} = {shape} {code}({given}){attributes}, metadata={{"
                f'op_type="{code}" op_name="jit(step)/layers.{layer}/{code}" '
                f'source_file="/models/decoder.py" source_line={line}}}'
            )
    return "\n".join([*lines, f"  ROOT %r = bf16[8,64]{{1,0}} negate(%out.{layers})", "}", ""])


def _seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def measure(count: int) -> Row:
    """Parse a text of so many instructions here and by XLA."""
    from jaxlib import _hlo

    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

    text = text_of(count)
    ours = _seconds(lambda: parse_hlo_text(text))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    theirs = _seconds(lambda: _hlo.hlo_module_from_text(text))
    case = f"{count} ops, {len(text) / 1e6:.0f} MB"
    extra = {"ops/s": round(count / ours), "XLA ops/s": round(count / theirs), "peak MB": peak}
    return Row(case, ours, f"jaxlib {version('jaxlib')}", theirs, extra)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line; see the module's own text."""
    parser = argparse.ArgumentParser(description=__doc__, prog="hlo_text_speed")
    parser.add_argument("--ops", type=int, default=170_000)
    row = measure(parser.parse_args(arguments).ops)
    sys.stdout.write(table([row], ["ops/s", "XLA ops/s", "peak MB"]) + "\n")


if __name__ == "__main__":
    main()
