"""PJRT through jaxlib's private API, used in this file only: compile, serialize, load, launch.

``jax.jit`` neither takes StableHLO text nor gives executables that can be kept in a file, so this
goes to PJRT itself; it is written for the pinned jaxlib and everything else of it stays out of the
project.
"""

# jaxlib and jax.extend carry no types; this file is where that ends.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.foreign_calls import ForeignCalls
from graphgen.lowering.cpu import processes
from graphgen.lowering.cpu.stage_arrays import StageArrays


class Executable(Protocol):
    """The part of jaxlib's loaded executable that is used."""

    def execute_sharded(self, arguments: Sequence[Any]) -> Any:
        """Launch; one argument holds the buffers of all devices."""
        ...


# The platform of JAX that programs are loaded on, in this process and inside of `on_platform`.
CPU = "cpu"
_home = CPU
_PLATFORM: ContextVar[str | None] = ContextVar("_PLATFORM", default=None)


def configure(devices: int) -> None:
    """Have at least ``devices`` virtual CPU devices; works once, before the first launch.

    Of several processes each has its share of them. In one that runs on other devices, nothing is
    done.

    Raises:
        GraphgenError: GG0705 when JAX has started with fewer, or processes cannot share them.
    """
    import jax

    if _home != CPU:
        return
    jax.config.update("jax_platforms", CPU)
    local = processes.share_of(devices)
    if cast(Any, jax.config).jax_num_cpu_devices >= local:
        return
    try:
        jax.config.update("jax_num_cpu_devices", local)
    except RuntimeError as error:
        # JAX refuses to change the count once a backend exists; having enough is good enough.
        if len(jax.devices()) < devices:
            raise GraphgenError(
                "GG0705",
                f"{devices} CPU devices are needed, and JAX has started with {len(jax.devices())} "
                "in this process",
                help="their number stays, also when models are closed: set the environment "
                f"variable JAX_NUM_CPU_DEVICES={devices} before Python starts, or open the model "
                "with the most ranks first",
            ) from error


def reserve(devices: int) -> None:
    """Let JAX start with at least ``devices`` virtual CPU devices, if it has not started yet.

    Models that are opened later may have as many ranks: JAX fixes the number when it starts.
    """
    if processes.count() == 1:
        with suppress(GraphgenError):
            configure(devices)


# Numbers of the devices that programs run on, of which they take the first ones.
_CHOSEN: ContextVar[Sequence[int]] = ContextVar("_CHOSEN", default=range(sys.maxsize))


@contextmanager
def on_devices(numbers: Sequence[int]) -> Generator[None]:
    """Compile, load and place for the devices of these numbers in a ``with`` block."""
    before = _CHOSEN.set(numbers)
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def on_devices_from(first: int) -> AbstractContextManager[None]:
    """Compile, load and place for the devices from ``first`` on in a ``with`` block."""
    return on_devices(range(first, sys.maxsize))


def _platform() -> str:
    return _PLATFORM.get() or _home


@contextmanager
def on_platform(name: str) -> Generator[None]:
    """Load and run programs on the devices of a plugin of JAX in a ``with`` block."""
    before = _PLATFORM.set(name)
    try:
        yield
    finally:
        _PLATFORM.reset(before)


def use_platform(name: str) -> None:
    """Have JAX start with the plugin of a platform beside the CPU (GG1005 if it cannot)."""
    import jax
    from jax.extend.backend import get_backend

    jax.config.update("jax_platforms", f"{name},{CPU}")
    try:
        get_backend(name)
    except RuntimeError as error:
        raise GraphgenError(
            "GG1005",
            f"JAX has no platform {name}: {error}",
            help="install its plugin, a package jax_plugins.NAME; programs for devices are loaded "
            "before anything runs on the CPU in this process",
        ) from error


def run_on_platform(name: str) -> None:
    """Load and run all programs of this process on the devices of a plugin of JAX (GG1005)."""
    global _home
    use_platform(name)
    _home = name


