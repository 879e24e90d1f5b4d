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

from graphgen.analysis import function_fingerprint
from graphgen.ir import Attrs, Function, Module
from lowering.stablehlo.emit import donated

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
    for name in sorted(_called(module, function)):
        yield f"@{name} {function_fingerprint(module.function(name))}"


def _called(module: Module, function: Function) -> set[str]:
    """Functions that an op of this one names, and those that they name."""
    found: set[str] = set()
    work = [function]
    seen: set[Attrs] = set()
    while work:
        for op in work.pop().block:
            if op.attrs in seen:
                continue
            seen.add(op.attrs)
            for value in op.attrs.values():
                if isinstance(value, str) and value in module.functions and value not in found:
                    found.add(value)
                    work.append(module.function(value))
    return found
