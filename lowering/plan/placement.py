"""Several models on one instance: cores, memory and threads of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plan.capacity_plan import Degree, degrees_up_to_choice
from graphgen.targets import Accelerator, accelerator
from graphgen.targets.accelerator import accelerator_names


@dataclass(frozen=True, slots=True)
class WantedModel:
    """A model that is to be placed.

    Attributes:
        name: of the process that runs it, unique.
        config: a ``config.json``; Hugging Face's names.
        demand: the configuration to compile for.
        tp: ranks; 0 for the fewest that serve.
    """

    name: str
    config: Mapping[str, object]
    demand: CompileConfig
    tp: int = 0


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A model on its cores.

    Attributes:
        name: as wanted.
        first: number of its first logical core; it has as many as ranks, one after the other.
        degree: ranks, and what each core holds.
        threads: of the host.
    """

    name: str
    first: int
    degree: Degree
    threads: int

    @property
    def last(self) -> int:
        """Number of its last logical core."""
        return self.first + self.degree.tp - 1

    def variables(self, lnc: int) -> Mapping[str, str]:
        """The environment of its process, by AWS's names.

        Args:
            lnc: physical cores per logical core.
        """
        cores = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return {
            "NEURON_RT_VISIBLE_CORES": cores,
            "NEURON_RT_VIRTUAL_CORE_SIZE": str(lnc),
            "NEURON_LOGICAL_NC_CONFIG": str(lnc),
            "OMP_NUM_THREADS": str(self.threads),
        }


@dataclass(frozen=True, slots=True)
class Placement:
    """Models on the cores of one instance.

    Attributes:
        instance: its type.
        device: its accelerator.
        models: in the order of their cores.
        free: logical cores that none has.
    """

    instance: str
    device: Accelerator
    models: tuple[PlacedModel, ...]
    free: int

    def to_json(self) -> dict[str, Json]:
        """The models with their cores and environment, and the device, by name."""
        models: list[Json] = [
            {
                "name": model.name,
                "tp": model.degree.tp,
                "cores": [model.first, model.last],
                "bytes_per_core": model.degree.needs,
                "threads": model.threads,
                "environment": dict(model.variables(self.device.lnc)),
            }
            for model in self.models
        ]
        return {
            "instance": self.instance,
            "target": self.device.name,
            "lnc": self.device.lnc,
            "core_bytes": self.device.hbm_bytes,
            "free_cores": self.free,
            "models": models,
        }


def device_of(instance: str, lnc: int = 0) -> Accelerator:
    """The accelerator of an instance type (GG0302 for an unknown one)."""
    devices = [accelerator(name) for name in accelerator_names()]
    for device in devices:
        if instance in device.instances:
            return accelerator(device.name, lnc)
    known = sorted({name for device in devices for name in device.instances})
    raise GraphgenError(
        "GG0302", f"unknown instance '{instance}'", help=f"there are {', '.join(known)}"
    )


def place(wanted: Sequence[WantedModel], instance: str, threads: int, lnc: int = 0) -> Placement:
    """Give each model cores of its own, those of more ranks first, and its share of the threads.

    A model begins at a multiple of its ranks, or of the cores of a chip if they are fewer, so that
    its ranks are on as few chips as possible. Threads are shared by ranks.

    Args:
        wanted: the models.
        instance: the type of instance.
        threads: that the host has, at least one for each model.
        lnc: physical cores per logical core; 0 for the device's default.

    Raises:
        GraphgenError: GG1006 where a model fits no number of cores, or all of them too few, or
            threads are too few; GG0302 for an unknown instance.
    """
    device = device_of(instance, lnc)
    cores = device.cores(instance)
    looked = [degrees_up_to_choice(item.config, device, item.demand, item.tp) for item in wanted]
    chosen = [_chosen(item, device, found) for item, found in zip(wanted, looked, strict=True)]
    degrees = {item.name: degree for item, degree in zip(wanted, chosen, strict=True)}
    order = sorted(wanted, key=lambda item: -degrees[item.name].tp)
    total = sum(degree.tp for degree in degrees.values())
    if threads < len(wanted):
        raise GraphgenError(
            "GG1006",
            f"{len(wanted)} models and {threads} threads: each process needs one",
            help="give --threads, the number of CPUs of the instance",
        )
    first, placed = 0, list[PlacedModel]()
    for item in order:
        degree = degrees[item.name]
        step = min(degree.tp, device.cores_per_chip)
        first = -(-first // step) * step
        # One each, and the others by ranks: never more than there are.
        share = 1 + (threads - len(wanted)) * degree.tp // total
        placed.append(PlacedModel(item.name, first, degree, share))
        first += degree.tp
    if first > cores:
        raise _too_few(placed, instance, cores)
    return Placement(instance, device, tuple(placed), cores - total)


def _chosen(item: WantedModel, device: Accelerator, found: Sequence[Degree]) -> Degree:
    """The ranks of a model, which fits on them (GG1006)."""
    if found[-1].serves:
        return found[-1]
    why = found[-1].why_not if item.tp else _reasons(found)
    raise GraphgenError(
        "GG1006",
        f"{item.name} does not fit {device.name}: {why}",
        help="give it more ranks (tp), fewer rows (batch) or shorter sequences (seq)",
    )


def _reasons(found: Sequence[Degree]) -> str:
    return "; ".join(f"tp {item.tp}: {item.why_not}" for item in found[-2:])


def _too_few(placed: Sequence[PlacedModel], instance: str, cores: int) -> GraphgenError:
    parts = ", ".join(f"{item.name} {item.degree.tp}" for item in placed)
    last = placed[-1].last + 1
    return GraphgenError(
        "GG1006",
        f"{instance} has {cores} logical cores, and the models need {last}: {parts}",
        help="give some of them fewer ranks (tp), or another instance",
    )
