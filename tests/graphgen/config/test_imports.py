"""What importing loads: the core stands on the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Prints every loaded module whose top package neither Python nor this project brings along.
PROGRAM = """
import sys
before = set(sys.modules)
import {module}
new = set(sys.modules) - before
tops = {{name.partition(".")[0] for name in new}}
ours = {{f"graphgen.{{name}}" for name in ("passes", "lowering", "runtime")}}
print(*sorted(tops - {{"graphgen"}} - set(sys.stdlib_module_names)))
print(*sorted(new & ours))
"""


def loaded(module: str) -> tuple[list[str], list[str]]:
    """Third-party packages, and our upper packages, that importing ``module`` loads."""
    command = [sys.executable, "-c", PROGRAM.format(module=module)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    foreign, own = ran.stdout.split("\n")[:2]
    return foreign.split(), own.split()


@pytest.mark.parametrize(
    "module",
    [
        "graphgen",
        "graphgen.ir",
        "graphgen.ops",
        "graphgen.text",
        "graphgen.build",
        "graphgen.composites",
        "graphgen.nn",
        "graphgen.models",
    ],
)
def test_graphs_are_built_with_the_standard_library_alone(module: str):
    assert loaded(module) == ([], [])


def test_passes_need_no_numbers():
    foreign, own = loaded("graphgen.passes.pipelines")
    assert foreign == []
    assert own == ["graphgen.passes"]


def test_text_is_emitted_without_jax():
    foreign, own = loaded("graphgen.lowering.stablehlo")
    assert foreign == []
    assert own == ["graphgen.lowering"]


def test_the_default_pipeline_of_any_target_imports_only_its_own_passes():
    program = """
import sys
from graphgen.config.compile_config import CompileConfig
from graphgen.passes.pipelines import default
from graphgen.targets import target_names
for target in target_names():
    for quantization in ("", "quantize-weights{dtype=int8}"):
        default(CompileConfig(target=target, quantization=quantization))
print(*(name for name in ("numpy", "graphgen.passes.raising") if name in sys.modules))
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