def devices(count: int) -> list[Any]:
    """The first ``count`` devices; GG0705 when the CPU has fewer, other platforms give those."""
    import jax

    name, numbers = _platform(), _CHOSEN.get()[:count]
    most = numbers[-1] + 1
    if name == CPU and (most > 1 or processes.count() > 1):
        configure(most)
    # Those of other processes belong to launches of all.
    found = list(jax.devices(name) if processes.count() > 1 else jax.local_devices(backend=name))
    if processes.count() > 1:
        # An environment may give processes more devices than they have ranks.
        each, homes = processes.share_of(count), range(processes.count())
        found = [d for home in homes for d in [d for d in found if d.process_index == home][:each]]
    return [found[number] for number in numbers if number < len(found)]


def start_together() -> None:
    """Start the devices of all processes; each process waits two minutes for the others."""
    processes.meet()
    devices(1)


def _here(homes: Sequence[Any]) -> list[Any]:
    """The devices of this process among some."""
    return [home for home in homes if home.process_index == processes.index()]


# Options of XLA that compile in a sixth of the time: LLVM leaves its code as it is.
QUICK: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
}


def _overrides() -> dict[str, bool | int]:
    """The options that ``GRAPHGEN_XLA_CODE`` asks for (GG0705 if it names no kind of code)."""
    kind = os.environ.get("GRAPHGEN_XLA_CODE", "")
    if kind not in ("", "optimized", "quick"):
        raise GraphgenError(
            "GG0705",
            f"GRAPHGEN_XLA_CODE={kind} is not quick or optimized",
            help="quick compiles in a sixth of the time, optimized runs faster",
        )
    return QUICK if kind == "quick" else {}


def _options(ranks: int, partitions: int = 1) -> Any:
    # JAX comes before jaxlib: it lets XLA log warnings, but not that there are devices.
    numbers = [device.id for device in devices(ranks * partitions)]
    from jaxlib import xla_client

    options = cast(Any, xla_client.CompileOptions())
    if _platform() == CPU:
        options.env_option_overrides = list(_overrides().items())
    build = options.executable_build_options
    for each in (options, build):
        each.num_replicas, each.num_partitions = ranks, partitions
    if partitions > 1:
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
    ids = np.asarray(numbers, np.int64).reshape(ranks, partitions)
    options.device_assignment = cast(Any, xla_client).DeviceAssignment.create(ids)
    return options


def _client() -> Any:
    from jax.extend.backend import get_backend

    return get_backend(_platform())


def _device_list(ranks: int) -> Any:
    from jaxlib import xla_client

    return cast(Any, xla_client).DeviceList(tuple(devices(ranks)))


def stablehlo_of(proto: bytes) -> bytes:
    """StableHLO bytecode of an HLO module (GG0401 if XLA refuses), with row-major results.

    On its way XLA is left to choose any layout, and would.
    """
    return read_stablehlo(converted_hlo(proto)).bytecode


def converted_hlo(proto: bytes) -> bytes:
    """XLA's own conversion of an HLO module to StableHLO bytecode (GG0401 if XLA refuses)."""
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage]

    try:
        return cast(bytes, cast(Any, _jax).mlir.hlo_to_stablehlo(proto))
    except Exception as error:
        what = f"XLA refuses the module: {first_line(error)}"
        raise GraphgenError("GG0401", what) from error


def hlo_of_text(text: str) -> bytes:
    """The HloModuleProto of HLO text, by XLA's own parser (GG0401 if it refuses)."""
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    try:
        return bytes(cast(Any, _hlo).hlo_module_from_text(text).as_serialized_hlo_module_proto())
    except Exception as error:
        what = f"XLA refuses the module: {first_line(error)}"
        raise GraphgenError("GG0401", what) from error


@dataclass(frozen=True, slots=True)
class StablehloModule:
    """A module as MLIR reads it.

    Attributes:
        bytecode: of it, with row-major arguments and results.
        targets: of its custom calls.
        arguments, results: sizes of each argument and result of @main, ``None`` for one that is
            not an array of fixed sizes.
    """

    bytecode: bytes
    targets: frozenset[str]
    arguments: tuple[tuple[int, ...] | None, ...]
    results: tuple[tuple[int, ...] | None, ...]


# A portable artifact names its producer after MLIR's magic number.
_PRODUCER = b"StableHLO_v"


