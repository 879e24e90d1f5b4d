"""Locate the installed ``neuronx-cc`` and query its version."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.lowering.neuronx_cc.compiler_failure import log_tail

PROGRAM = "neuronx-cc"
_VERSION = re.compile(r"\b(\d+\.\d+\.\d+(?:\.\d+)?(?:\+\w+)?)")
_SECONDS = 120
_INSTALL = (
    "it is in AWS's package repository (pip.repos.neuron.amazonaws.com), not on PyPI; "
    "--dry-run writes HLO and command lines without it, --compiler PATH names another one"
)


@dataclass(frozen=True, slots=True)
class NeuronCompiler:
    """An executable of the compiler.

    Attributes:
        path: of the executable.
        version: as it says it, such as ``2.27.5334.0+abcdef01``.
        stamp: size and time of the executable; another one after an upgrade.
    """

    path: Path
    version: str
    stamp: tuple[int, int]

    def is_same(self) -> bool:
        """False if the executable has been replaced since its version was read."""
        try:
            return _stamp(self.path) == self.stamp
        except OSError:
            return False


def find_compiler(name: str = "", environment: Mapping[str, str] | None = None) -> NeuronCompiler:
    """Find the compiler and ask for its version.

    Args:
        name: of the executable, or a path; by default ``neuronx-cc`` on ``PATH``.
        environment: of the process; by default that of this one.

    Raises:
        GraphgenError: GG1001 if there is none, it does not run, or says no version.
    """
    search = None if environment is None else environment.get("PATH")
    found = shutil.which(name or PROGRAM, path=search)
    if found is None and name and Path(name).exists():
        folder = Path(name).is_dir()
        what = f"{name} is {'a folder' if folder else 'not executable'}"
        help = "give the executable in it" if folder else f"chmod +x {name}"
        raise GraphgenError("GG1001", what, help=help)
    if found is None:
        raise GraphgenError("GG1001", f"there is no {name or PROGRAM} here", help=_INSTALL)
    path = Path(found).resolve()
    text = _ask(path, environment)
    version = _VERSION.search(text)
    if version is None:
        raise GraphgenError(
            "GG1001",
            f"{found} --version says no version",
            note=log_tail(text, 5),
            help=_INSTALL,
        )
    return NeuronCompiler(path, version[1], _stamp(path))


def _ask(path: Path, environment: Mapping[str, str] | None) -> str:
    try:
        ran = subprocess.run(
            [str(path), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer in {_SECONDS} s"
        raise GraphgenError(
            "GG1001", f"{path} --version cannot be run: {reason}", help=_INSTALL
        ) from error
    text = ran.stdout.decode("utf-8", "replace")
    if ran.returncode:
        # The packages of these names on PyPI hold one line: the wrong package.
        raise GraphgenError(
            "GG1001",
            f"{path} --version ends with status {ran.returncode}",
            note=log_tail(text, 5),
            help=_INSTALL,
        )
    return text


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
