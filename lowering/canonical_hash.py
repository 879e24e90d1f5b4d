"""Canonical hash of a compilation: equal for equal programs on any machine, in any folder.

SHA-256 over exactly the inputs of the compiler's result: the interface of the program in order, its
ops without names and locations, its callees, the aliases of outputs and arguments, the number of
ranks, the target, the compiler's flags and its version. Paths and source lines are not part of it,
so that a checkout in another folder finds the same cache entry. (The hash of AWS's tools is over
the bytes of the protobuf, which hold source lines.)
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.analysis import called, function_fingerprint
from graphgen.ir import Function, Module
from graphgen.lowering.abi import donated

# Increased when equal programs are lowered, or hashed, in another way.
_FORM = "graphgen 1"


@dataclass(frozen=True, slots=True)
class Compilation:
    """Target and compiler of a program.

    Attributes:
        target: ``inf2``, ``trn1``, ``trn2``, ``trn3`` or ``cpu``.
        lnc: physical cores per logical core; 0 where that has no meaning.
        flags: of the compiler, as one text; the number of spaces has no effect.
        compiler: its name and version.
    """

    target: str
    lnc: int = 0
    flags: str = ""
    compiler: str = ""


def canonical_hash(module: Module, function: Function, how: Compilation) -> str:
    """Hash one program of ``module``, compiled as ``how``: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for line in _lines(module, function, how):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(module: Module, function: Function, how: Compilation) -> Iterator[str]:
    yield _FORM
    yield repr((how.target, how.lnc, shlex.split(how.flags), how.compiler))
    yield f"ranks {module.ranks}"
    yield f"aliases {sorted(donated(module, function).items())}"
    yield f"donated {module.meta.get('donated', '')}"
    yield function_fingerprint(function)
    for callee in sorted(called(module, function), key=lambda item: item.name):
        yield f"@{callee.name} {function_fingerprint(callee)}"
