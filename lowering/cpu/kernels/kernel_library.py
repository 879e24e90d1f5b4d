"""The library of kernels: find it, load it, and tell XLA the names of its custom calls."""

# jax.ffi carries no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Final

from graphgen.lowering.cpu.kernels.build_kernels import LIBRARY, is_current

BUILD: Final = "graphgen doctor --build-kernels"

# Set to leave the kernels out, as on a machine without a compiler.
DISABLE: Final = "GRAPHGEN_NO_KERNELS"
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
        instruction_set: what the kernels use on this CPU, such as ``avx512_bf16``.
        missing: why there are none; empty if there are.
        key: names the build, for keys of compiled programs.
    """

    targets: frozenset[str]
    instruction_set: str
    missing: str
    key: str


@cache
def kernel_library() -> KernelLibrary:
    """Load the kernels and register them with XLA, once; without a library there are none."""
    if os.environ.get(DISABLE):
        return _without(f"{DISABLE} is set")
    if not LIBRARY.is_file():
        return _without(f"they are not built: {BUILD}")
    if not is_current(LIBRARY):
        return _without(f"they are older than their sources, or damaged: {BUILD}")
    try:
        library = ctypes.CDLL(str(LIBRARY))
        found = {target: getattr(library, symbol) for target, symbol in HANDLERS.items()}
    except (OSError, AttributeError) as error:
        return _without(f"{LIBRARY.name} cannot be loaded: {error}")
    import jax

    for target, handler in found.items():
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    used, key = (_text(library, f"graphgen_{name}") for name in ("instruction_set", "sources"))
    return KernelLibrary(frozenset(HANDLERS), used, "", key)


def _text(library: ctypes.CDLL, symbol: str) -> str:
    """Call a function of the library that takes nothing and returns text."""
    function = getattr(library, symbol)
    function.restype = ctypes.c_char_p
    text: bytes = function()
    return text.decode()


def _without(reason: str) -> KernelLibrary:
    return KernelLibrary(frozenset(), "", reason, "")
