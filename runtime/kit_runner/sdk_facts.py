"""The versions of the SDK that is installed, and the kind of machine."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from graphgen.runtime.kit_runner.kit_types import SdkFacts

_VERSION = re.compile(r"\b(\d+\.\d+\.\d+(?:\.\d+)?(?:\+\w+)?)")
_INSTANCE = re.compile(r"^(?:trn|inf)\d\w*\.\w+$")
_PACKAGES = (
    *("neuronx-cc", "libneuronxla", "jax-neuronx", "torch-neuronx", "neuronx-distributed"),
    *("neuronx-distributed-inference", "nki", "jax", "torch"),
)
TARGETS = {"inf2": "inf2", "trn1": "trn1", "trn1n": "trn1", "trn2": "trn2", "trn2u": "trn2"}


class NoCompilerError(Exception):
    """The compiler is missing, or does not say its version."""


def find_compiler(name: str) -> tuple[str, str]:
    """The path of the compiler and its version (NoCompilerError)."""
    path = shutil.which(name)
    if path is None:
        raise NoCompilerError(
            f"there is no {name} on PATH: activate the environment of the Neuron SDK first, "
            "or name the compiler with --compiler"
        )
    try:
        ran = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompilerError(f"{name} --version cannot be run: {error}") from error
    found = _VERSION.search(ran.stdout.decode("utf-8", "replace"))
    if ran.returncode or found is None:
        raise NoCompilerError(
            f"{name} --version ends with status {ran.returncode} and says no version: "
            "the package of this name on PyPI is not the compiler"
        )
    return path, found[1]


def instance_type() -> str:
    """The type of the machine, such as ``trn2.48xlarge``; empty if it is none of AWS's."""
    found = _first_line("/sys/devices/virtual/dmi/id/product_name")
    return found if _INSTANCE.match(found) else ""


def target_of(instance: str) -> str:
    """The target of a type of machine; empty if it is not known."""
    return TARGETS.get(instance.partition(".")[0], "")


def sdk_facts(compiler: str, execution: str, why_compile_only: str) -> SdkFacts:
    """The versions of what is installed."""
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "compiler": compiler,
        "driver": _first_line("/sys/module/neuron/version"),
        "instance": instance_type(),
        "python": platform.python_version(),
        "packages": packages,
        "execution": execution,
        "why_compile_only": why_compile_only,
    }


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip().partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""
