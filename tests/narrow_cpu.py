"""Run a command as on a CPU without AVX-512: our kernels, XLA, NumPy, OpenBLAS and torch.

    python -m tests.narrow_cpu pytest tests/lowering/cpu

Numbers that depend on the processor differ there, so tests that compare them exactly fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

# Variables of each library for AVX2 as the widest instruction set.
LIMITS = {
    "GRAPHGEN_ISA": "avx2",
    # torch's own kernels, and those of oneDNN in it.
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # OpenBLAS names a CPU: the first of Intel's with AVX2.
    "OPENBLAS_CORETYPE": "Haswell",
}
XLA_LIMIT = "--xla_cpu_max_isa=AVX2"
NUMPY_LIST = "NPY_DISABLE_CPU_FEATURES"


def wide_features(dispatched: Sequence[str], has: Mapping[str, bool]) -> list[str]:
    """NumPy's features beyond AVX2 that this CPU has and NumPy can do without.

    Args:
        dispatched: features that NumPy chooses at run time; it refuses to disable others.
        has: whether the CPU has each feature; NumPy warns if one that it lacks is disabled.
    """
    return [
        name
        for name in dispatched
        if has.get(name) and (name.startswith("AVX512") or name == "X86_V4")
    ]


def narrow_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the limits; other flags of XLA in it stay."""
    # Not in NumPy's stubs.
    numpy_core = import_module("numpy._core._multiarray_umath")
    features = wide_features(numpy_core.__cpu_dispatch__, numpy_core.__cpu_features__)
    flags = f"{environment.get('XLA_FLAGS', '')} {XLA_LIMIT}".strip()
    numpy = {NUMPY_LIST: " ".join(features)} if features else {}
    return {**environment, **LIMITS, "XLA_FLAGS": flags, **numpy}


def xla_limit(flags: str) -> str:
    """The limit among the flags of XLA, without the other flags; empty where it is not set."""
    return XLA_LIMIT if XLA_LIMIT in flags.split() else ""


def main(command: Sequence[str]) -> None:
    """Replace this process by the command."""
    os.execvpe(command[0], list(command), narrow_environment(os.environ))


if __name__ == "__main__":
    main(sys.argv[1:])
