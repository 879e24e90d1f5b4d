"""The packages and variables that programs need on a machine with Neuron devices."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points

from graphgen.errors import GraphgenError
from graphgen.lowering.cpu import pjrt
from graphgen.runtime.artifact.device_folder import ENVIRONMENT, DeviceFolder

PLATFORM, HOOK = "neuron", "libneuronxla"


def require_device(folder: DeviceFolder, environment: Mapping[str, str]) -> None:
    """Refuse a machine that cannot run a folder, with everything that is missing.

    Args:
        folder: of compiled programs.
        environment: of this process.

    Raises:
        GraphgenError: GG1005, for packages or variables.
    """
    packages = [*missing_packages()]
    if packages:
        raise GraphgenError(
            "GG1005",
            f"programs cannot be loaded on a Neuron device here: {', '.join(packages)}",
            help="install them from AWS's package repository (pip.repos.neuron.amazonaws.com)",
        )
    wrong = [*wrong_variables(folder, environment)]
    if wrong:
        raise GraphgenError(
            "GG1005",
            f"{len(wrong)} variables are not as the programs need them",
            note="\n".join(wrong),
            help=f"read {folder.path / ENVIRONMENT} in the shell before: . {ENVIRONMENT}",
        )


def require_cores(ranks: int) -> None:
    """Refuse a platform in use with fewer devices than ranks (GG1005)."""
    found = len(pjrt.devices(ranks))
    if found < ranks:
        raise GraphgenError(
            "GG1005",
            f"{ranks} cores are needed, and {found} are seen",
            help="NEURON_RT_NUM_CORES says how many a process takes",
        )


def missing_packages() -> Iterator[str]:
    """The parts of AWS's runtime for JAX that are not installed."""
    if importlib.util.find_spec(HOOK) is None:
        yield f"the package {HOOK} is missing"
    if not _has_plugin():
        yield "jax-neuronx is missing: no plugin of JAX is for the platform neuron"


def _has_plugin() -> bool:
    """True if JAX would find a plugin with neuron in its name."""
    if any(PLATFORM in f"{item.name} {item.value}" for item in entry_points(group="jax_plugins")):
        return True
    from pkgutil import iter_modules

    try:
        import jax_plugins  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return any(PLATFORM in item.name for item in iter_modules(jax_plugins.__path__))  # pyright: ignore


def wrong_variables(folder: DeviceFolder, environment: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable of ``env.sh`` that is missing or has another value."""
    wanted = folder.manifest.get("environment")
    for name, value in wanted.items() if isinstance(wanted, Mapping) else ():  # pyright: ignore
        found = environment.get(str(name))  # pyright: ignore[reportUnknownArgumentType]
        if found is None:
            yield f"{name} is missing: {value}"
        elif found != str(value):  # pyright: ignore[reportUnknownArgumentType]
            yield f"{name} is {found}, not {value}"
