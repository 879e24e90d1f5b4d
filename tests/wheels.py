"""Build the source distribution and the wheels from it, and check them.

    make wheels                       # dist/: an sdist, a wheel a platform, a pure one, the SBOM
    python -m tests.wheels .cache/tools --twice --only x86_64

Kernels are compiled by zig for glibc 2.28, with its static C++ runtime, on whatever machine this
runs. The time of files is that of the last commit, or ``SOURCE_DATE_EPOCH``: equal sources give
equal bytes, which ``--twice`` compares.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.hashed_requirements import ROOT

GLIBC: Final = "2.28"
# Machines that a wheel with kernels is built for; the kernels of "any" are those of XLA.
MACHINES: Final = ("x86_64", "aarch64")
ANY: Final = "any"
# Bytes of a wheel at most: what a user waits for.
LARGEST: Final = 12 << 20
_AVAILABLE: Final = """
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
print(*kernel_library().available)
"""


class WheelError(Exception):
    """A build or a check failed; the message is what the tool printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and check; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tools", type=Path, help="environment with requirements/tools.txt")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--only", choices=(*MACHINES, ANY), help="one wheel, without the others")
    parser.add_argument("--twice", action="store_true", help="build again and compare the bytes")
    args = parser.parse_args(arguments)
    machines = [args.only] if args.only else [*MACHINES, ANY]
    try:
        made = build_all(args.tools.resolve(), args.output, machines)
        if args.twice:
            with tempfile.TemporaryDirectory() as folder:
                compare(made, build_all(args.tools.resolve(), Path(folder), machines))
        check(args.tools.resolve(), made)
    except WheelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.stat().st_size:>10}  {digest(path)}  {path.name}")
    return 0


def build_all(tools: Path, output: Path, machines: Sequence[str]) -> list[Path]:
    """The source distribution, then a wheel for each machine, made from it."""
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch()}
    sdist = hatch("sdist", ROOT, output, environment)
    return [sdist, *[wheel_of(sdist, tools, m, output, environment) for m in machines]]


def wheel_of(
    sdist: Path, tools: Path, machine: str, output: Path, environment: Mapping[str, str]
) -> Path:
    """The wheel of a machine, built in a fresh copy of the sources.

    Raises:
        WheelError: the kernels were not compiled, so that the wheel has another tag.
    """
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (tree,) = Path(folder).iterdir()
        wheel = hatch("wheel", tree, output, {**environment, **compiling(tools, machine)})
    tag = ANY if machine == ANY else platform_of(machine)
    if not wheel.name.endswith(f"-py3-none-{tag}.whl"):
        raise WheelError(f"the kernels of {machine} were not compiled: made {wheel.name}")
    return wheel


def compiling(tools: Path, machine: str) -> dict[str, str]:
    """The environment that chooses the compiler and the tag of a wheel."""
    if machine == ANY:
        return {"CXX": os.path.join(os.sep, "no", "compiler")}
    zig = f"{tools}/bin/python -m ziglang c++ -target {machine}-linux-gnu.{GLIBC}"
    return {"CXX": zig, "GRAPHGEN_WHEEL_PLATFORM": platform_of(machine)}


def platform_of(machine: str) -> str:
    """The platform tag of a machine, such as ``manylinux_2_28_x86_64``."""
    return f"manylinux_{GLIBC.replace('.', '_')}_{machine}"


def hatch(kind: str, tree: Path, output: Path, environment: Mapping[str, str]) -> Path:
    """Build a ``wheel`` or the ``sdist`` of a source tree; returns its file."""
    with tempfile.TemporaryDirectory(dir=output) as folder:
        run(
            [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder],
            tree,
            environment,
        )
        (made,) = Path(folder).iterdir()
        return made.replace(output / made.name)


def check(tools: Path, made: Sequence[Path]) -> None:
    """Judge the files by the tools of the package index, and by their size.

    Raises:
        WheelError: one of them fails.
    """
    wheels = [path for path in made if path.suffix == ".whl"]
    run([f"{tools}/bin/twine", "check", "--strict", *map(str, made)], ROOT)
    run([f"{tools}/bin/check-wheel-contents", *map(str, wheels)], ROOT)
    for wheel in wheels:
        size = wheel.stat().st_size
        if size > LARGEST:
            raise WheelError(f"{wheel.name} has {size} bytes, more than {LARGEST}")
        if wheel.name.endswith(f"{platform.machine()}.whl"):
            check_kernels(wheel)
        for machine in MACHINES:
            if wheel.name.endswith(f"{machine}.whl"):
                shown = run([f"{tools}/bin/auditwheel", "show", str(wheel)], ROOT)
                if not serves(shown, machine):
                    raise WheelError(f"{wheel.name} is not {platform_of(machine)}:\n{shown}")


def check_kernels(wheel: Path) -> None:
    """Compare the instruction sets that a wheel's kernels find on this CPU with the checkout's.

    Raises:
        WheelError: they differ, or the wheel's library is not loaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        of_wheel, of_checkout = (instruction_sets(place) for place in (folder, str(ROOT)))
    if not of_wheel or of_wheel != of_checkout:
        what = f"{wheel.name} has the kernels '{of_wheel}', the checkout '{of_checkout}'"
        raise WheelError(f"{what}: graphgen doctor --build-kernels")


def instruction_sets(place: str) -> str:
    """The instruction sets of the kernels of a package in a folder, with this CPU."""
    environment = {**os.environ, "PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as elsewhere:
        return run([sys.executable, "-c", _AVAILABLE], Path(elsewhere), environment).strip()


def serves(shown: str, machine: str) -> bool:
    """True if ``auditwheel show`` names the stated platform, or one of an older glibc."""
    found = re.search(rf'"manylinux_(\d+)_(\d+)_{machine}"', " ".join(shown.split()))
    stated = tuple(map(int, GLIBC.split(".")))
    return found is not None and (int(found[1]), int(found[2])) <= stated


def compare(first: Sequence[Path], second: Sequence[Path]) -> None:
    """Compare two builds byte for byte.

    Raises:
        WheelError: a file differs.
    """
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise WheelError(f"two builds of {one.name} differ")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def epoch() -> str:
    """Seconds since 1970 that files are dated with."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run(["git", "log", "-1", "--format=%ct"], ROOT).strip()


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints.

    Raises:
        WheelError: it fails.
    """
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise WheelError(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
