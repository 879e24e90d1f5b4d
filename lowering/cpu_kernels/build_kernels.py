"""Build the library of kernels with the C++ compiler of this machine.

    python lowering/cpu_kernels/build_kernels.py
    graphgen doctor --build-kernels
    CXX='python -m ziglang c++ -target aarch64-linux-gnu.2.28' python .../build_kernels.py

The same source is compiled once per instruction set and matrix unit. The file ends with a digest of
the sources and of all bytes before it: a library that is older than its sources or was changed is
not loaded. Only the standard library is imported, since a build of the package runs this file
before anything is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
LIBRARY: Final = FOLDER / "libgraphgen_kernels.so"
COMPILERS: Final = ("g++", "clang++", "c++")
OPTIONS: Final = (
    *("-std=c++17", "-O3", "-fPIC", "-fno-math-errno"),
    # Writes beyond a buffer on the stack, or by a function of libc, end the process.
    *("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    # Two 16-bit floats are read as one word.
    "-fno-strict-aliasing",
    # a * b + c is one instruction; results do not depend on the order of anything else.
    "-ffp-contract=fast",
    *("-Wall", "-Wno-psabi", "-Wno-ignored-attributes"),
    # GCC's own headers read undefined registers on purpose.
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"),
)
# Without symbols and the number of a build, equal sources give equal bytes.
LINKED: Final = ("-shared", "-s", "-Wl,--build-id=none")
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mprfchw")
_WIDE = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", *_AVX2)
_NARROW = (*_WIDE, "-mavx512bf16", "-mavx512vnni")
_ARM, _ARM_OF_ZIG = "-march=armv8.2-a", "-mcpu=generic"
# Options of the file that is compiled for each instruction set, by machine.
INSTRUCTION_SETS: Final = {
    "x86_64": {
        "baseline": (),
        "avx2": _AVX2,
        "avx512": _WIDE,
        "avx512_bf16": _NARROW,
    },
    # The baseline has NEON.
    "aarch64": {
        "baseline": (),
        "neon_dotprod": (f"{_ARM}+dotprod",),
        "neon_bf16": (f"{_ARM}+dotprod+bf16",),
    },
}
# The same of the file that is compiled for each matrix unit.
TILE_UNITS: Final = {"x86_64": {"amx": (*_NARROW, "-mamx-tile", "-mamx-bf16", "-mamx-int8")}}
# An emulation of AMX for any machine: slow, to be compared with.
EMULATED: Final = "amx_emulated"


class BuildError(Exception):
    """The kernels cannot be built; the message says why and what to do."""


def compiler() -> str | None:
    """The C++ compiler: ``$CXX``, or the first that is installed; ``None`` without one.

    As in make, ``$CXX`` may hold options after the command.
    """
    given = os.environ.get("CXX")
    if given:
        return given
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def source_files() -> list[Path]:
    """The C++ sources beside this script."""
    return sorted([*FOLDER.glob("*.cc"), *FOLDER.glob("*.h")])


def sources_digest() -> str:
    """SHA-256 of the C++ sources and this script, shortened."""
    digest = hashlib.sha256()
    for path in sorted([*source_files(), Path(__file__).resolve()]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def is_current(library: Path = LIBRARY) -> bool:
    """True where the library is there, is that of these sources, and no byte was changed."""
    if not library.is_file():
        return False
    linked = max(library.stat().st_size - _SEAL, 0)
    with library.open("rb") as file:
        # In parts: opening a model must not hold the library's bytes.
        parts = iter(lambda: file.read(min(_PART, linked - file.tell())), b"")
        return seal(parts) == file.read()


# Bytes that seal() returns, and bytes that are hashed at a time.
_SEAL: Final = 64
_PART: Final = 1 << 18


def seal(linked: Iterable[bytes]) -> bytes:
    """The end of a library's file: SHA-256 of the sources' digest and the linked bytes, in hex.

    Loaders of libraries ignore bytes after the last section.
    """
    digest = hashlib.sha256(sources_digest().encode() + b"\0")
    for part in linked:
        digest.update(part)
    return digest.hexdigest().encode()


def ffi_headers() -> Path:
    """The folder of XLA's headers, which jaxlib brings.

    Raises:
        BuildError: jaxlib is not installed.
    """
    found = importlib.util.find_spec("jaxlib")
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise BuildError("XLA's headers are missing: install jaxlib")
    return Path(places[0]) / "include"


def machine_of(cxx: str) -> str:
    """The machine that a compiler makes code for, such as ``aarch64``.

    Read from its predefined macros, which GCC, clang and zig print alike, cross compilers too. A
    compiler that names neither machine is taken for one of this machine's.
    """
    try:
        macros = _run([*shlex.split(cxx), "-dM", "-E", "-x", "c++", os.devnull])
    except BuildError:
        # Its first compilation fails with the reason.
        return platform.machine()
    named = (name for name in ("x86_64", "aarch64") if f"#define __{name}__ " in macros)
    return next(named, platform.machine())


def instruction_sets(machine: str = platform.machine()) -> dict[str, tuple[str, ...]]:
    """The compiler's options for each instruction set of a machine, by default this one."""
    return dict(INSTRUCTION_SETS.get(machine, {"baseline": ()}))