def read_stablehlo(data: bytes) -> StablehloModule:
    """Read StableHLO as text or bytecode by MLIR (GG0401 if it refuses)."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax.extend import mlir as artifacts

    private = cast(Any, ir)
    out = io.BytesIO()
    targets: set[str] = set()

    def visit(op: Any) -> Any:
        if "call_target_name" in op.attributes:
            targets.add(str(op.attributes["call_target_name"].value))
        return private.WalkResult.ADVANCE

    try:
        with mlir.make_ir_context():
            if _PRODUCER in data[:32]:
                module = artifacts.deserialize_portable_artifact(data)
            else:
                module = private.Module.parse(data)
            module.operation.walk(visit)
            kinds = [], []
            for function in module.body.operations:
                if "sym_name" in function.attributes and "function_type" in function.attributes:
                    _strip_layouts(private, function)
                    if function.attributes["sym_name"].value == "main":
                        stated = function.attributes["function_type"].value
                        kinds = stated.inputs, stated.results
            # As bytecode: the text of some programs does not parse again.
            module.operation.write_bytecode(out)
            arguments, results = [tuple([_sizes(private, k) for k in each]) for each in kinds]
    except Exception as error:
        what = f"XLA refuses the module: {first_line(error)}"
        raise GraphgenError("GG0401", what) from error
    return StablehloModule(out.getvalue(), frozenset(targets), arguments, results)


def _sizes(ir: Any, type_: Any) -> tuple[int, ...] | None:
    fixed = isinstance(type_, ir.RankedTensorType) and type_.has_static_shape
    return tuple(type_.shape) if fixed else None


def _strip_layouts(ir: Any, function: Any) -> None:
    """Leave arguments and results of a function in row-major order."""
    for key in ("arg_attrs", "res_attrs"):
        if key in function.attributes:
            kept = [_without_layout(ir, item) for item in function.attributes[key]]
            function.attributes[key] = ir.ArrayAttr.get(kept)


def _without_layout(ir: Any, attributes: Any) -> Any:
    kept = {item.name: item.attr for item in attributes if item.name != "mhlo.layout_mode"}
    return ir.DictAttr.get(kept)


def initialize_lapack() -> None:
    """Have jaxlib find SciPy's LAPACK; its handlers point nowhere before that."""
    from jaxlib.cpu import _lapack

    cast(Any, _lapack).initialize()


def compile_text(text: str | bytes, ranks: int, partitions: int = 1) -> Executable:
    """Compile StableHLO, as text or bytecode (GG0401 if XLA refuses).

    Args:
        text: the program.
        ranks: number of replicas.
        partitions: of each replica; of several, XLA's partitioner splits the program.
    """
    options = _options(ranks, partitions)
    homes = _device_list(ranks * partitions)
    try:
        return cast(Executable, _client().compile_and_load(text, homes, options))
    except Exception as error:
        compiler = "XLA" if _platform() == CPU else _platform()
        what = f"{compiler} refuses the program: {first_line(error)}"
        raise GraphgenError("GG0401", what) from error


_HEADING = re.compile(
    r"(INTERNAL|INVALID_ARGUMENT|UNKNOWN)?[: ]*(Unable to parse [\w ]+|Error):?\s*$"
)


def first_line(error: Exception) -> str:
    """The first line of XLA's message that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _HEADING.fullmatch(line)]
    return (said or lines or [type(error).__name__])[0]


def shardings(executable: Executable) -> tuple[list[str], list[str]]:
    """HLO's spelling of the sharding of each parameter and result; empty lists without any."""
    from jaxlib import xla_client

    private = cast(Any, xla_client)
    known = cast(Any, executable)
    both = known.get_parameter_shardings(), known.get_output_shardings()
    spelled = [[str(private.HloSharding.from_proto(item)) for item in each or ()] for each in both]
    return spelled[0], spelled[1]


def recorded(run: Callable[[], None], repeats: int) -> bytes:
    """The ``xplane.pb`` of XLA's profiler for some calls of a function, without Python's frames."""
    from jax._src import lib

    profiler = cast(Any, lib)._profiler
    options = profiler.ProfileOptions()
    options.python_tracer_level = 0
    session = profiler.ProfilerSession(options)
    for _ in range(repeats):
        run()
    return bytes(session.stop())


