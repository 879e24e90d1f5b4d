"""Environment variables of AWS's libraries, and their effect here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from graphgen.errors import GraphgenError, printable
from graphgen.runtime.aws_config.attribute import (
    CompilerArgument,
    Effect,
    NoEffect,
    PartOf,
    RunTimeSetting,
)
from graphgen.runtime.aws_config.strict_config import CPU
from graphgen.runtime.distributed.launch_plan import number_of
from graphgen.runtime.distributed.process_group import PLACE


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable of the process.

    Attributes:
        name: of the variable.
        source: number of its row in the table of features.
        doc: a noun phrase, AWS's meaning.
        effect: the effect here.
        device: read where programs are compiled for a Neuron target, and not on the CPU.
    """

    name: str
    source: str
    doc: str
    effect: Effect
    device: bool = False


_NO_DEVICE = NoEffect("no Neuron device runs programs here")
_NO_XLA = NoEffect("programs are written without torch-xla")
_F8 = NoEffect("the pass f8-formats writes 8-bit floats in the device's format")
_VLLM = NoEffect("vLLM's scheduler and sampler decide, where it runs graphgen's programs")
_FRAMEWORK = NoEffect("graphgen is the framework; unknown names are refused in vLLM")
_ARTIFACT = RunTimeSetting(
    "the artifact that vLLM and graphgen serve start from, written if it is not there"
)
_OWN = NoEffect("it is left to vLLM and to clients, which read it themselves")
_CAPTURE = RunTimeSetting("files of program inputs, which graphgen run replays")
_RANKS = NoEffect("one process holds all ranks")
_NODES = NoEffect("one process holds all ranks; parts of them are refused outside graphgen launch")
_NEURONX_CC = NoEffect("it is left to neuronx-cc, which inherits it")


def _row(
    source: str, doc: str, effect: Effect, *names: str, device: bool = False
) -> tuple[EnvironmentVariable, ...]:
    return tuple(EnvironmentVariable(name, source, doc, effect, device) for name in names)


VARIABLES: tuple[EnvironmentVariable, ...] = (
    *_row(
        "E01",
        "physical cores of a logical one; replaces logical_nc_config",
        CompilerArgument("--lnc"),
        "NEURON_LOGICAL_NC_CONFIG",
        device=True,
    ),
    *_row("E02", "scalars that 8-bit floats need", _F8, "XLA_HANDLE_SPECIAL_SCALAR"),
    *_row("E03", "8-bit floats of another range", _F8, "UNSAFE_FP8FNCAST"),
    *_row("E04", "LNC of the device's runtime", _NO_DEVICE, "NEURON_RT_VIRTUAL_CORE_SIZE"),
    *_row(
        "E05",
        "cores that a process sees",
        _NO_DEVICE,
        "NEURON_RT_NUM_CORES",
        "NEURON_RT_VISIBLE_CORES",
    ),
    *_row("E06", "seconds until a launch fails", _NO_DEVICE, "NEURON_RT_EXEC_TIMEOUT"),
    *_row("E07", "the device's profiler", _NO_DEVICE, "NEURON_RT_INSPECT_ENABLE"),
    *_row("E08", "the framework in vLLM", _FRAMEWORK, "VLLM_NEURON_FRAMEWORK"),
    *_row(
        "E09",
        "folder of compiled programs for vLLM",
        _ARTIFACT,
        "NEURON_COMPILED_ARTIFACTS",
    ),
    *_row(
        "E10", "clients and servers", _OWN, "VLLM_RPC_TIMEOUT", "OPENAI_API_BASE", "OPENAI_API_KEY"
    ),
    *_row(
        "E11",
        "the device's scratchpad",
        _NO_DEVICE,
        "NEURON_RT_DBG_SCRATCHPAD_ON_SINGLE_CORE",
        "NEURON_SCRATCHPAD_PAGE_SIZE",
    ),
    *_row(
        "E12",
        "asynchronous launches",
        _NO_DEVICE,
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS",
        "NEURON_RT_IO_RING_CACHE_SIZE",
    ),
    *_row(
        "E13",
        "folder of temporary files",
        RunTimeSetting("folder in which compile() runs neuronx-cc and leaves the logs of failures"),
        "BASE_COMPILE_WORK_DIR",
    ),
    *_row("E14", "execution on the CPU", NoEffect("it always is on the CPU"), "NXD_CPU_MODE"),
    *_row(
        "E15",
        "the device to compile for",
        PartOf("NeuronConfig.logical_nc_config"),
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        device=True,
    ),
    *_row(
        "E16",
        "files of a call's inputs",
        _CAPTURE,
        "NXD_INFERENCE_CAPTURE_SNAPSHOT",
        "NXD_INFERENCE_CAPTURE_OUTPUT_PATH",
        "NXD_INFERENCE_CAPTURE_OUTPUT_FORMAT",
        "NXD_INFERENCE_CAPTURE_AT_REQUESTS",
        "NXD_INFERENCE_CAPTURE_FOR_TOKENS",
    ),
    *_row("E17", "tokens of collectives", _NEURONX_CC, "DISABLE_NUMERIC_CC_TOKEN"),
    *_row(
        "E18",
        "layouts of weights",
        NoEffect("weights are laid out by programs of the artifact"),
        "NXD_LAYOUT_TRANSFORMATION_OPTIONS",
    ),
    *_row(
        "E19",
        "choices of the older library",
        _NO_XLA,
        "NEURON_COMBINE_KV_ALLOCATIONS",
        "NEURON_EXPERIMENTAL_COMPRESS_RG",
        "NEURON_FLOAT4X4_IS_FLOAT16",
    ),
    *_row(
        "E20",
        "arguments of neuronx-cc",
        RunTimeSetting("merged over those of the configuration"),
        "NEURON_CC_FLAGS",
        device=True,
    ),
    *_row(
        "E20",
        "form of checkpoints",
        NoEffect("a checkpoint's form is read from its files"),
        "CHECKPOINT_FORMAT",
    ),
    *_row(
        "E20",
        "processes of a distributed run",
        _RANKS,
        "NEURON_RT_ROOT_COMM_ID",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
    ),
    *_row(
        "E20",
        "nodes of a distributed run",
        _NODES,
        "NEURON_RANK_ID",
        "NEURON_LOCAL_TP",
        "NEURON_PP_STAGES",
        "CPU_COMM_ID",
    ),
    *_row(
        "E20",
        "threads of the host",
        NoEffect("XLA and graphgen's kernels have threads of their own"),
        "OMP_NUM_THREADS",
    ),
    *_row(
        "E21",
        "choices of the vLLM plugin",
        _VLLM,
        "NEURON_ON_DEVICE_SAMPLING_DISABLED",
        "DISABLE_NEURON_CUSTOM_SCHEDULER",
    ),
)
# Set by other programs for themselves; no remark on them.
_SHARED = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "OPENAI_API_BASE",
    "OPENAI_API_KEY",
    "OMP_NUM_THREADS",
)
# Folder of compiled programs, for vLLM and for graphgen serve.
COMPILED_ARTIFACTS: Final = "NEURON_COMPILED_ARTIFACTS"


