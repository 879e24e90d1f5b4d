"""Table of the custom calls that can be run here; any other is refused before it is run.

A file names functions of the process that wrote it. XLA calls whatever it finds under a name, and
what it finds may expect pointers that were never set. NumPy and XLA both ask this table.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.ops.custom_calls import NKI


class RunsOn(Enum):
    """Engines that run the calls of a target."""

    EVERYTHING = "NumPy and XLA"
    NUMPY = "NumPy"
    XLA = "XLA"


# The one that XLA itself removes.
PARTITIONER_MARKER: Final = "Sharding"
# Statements of a sharding, whose results are their operands.
SHARDING_MARKERS: Final = (
    PARTITIONER_MARKER,
    "sdy.reshard",
    "sdy.propagation_barrier",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.PropagationBarrier",
)
# Those that XLA's partitioner removes.
_OF_PARTITIONER: Final = (
    PARTITIONER_MARKER,
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
)
# Boundaries and transfers of Neuron's compiler, whose results are their operands.
NEURON_MARKERS: Final = (
    "AwsNeuronTransferWithStaticRing",
    *(
        f"AwsNeuronModuleMarker{end}-{way}"
        for end in ("Start", "End")
        for way in ("Forward", "Backward")
    ),
    "NeuronBoundaryMarker-Start",
    "NeuronBoundaryMarker-End",
)
_NEURON_KERNELS = (
    "AwsNeuronRmsNorm",
    "AwsNeuronSoftmax",
    "AwsNeuronTopK",
    "AwsNeuronArgMax",
    "AwsNeuronArgMin",
    "AwsNeuronGelu",
    "AwsNeuronGeluApprxTanh",
    "AwsNeuronSilu",
    NKI,
)
_NEURON_IN_NUMPY = ("AwsNeuronSoftmaxBackward", "AwsNeuronErf")
# Routines of LAPACK in jaxlib, by the letter of the element type and the routine.
_REAL_OR_COMPLEX = (
    *("gees", "geev", "gehrd", "geqp3", "geqrf", "gesdd"),
    *("gesvd", "getrf", "gtsv", "potrf", "trsm"),
)
LAPACK: Final = frozenset(
    f"lapack_{kind}{routine}_ffi"
    for kinds, routines in (
        ("sdcz", _REAL_OR_COMPLEX),
        ("sd", ["orgqr", "ormqr", "syevd", "sytrd"]),
        ("cz", ["ungqr", "unmqr", "heevd", "hetrd"]),
    )
    for kind, routine in product(kinds, routines)
) | {"tridiagonal_solve_perturbed_ffi"}
_KERNELS = ["adapted_linear", "attention", "cache_write", "linear", "norm", "rope", "top_k"]
OWN_KERNELS: Final = frozenset(f"graphgen.{name}" for name in _KERNELS)

ADMITTED: Final = {
    **dict.fromkeys((*SHARDING_MARKERS, *NEURON_MARKERS, *_NEURON_KERNELS), RunsOn.EVERYTHING),
    **dict.fromkeys(_NEURON_IN_NUMPY, RunsOn.NUMPY),
    **dict.fromkeys((*LAPACK, *OWN_KERNELS), RunsOn.XLA),
}


def only_xla_runs(target: str) -> bool:
    """True for a target that XLA can run, and NumPy cannot."""
    return ADMITTED.get(target) is RunsOn.XLA


def xla_has(target: str) -> bool:
    """True for a target that XLA and jaxlib have of themselves, so that a file may name it."""
    return target in LAPACK or target in _OF_PARTITIONER


def is_marker(target: str) -> bool:
    """True for a call whose results are its operands."""
    return target in SHARDING_MARKERS or target in NEURON_MARKERS


def refused_call(op: Op, target: str) -> GraphgenError:
    """The error (GG0403) for a call of ``target`` that cannot be run."""
    where = repr(op.loc)
    names = ", ".join(f"%{result.name}" for result in op.results if result.name)
    if names:
        where = f"{where}, {names}"
    what = f"custom_call {target} cannot be run here"
    help = "graphgen slice writes the part of the program before it, which can be run"
    if only_xla_runs(target):
        help = "run it with XLA: graphgen run --on cpu"
    elif "callback" in target:
        what += ": it calls Python code of the process that wrote the file"
    return GraphgenError("GG0403", what, where=where, help=help)