def serialize(executable: Executable) -> bytes:
    """The compiled program as bytes, good only for :func:`cpu_key`'s machine and version."""
    return bytes(_client().serialize_executable(executable))


def deserialize(data: bytes, ranks: int) -> Executable | None:
    """Load what :func:`serialize` gave; ``None`` for bytes that XLA cannot load.

    jaxlib checks neither version nor CPU, so the caller must have compared :func:`cpu_key`.
    """
    client, homes, options = _client(), _device_list(ranks), _options(ranks)
    try:
        with ForeignCalls(ValueError):
            return cast(Executable, client.deserialize_executable(data, homes, options))
    except ValueError:
        return None


# Shape and element type of a parameter or a result.
Kind = tuple[tuple[int, ...], np.dtype[Any]]


def signature(executable: Executable) -> tuple[list[Kind], list[Kind]]:
    """The kinds of an executable's parameters and of its results, in order."""
    from jaxlib import xla_client

    private = cast(Any, xla_client)
    module = cast(Any, executable).hlo_modules()[0]
    shape = private.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()
    result = shape.result_shape()
    results = result.tuple_shapes() if result.is_tuple() else [result]
    return _kinds(shape.parameter_shapes()), _kinds(results)


def _kinds(shapes: Sequence[Any]) -> list[Kind]:
    return [(tuple(shape.dimensions()), np.dtype(shape.numpy_dtype())) for shape in shapes]


def put(arrays: Sequence[Any]) -> Any:
    """One array a rank, all of one shape and type, on the devices: an argument of a launch.

    Of several processes each puts the arrays of its own ranks only. An array that starts at a
    multiple of 64 bytes is used in place, by several devices as well.
    """
    if processes.in_stages():
        return StageArrays(dict(enumerate(arrays)))
    return put_here([arrays[rank] for rank in processes.local_ranks(len(arrays))], len(arrays))


def put_local(arrays: Mapping[int, Any], ranks: int) -> Any:
    """As :func:`put`, given the arrays by rank of those ranks of ``ranks`` that are here."""
    return StageArrays(arrays) if processes.in_stages() else put_here(list(arrays.values()), ranks)


def put_here(arrays: Sequence[Any], ranks: int) -> Any:
    """As :func:`put`, given one array for each of the ``ranks`` that is here, on its device."""
    if arrays[0].dtype.itemsize < 8:
        return _put(arrays, ranks)
    import jax

    # JAX would make 32 bits of these, and a program that takes 64 read beyond them.
    with jax.enable_x64(True):
        return _put(arrays, ranks)


def _put(arrays: Sequence[Any], ranks: int) -> Any:
    import jax
    from jax._src.interpreters.pxla import batched_device_put

    homes = tuple(devices(ranks))
    mine = _here(homes)
    first = arrays[0]
    if not first.shape and len(homes) > 1:
        # Scalars pass for copies of one, of which JAX would send the first to all.
        each = [jax.device_put(array, home) for array, home in zip(arrays, mine, strict=True)]
        return _join(each, homes)
    # The function that jax.device_put ends in: a fifth of its time for one rank, a tenth for eight.
    kind = _kind(_stacked(first.shape, len(homes)), first.dtype)
    return cast(Any, batched_device_put)(kind, _over(homes, first.ndim), arrays, mine)


def join(placed: Sequence[Any]) -> Any:
    """Per-device buffers of this process as the one array that a launch takes."""
    if processes.in_stages():
        # Joined by the stage that they are on.
        return placed
    if len(placed) == 1 and processes.count() == 1:
        return placed[0]
    homes = tuple(next(iter(array.devices())) for array in placed)
    if processes.count() > 1:
        homes = tuple(devices(len(placed) * processes.count()))
    return _join(placed, homes)


def _join(placed: Sequence[Any], homes: tuple[Any, ...]) -> Any:
    """Buffers on those of ``homes`` that are in this process as one array over all of them."""
    if len(homes) == 1:
        return placed[0]
    import jax

    first = placed[0]
    return jax.make_array_from_single_device_arrays(
        _stacked(first.shape, len(homes)), _over(homes, first.ndim), list(placed)
    )


