"""The table of modules that stand in for Neuron's private packages, and of names of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, cast

from graphgen.version import __version__

_HERE: Final = "graphgen.runtime.aws_tnx"
_PYHLO: Final = "graphgen.lowering.pyhlo"


class Home(NamedTuple):
    """The place of an object that a stand-in module offers.

    Attributes:
        module: imported when the stand-in is made.
        name: of the object there; of a table, whose entry of the offered name it is.
    """

    module: str
    name: str


# The names of a module: of each its home, or the value itself; ``*`` for all of a table.
Names = Mapping[str, Home | str | Callable[..., object]]


def serialize_torch(tensor: object) -> object:
    """A constant of torch as it is: PyHLO writes tensors of any library here."""
    return tensor


def _kernels(*names: str) -> Names:
    return dict.fromkeys(names, Home(f"{_HERE}.shim_nki_kernels", "PUBLISHED"))


MODULES: Final[Mapping[str, Names]] = {
    "torch_neuronx": {"__version__": f"0.0.0+graphgen.{__version__}"},
    "torch_neuronx.pyhlo": {},
    "torch_neuronx.pyhlo.xla_data_pb2": {
        "PrimitiveType": Home(f"{_HERE}.shim_element_types", "PRIMITIVE_TYPES"),
        "*": Home(f"{_HERE}.shim_element_types", "NUMBERS"),
    },
    "torch_neuronx.pyhlo.scribe": {
        "HloScribe": Home(_PYHLO, "HloScribe"),
        "HloShape": Home(_PYHLO, "PyHloShape"),
    },
    "torch_neuronx.pyhlo.constant": {},
    "torch_neuronx.pyhlo.constant.serialize_torch": {"serialize_torch": serialize_torch},
    "torch_neuronx.proto": {},
    "torch_neuronx.proto.metaneff_pb2": {
        "MetaTensor": Home(f"{_HERE}.shim_element_types", "MetaTensor")
    },
    "libneuronxla": {
        "neuron_xla_compile": Home(f"{_HERE}.shim_compile_hlo", "neuron_xla_compile"),
    },
    "libneuronxla.neuron_cc_cache": {
        "CacheUrl": Home(f"{_HERE}.shim_compile_hlo", "CacheUrl"),
        "create_compile_cache": Home(f"{_HERE}.shim_compile_hlo", "create_compile_cache"),
    },
    "neuronxcc": {"__version__": f"0.0.0+graphgen.{__version__}"},
    "neuronxcc.nki": {
        "FrameworkKernel": Home(f"{_HERE}.shim_nki_kernels", "FrameworkKernel"),
        "trace": Home(f"{_HERE}.shim_nki_kernels", "trace"),
    },
    "neuronxcc.nki.language": {"bfloat16": "bfloat16"},
    "neuronxcc.nki.kernels": _kernels("flash_fwd"),
    "neuronxcc.nki.kernels.attention": _kernels("flash_fwd", "attention_isa_kernel"),
    "neuronxcc.nki.kernels.cumsum": _kernels("cumsum"),
}
# The packages of these modules.
ROOTS: Final = tuple(name for name in MODULES if "." not in name)
# Operations of torch.ops.neuron and classes of torch.classes.neuron.
OPERATIONS: Final = (
    "_init_neuron", "_to_neuron", "_from_neuron", "_slice_neuron", "_parallel_to_neuron",
    "_parallel_from_neuron", "_parallel_write_neuron", "_parallel_slice_neuron",
    "_parallel_run_neuron", "_parallel_executor_run",
)  # fmt: skip
CLASSES: Final = ("ParallelTensorSet", "ParallelModel", "ParallelExecutor")


def make_module(name: str) -> ModuleType:
    """The stand-in of one module."""
    made = ModuleType(name, "A stand-in of graphgen for a module of AWS's that is not installed.")
    made.__dict__["__graphgen_stand_in__"] = True
    if any(other.startswith(f"{name}.") for other in MODULES):
        made.__path__ = []
    for key, given in MODULES[name].items():
        if not isinstance(given, Home):
            setattr(made, key, given)
            continue
        value = getattr(import_module(given.module), given.name)
        table = cast(Mapping[str, object], value)
        if key == "*":
            made.__dict__.update(table)
        else:
            setattr(made, key, table[key] if given.name == "PUBLISHED" else value)
    return made
