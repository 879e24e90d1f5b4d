"""One key for a compiled program: equal wherever, whenever and by whom the program was made.

SHA-256 over what the compiler's result depends on and nothing else: the interface of the program in
order, its ops without names and places, the functions it calls, which outputs share the buffers of
which arguments, how many ranks there are, the target, the compiler's flags and its version. No path
and no source line is part of it, so a checkout in another folder finds what was compiled in this
one. (The hash AWS's tools use is over the bytes of the protobuf, which hold source lines.)
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.analysis import called, function_fingerprint
from graphgen.ir import Function, Module
from graphgen.lowering.abi import donated

# Goes up when the same program is written, or keyed, in another way.
_FORM = "graphgen 1"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a program is compiled with.

    Attributes:
        target: ``inf2``, ``trn1``, ``trn2``, ``trn3`` or ``cpu``.
        lnc: physical cores of a logical core; 0 where that has no meaning.
        flags: of the compiler, as one text; spaces between them make no difference.
        compiler: its name and version.
    """

    target: str
    lnc: int = 0
    flags: str = ""
    compiler: str = ""


def canonical_hash(module: Module, function: Function, how: Compilation) -> str:
    """64 hexadecimal digits for one program of ``module``, compiled like that."""
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