def _stacked(shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """The shape that JAX gets for one array per rank.

    Only the buffers matter to a launch: the ranks are stacked along dimension 0, and scalars, which
    have none, pass for copies of one.
    """
    return (shape[0] * ranks, *shape[1:]) if shape else ()


@cache
def _kind(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    from jax._src.core import ShapedArray

    return ShapedArray(shape, dtype)


@cache
def _over(homes: tuple[Any, ...], dims: int) -> Any:
    """The sharding of :func:`_stacked` over the devices."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if len(homes) == 1:
        return SingleDeviceSharding(homes[0])
    mesh = Mesh(np.array(homes), ("rank",))
    return NamedSharding(mesh, PartitionSpec("rank") if dims else PartitionSpec())


def moved(value: Any, ranks: int) -> Any:
    """A value of a launch on the devices of :func:`on_devices_from`; itself where it is there.

    Args:
        value: an argument of a launch, or one array a rank as a launch gives it.
        ranks: number of ranks.
    """
    if isinstance(value, StageArrays):
        return _staged(value, ranks)
    import jax

    pieces: list[Any] = value if isinstance(value, list) else _pieces(value)
    homes = tuple(devices(ranks))
    mine = _here(homes)
    if [next(iter(piece.devices())) for piece in pieces] == mine:
        return _join(pieces, homes) if isinstance(value, list) else value
    return _join([jax.device_put(p, home) for p, home in zip(pieces, mine, strict=True)], homes)


def _staged(value: StageArrays, ranks: int) -> Any:
    """Arrays of some ranks on the devices of a stage; put there once."""
    first = _CHOSEN.get()[0]
    if first not in value.placed:
        here = processes.local_ranks(ranks, first)
        value.placed[first] = put_here([value.arrays[rank] for rank in here], ranks)
    return value.placed[first]


def _pieces(value: Any) -> list[Any]:
    """The array of each rank."""
    if len(value.devices()) == 1:
        return [value]
    shards = sorted(value.addressable_shards, key=lambda shard: shard.device.id)
    return [shard.data for shard in shards]


def result_handlers(kinds: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], ranks: int) -> Any:
    """Makers of the arrays of a launch's results; ``None`` for several ranks.

    Made once, they save a launch of sixty results a tenth of a millisecond.

    Args:
        kinds: shape and element type of each result.
        ranks: number of ranks.
    """
    if ranks > 1:
        return None
    from jaxlib import xla_client

    home = _over(tuple(devices(1)), 0)
    make = cast(Any, xla_client).array_result_handler
    return [make(_kind(*kind), home, committed=True, _skip_checks=True) for kind in kinds]


def launch(
    executable: Executable, arguments: Sequence[Any], handlers: Any = None
) -> list[list[Any]]:
    """Run once; returns, per output, one array per rank of this process.

    Args:
        executable: the program.
        arguments: one array each that holds the buffers of all ranks.
        handlers: of :func:`result_handlers`, to save time.
    """
    results = executable.execute_sharded(arguments)
    if handlers is None:
        return results.disassemble_into_single_device_arrays()
    return [[array] for array in results.consume_with_handlers(handlers)]


def cpu_key() -> str:
    """Key of a compiled program: jaxlib's version, the CPU's features, XLA's flags."""
    import jaxlib

    info = Path("/proc/cpuinfo")
    features = platform.processor()
    if info.exists():
        lines = info.read_text().splitlines()
        features = next(
            (line for line in lines if line.startswith(("flags", "Features"))), features
        )
    flags = os.environ.get("XLA_FLAGS", "")
    chosen = "".join(f" {name}={value}" for name, value in _overrides().items())
    text = "\n".join((jaxlib.__version__, platform.machine(), features, flags + chosen))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def has_matrix_unit() -> bool:
    """Test whether XLA multiplies bf16 in matrix tiles (AMX) on this CPU.

    ``--xla_cpu_max_isa`` in ``XLA_FLAGS`` may keep it from that.
    """
    limits = re.findall(r"--xla_cpu_max_isa=(\w+)", os.environ.get("XLA_FLAGS", ""))
    if limits and not limits[-1].upper().startswith("AMX"):
        return False
    info = Path("/proc/cpuinfo")
    return info.exists() and "amx_bf16" in info.read_text()