def tile_units(machine: str = platform.machine()) -> dict[str, tuple[str, ...]]:
    """The same for each matrix unit, of which the last is emulated and runs on any machine."""
    return {**TILE_UNITS.get(machine, {}), EMULATED: ()}


def compile_commands(cxx: str, options: Sequence[str], folder: Path) -> dict[Path, list[str]]:
    """The command that makes each object file.

    Args:
        cxx: the compiler.
        options: for every file.
        folder: where the object files go.
    """
    commands: dict[Path, list[str]] = {}
    command = shlex.split(cxx)
    machine = machine_of(cxx)
    of_zig = any(Path(word).name in ("zig", "ziglang") for word in command)
    variants = {
        "instruction_set.cc": ("GRAPHGEN_ISA", instruction_sets(machine)),
        "tile_unit.cc": ("GRAPHGEN_TILES", tile_units(machine)),
    }
    for file, (space, named) in variants.items():
        for name, own in named.items():
            target = folder / f"{name}.o"
            # zig knows no architecture of ARM by name, but features of a CPU.
            spelled = [each.replace(_ARM, _ARM_OF_ZIG) if of_zig else each for each in own]
            words = (*options, *spelled, f"-D{space}={name}", "-c", str(FOLDER / file))
            commands[target] = [*command, *words, "-o", str(target)]
    for source in sorted(FOLDER.glob("*.cc")):
        if source.name not in variants:
            target = folder / f"{source.stem}.o"
            commands[target] = [*command, *options, "-c", str(source), "-o", str(target)]
    return commands


def build(library: Path = LIBRARY) -> Path:
    """Compile and link the library; an older one is replaced whole.

    Args:
        library: the file to write.

    Raises:
        BuildError: the compiler or a header is missing, the compiler fails, or the library cannot
            be written.
    """
    cxx = compiler()
    if cxx is None:
        raise BuildError("there is no C++ compiler: install g++ or clang++, or set CXX")
    try:
        return _build(cxx, library)
    except OSError as error:
        raise BuildError(f"cannot write {library}: {error.strerror}") from error


def _build(cxx: str, library: Path) -> Path:
    headers = ("-isystem", str(ffi_headers()))
    digest = f'-DGRAPHGEN_SOURCES="{sources_digest()}"'
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".kernels-") as folder:
        objects = Path(folder)
        commands = compile_commands(cxx, (*OPTIONS, digest, *headers), objects)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(_run, commands.values()))
        made = objects / library.name
        _run([*shlex.split(cxx), *LINKED, "-o", str(made), *map(str, commands)])
        linked = made.read_bytes()
        with made.open("ab") as file:
            file.write(seal([linked]))
        made.replace(library)
    return library


def _run(command: Sequence[str]) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from error
    if ran.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{ran.stderr.strip()}")
    return ran.stdout


def main() -> int:
    """Build, unless the library is that of these sources; returns the exit code."""
    if is_current():
        return 0
    try:
        build()
    except BuildError as error:
        print(f"note: no kernels for this CPU, XLA's are used, which are slower: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