def check_nodes(environ: Mapping[str, str], ranks: int) -> None:
    """Refuse variables by which this process would be one of several nodes (GG0904).

    Each node would run the whole model, and answer. Processes of ``graphgen launch`` are nodes.

    Args:
        environ: of this process.
        ranks: of the model.
    """
    if PLACE in environ:
        return
    node = number_of(environ, "NEURON_RANK_ID", 0)
    stages = number_of(environ, "NEURON_PP_STAGES", 1)
    local = number_of(environ, "NEURON_LOCAL_TP", ranks)
    if node or stages > 1 or local < ranks:
        names = [row.name for row in VARIABLES if row.effect is _NODES and row.name in environ]
        shown = ", ".join(f"{name}={environ[name]}" for name in names)
        raise GraphgenError(
            "GG0904",
            f"{shown}: this process would be one of several nodes, and it runs all {ranks} ranks",
            help="unset them; 'graphgen launch --nnodes N --node-rank I -- generate MODEL' shares "
            "the ranks of a model",
        )


def print_notes(notes: Iterable[str], noted: set[str], target: str = CPU) -> None:
    """Print remarks and those about variables on stderr, each once.

    Args:
        notes: of a configuration.
        noted: what was printed before; it grows.
        target: of the programs.
    """
    for note in (*notes, *environment_notes(os.environ, target)):
        if note not in noted:
            noted.add(note)
            print(printable(f"note: {note}"), file=sys.stderr)


def environment_notes(environ: Mapping[str, str], target: str = CPU) -> tuple[str, ...]:
    """A remark for each variable of AWS's that is set and has no effect on programs of a target."""
    return tuple(
        f"the variable {row.name} has no effect{_reason(row)}"
        for row in VARIABLES
        if row.name in environ and row.name not in _SHARED
        if _has_no_effect(row, target, is_node=PLACE in environ)
    )


def _has_no_effect(row: EnvironmentVariable, target: str, *, is_node: bool) -> bool:
    if row.device:
        return target == CPU
    return isinstance(row.effect, NoEffect) and (row.effect is not _NODES or not is_node)


def _reason(row: EnvironmentVariable) -> str:
    if isinstance(row.effect, NoEffect):
        return f": {row.effect.because}"
    return " on the CPU: programs for a Neuron target read it"
