"""The library of kernels: find it, load it, and tell XLA the names of its custom calls."""

# jax.ffi carries no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.lowering.cpu_kernels.build_kernels import (
    EMULATED,
    LIBRARY,
    instruction_sets,
    is_current,
    tile_units,
)

BUILD: Final = "graphgen doctor --build-kernels"

# Set to leave the kernels out, as on a machine without a compiler.
DISABLE: Final = "GRAPHGEN_NO_KERNELS"
# Names the instruction set that the kernels use; the CPU's best, without AMX, if it is not set.
RESTRICT: Final = "GRAPHGEN_ISA"
# The matrix unit of x86-64, as that names it, and the vectors that do the rest.
AMX: Final = "amx"
AMX_VECTORS: Final = "avx512_bf16"
# Custom call -> symbol of its handler.
HANDLERS: Final = {
    "graphgen.adapted_linear": "graphgen_adapted_linear",
    "graphgen.attention": "graphgen_attention",
    "graphgen.cache_write": "graphgen_cache_write",
    "graphgen.linear": "graphgen_linear",
    "graphgen.norm": "graphgen_norm",
    "graphgen.rope": "graphgen_rope",
    "graphgen.top_k": "graphgen_top_k",
}


@dataclass(frozen=True, slots=True)
class KernelLibrary:
    """The kernels of this process.

    Attributes:
        targets: names of custom calls that are there; empty without the library.
        instruction_set: what the kernels use here, such as ``avx512_bf16``.
        missing: why there are none; empty if there are.
        key: names the build and the instruction set, for keys of compiled programs.
        available: the instruction sets that this CPU can run, the best first.
        why_no_matrix_unit: why AMX is not used in this process; empty if it is. It is used only if
            ``GRAPHGEN_ISA`` names it: its instructions have not run yet.
    """

    targets: frozenset[str]
    instruction_set: str
    missing: str
    key: str
    available: tuple[str, ...] = ()
    why_no_matrix_unit: str = ""


@cache
def kernel_library() -> KernelLibrary:
    """Load the kernels and register them with XLA, once; without a library there are none.

    Raises:
        GraphgenError: GG0705 if ``GRAPHGEN_ISA`` names no instruction set of the kernels, or one
            that this CPU lacks.
    """
    names = (*tile_units(), *tuple(instruction_sets())[::-1])
    limit = _limit(names, "of the kernels")
    if os.environ.get(DISABLE):
        return _without(f"{DISABLE} is set")
    if not LIBRARY.is_file():
        return _without(f"they are not built: {BUILD}")
    if not is_current(LIBRARY):
        return _without(f"they are older than their sources, or damaged: {BUILD}")
    try:
        library = ctypes.CDLL(str(LIBRARY))
        found = {target: getattr(library, symbol) for target, symbol in HANDLERS.items()}
        available = tuple(_text(library, "graphgen_instruction_sets").split())
        why = _why_no_amx(library, limit, available)
    except (OSError, AttributeError) as error:
        return _without(f"{LIBRARY.name} cannot be loaded: {error}")
    named = () if why else (AMX,)
    limit = _limit((*named, *available), "of this CPU", EMULATED)
    if named and limit != AMX:
        why = f"it has not been tried yet: {RESTRICT}={AMX} has the kernels use it"
    used = _text(library, "graphgen_use_instruction_set", (limit or available[0]).encode())
    import jax

    for target, handler in found.items():
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    key = f"{_text(library, 'graphgen_sources')}-{used}"
    return KernelLibrary(frozenset(HANDLERS), used, "", key, available, why)


def _why_no_amx(library: ctypes.CDLL, limit: str, available: tuple[str, ...]) -> str:
    """Why AMX cannot be used; empty if it can. The system is asked only if ``limit`` names it.

    Raises:
        GraphgenError: GG0705 if ``limit`` names it and it cannot be used.
    """
    why = _text(library, "graphgen_why_machine_has_no_matrix_unit")
    if not why and AMX_VECTORS not in available:
        why = f"this CPU has no {AMX_VECTORS} beside it"
    if limit != AMX:
        return why
    why = why or _text(library, "graphgen_why_no_matrix_unit")
    if why:
        raise GraphgenError(
            "GG0705",
            f"{RESTRICT}={AMX} cannot be had: {why}",
            help=f"choose one of {', '.join(available)}, or leave {RESTRICT} out for the best one",
        )
    return ""


def _limit(names: tuple[str, ...], whose: str, *others: str) -> str:
    """The value of ``GRAPHGEN_ISA``, one of ``names`` or ``others``; empty if not set (GG0705)."""
    given = os.environ.get(RESTRICT, "")
    if given and given not in (*names, *others):
        raise GraphgenError(
            "GG0705",
            f"{RESTRICT}={given} is not an instruction set {whose}",
            help=f"choose one of {', '.join(names)}, or leave {RESTRICT} out for the best one",
        )
    return given


def _text(library: ctypes.CDLL, symbol: str, *arguments: bytes) -> str:
    """Call a function of the library that takes texts and returns one."""
    function = getattr(library, symbol)
    function.restype = ctypes.c_char_p
    text: bytes = function(*arguments)
    return text.decode()


def _without(reason: str) -> KernelLibrary:
    return KernelLibrary(frozenset(), "", reason, "")
