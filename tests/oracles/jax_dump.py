"""A dump folder that XLA writes for a step of JAX, pass by pass, and facts in its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import jax
import jax.numpy as jnp

def step(w, x):
    return w - jnp.tanh(-(-(x @ w)))

w, x = jnp.ones((64, 64)), jnp.ones((64, 64)).astype(jnp.bfloat16).astype(jnp.float32)
jax.block_until_ready(jax.jit(step, donate_argnums=0)(w, x))
"""
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(\S+) = \S+ ([\w-]+)\(", re.MULTILINE)


def write_jax_dump(folder: Path) -> Path:
    """Have JAX compile a step in a process of its own, which writes the folder."""
    flags = (
        f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_as_proto "
        "--xla_dump_hlo_pass_re=.*"
    )
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True)
    (folder / "notes.txt").write_text("mine\n")
    return folder


class DumpFacts:
    """What the texts of a folder say, read without graphgen.

    Args:
        folder: as :func:`write_jax_dump` made it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = sorted(
            path.name.partition(".before_optimizations")[0]
            for path in folder.glob("*.before_optimizations.txt")
        )
        (self.step,) = [name for name in self.modules if name.endswith("jit_step")]
        self.before = _INSTRUCTION.findall(self._text("before_optimizations"))
        self.after = _INSTRUCTION.findall(self._text("cpu_after_optimizations"))

    def _text(self, ending: str) -> str:
        return (self.folder / f"{self.step}.{ending}.txt").read_text()

    def named(self, opcode: str, after: bool = False) -> list[str]:
        """The instructions of an opcode."""
        return [name for name, code in (self.after if after else self.before) if code == opcode]

    @property
    def total(self) -> int:
        """XLA's total of bytes."""
        report = self._text("cpu_after_optimizations-memory-usage-report")
        return int(re.findall(r"Total bytes(?: used)?: (\d+)", report)[0])

    @property
    def temporary(self) -> int:
        """Bytes of temporary allocations."""
        text = self._text("cpu_after_optimizations-buffer-assignment")
        return sum(int(size) for size in re.findall(r"size (\d+), preallocated-temp", text))

    @property
    def peak(self) -> tuple[int, str]:
        """When XLA has most alive, and the first buffer there."""
        text = self._text("cpu_after_optimizations-live-range")
        found = re.findall(r"Live ranges at (\d+) \(peak\):\s+(\S+?)\{", text)
        return int(found[0][0]), found[0][1]

    def lives(self, name: str) -> str:
        """``2-3``, when a buffer is alive."""
        text = self._text("cpu_after_optimizations-live-range")
        return re.findall(rf"^\s+{re.escape(name)}\{{\}}:(\d+-\d+)", text, re.MULTILINE)[0]

    @property
    def records(self) -> int:
        """Modules of the step: before, after each recorded pass, and after all."""
        return len([*self.folder.glob(f"{self.step}.[0-9]*.txt")]) + 2
