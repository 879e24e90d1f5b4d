"""Arrays to run a program with: from a file, or random by seed and name."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, BinaryIO, cast

import numpy as np

from graphgen.analysis import inlined
from graphgen.atomic_write import open_regular, read_regular, unreadable
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.eval import Array, numpy_dtype
from graphgen.eval.element_kinds import NumberSource, drawn, has_floats
from graphgen.exec.bind import given_array, typed_array
from graphgen.exec.decode_steps import STEP_COUNTS, STOP_TOKENS
from graphgen.exec.program_run import needed, ranks_of
from graphgen.exec.session import ProgramCall, Workload
from graphgen.exec.weights import default_layouts
from graphgen.ir import DType, Entry, Function, Module, Role, TensorType, Value
from graphgen.ir.dtype import decode, highest, pred
from graphgen.json_value import parse_json
from graphgen.ops.control import CONTROL
from graphgen.ops.token_tree import ANCESTORS

ENDING = ".safetensors"


def read_safetensors(name: str, help: str) -> dict[str, Array]:
    """The arrays of a file (GG0705 when it is unreadable, or has a type that NumPy lacks)."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(read_regular(Path(name)))
    except KeyError as error:
        what = ValueError(f"it has an array of type {error}, which NumPy lacks")
        raise unreadable(name, what, help) from error
    except (OSError, SafetensorError) as error:
        raise unreadable(name, error, help) from error


def safetensors_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The content of a file; bf16, which :func:`read_safetensors` does not know, as f32."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(_in_files(array)) for name, array in arrays.items()})


# Standard deviation of random weights: what Llama's own initialization uses.
WEIGHT_SCALE = 0.02
# Random integers are below it.
_SMALL = 5


def read_arrays(name: str) -> dict[str, Array]:
    """The arrays of an ``.npz`` or ``.safetensors`` file (GG0705 when it is neither)."""
    help = "an .npz file is what --save or numpy.savez writes"
    if name.endswith(ENDING):
        return read_safetensors(name, "safetensors.numpy.save_file writes such files")
    try:
        with open_regular(Path(name)) as file:
            if not zipfile.is_zipfile(file):
                raise unreadable(name, ValueError("it is not an .npz file"), help)
            return _members(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(name, error, help) from error


def _members(file: IO[bytes]) -> dict[str, Array]:
    """The arrays of an open ``.npz`` file, none of which states more than it has (ValueError).

    NumPy makes room for what the header of an array states before it reads the elements.
    """
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as part:
                version = np.lib.format.read_magic(part)
                header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
                read = header or np.lib.format.read_array_header_2_0
                shape, _, dtype = read(part)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                what = f"'{member.filename}' is cut off: {member.file_size} bytes are not {shape}"
                raise ValueError(what)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return {key: cast(Array, arrays[key]) for key in arrays.files}


def _in_files(array: Array) -> Array:
    """The array, or one of f32 for element types that NumPy's files do not know."""
    # Some 8-bit floats have the kind of NumPy's own.
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


def write_arrays(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write an ``.npz`` file; bf16, which NumPy's files do not know, as f32.

    Not by ``numpy.savez``, which has parameter names that an array cannot have.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, _in_files(array), allow_pickle=False)


class RandomInputs:
    """Random inputs that a language model accepts, a function of seed and name.

    Token ids are in range, positions 0 to S-1, lengths S, row b is cache row b, weights are small
    normal numbers and states are zero; donated arguments of a program of another tool that takes
    no tokens are drawn as weights.

    Args:
        module: has the interface and the configuration.
        function: the program; gives the size of the vocabulary of a module without configuration.
        seed: any whole number.
    """

    def __init__(self, module: Module, function: Function, seed: int) -> None:
        self.seed = seed
        self.vocabulary = vocabulary(module, function)
        self._layouts, self._sizes = default_layouts(module), function.dims
        self._places = _places(module, function)
        tokens = function.arg("tokens") or function.arg("positions")
        # A program of another tool that donates what it changes, as a training step its weights.
        self._trains = "format" in module.meta and tokens is None
        last = tokens.type.shape[-1:] if tokens is not None else ()
        self.per_row = last[0] if last and isinstance(last[0], int) else 1

    def make(self, row: Entry, type_: TensorType, rank: int = 0) -> Array:
        """An array of the logical type ``type_`` for the interface row, different on each rank."""
        try:
            kind = numpy_dtype(type_.dtype)
        except GraphgenError as error:
            error.where = error.where or f"%{row.name}"
            raise
        name = f"{row.name}@{rank}" if rank else row.name
        if row.role is Role.STATE and not self._trains:
            domain = row.bind(self._sizes).domain
            zero = domain is None or domain.holds(0)
            return np.zeros(type_.dims, kind) if zero else self._within(name, row, type_)
        if row.role is Role.LAYOUT:
            return self._layouts[row.name]
        if row.role is Role.INPUT and row.name in _INPUTS:
            known = np.asarray(_INPUTS[row.name](self, row.name, type_.dims))
            # An input of the name and of another form is not that of a language model.
            if known.shape == type_.dims and type_.dtype.is_integer:
                return known.astype(kind)
        return self._within(name, row, type_)

    def tokens(self, name: str, dims: tuple[int, ...]) -> Array:
        """Token ids."""
        return self._generator(name).integers(0, self.vocabulary, dims)

    def positions(self, name: str, dims: tuple[int, ...]) -> Array:
        """0 to S-1 in each row."""
        return np.broadcast_to(np.arange(dims[-1]), dims) if dims else np.zeros(dims)

    def lengths(self, name: str, dims: tuple[int, ...]) -> Array:
        """S for each row: nothing in the caches but this call's tokens."""
        return np.full(dims, self.per_row)

    def rows(self, name: str, dims: tuple[int, ...]) -> Array:
        """0 to B-1."""
        return np.arange(self.per_row if not dims else dims[0])

    def chain(self, name: str, dims: tuple[int, ...]) -> Array:
        """A tree of one branch: each token reads those before it."""
        return np.broadcast_to(np.tri(dims[-1]), dims) if len(dims) > 1 else np.ones(dims)

    def _generator(self, name: str) -> np.random.Generator:
        # The name is part of the seed: an array does not depend on which others are made.
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def _within(self, name: str, row: Entry, type_: TensorType) -> Array:
        """Values of the domain of a row, or any."""
        domain = row.bind(self._sizes).domain
        if domain is None:
            return self._any(name, type_)
        generator, kind = self._generator(name), numpy_dtype(type_.dtype)
        if domain.values:
            return generator.choice(np.array(domain.values), type_.dims).astype(kind)
        low, high = domain.ends(type_.dtype)
        if type_.dtype.is_float:
            share = generator.random(type_.dims)
            return np.asarray(float(low) * (1 - share) + float(high) * share).astype(kind)
        whole = np.uint64 if high > np.iinfo(np.int64).max else np.int64
        drawn = generator.integers(int(low), int(high), type_.dims, whole, endpoint=True)
        return np.asarray(drawn).astype(kind)

    def _any(self, name: str, type_: TensorType) -> Array:
        generator = self._generator(name)

        def floats(dims: tuple[int, ...]) -> Array:
            # Of a type without numbers as small the smallest are drawn.
            scale = max(WEIGHT_SCALE, 2 * _smallest(type_.dtype))
            return generator.standard_normal(dims, np.float32) * scale

        def whole(kind: DType, dims: tuple[int, ...]) -> Array:
            if kind is pred:
                return generator.integers(0, 2, dims)
            # The range of a place is not known; 0 is one of any array.
            return np.zeros(dims, np.int64) if name in self._places else small(kind, dims)

        def small(kind: DType, dims: tuple[int, ...]) -> Array:
            return generator.integers(0, min(_SMALL, int(highest(kind)) + 1), dims)

        return drawn(NumberSource(floats, whole), type_.dtype, type_.dims)

    def all_steps(self, name: str, dims: tuple[int, ...]) -> Array:
        """As many steps as a launch makes."""
        return np.full(dims, np.iinfo(np.int32).max)

    def no_stops(self, name: str, dims: tuple[int, ...]) -> Array:
        """No token ends a row."""
        return np.full(dims, -1)


_INPUTS = {
    "tokens": RandomInputs.tokens,
    "positions": RandomInputs.positions,
    "lengths": RandomInputs.lengths,
    "seq_ids": RandomInputs.rows,
    ANCESTORS: RandomInputs.chain,
    STEP_COUNTS: RandomInputs.all_steps,
    STOP_TOKENS: RandomInputs.no_stops,
}


# Operands from this one on are places in the first one.
_PLACES_FROM = {
    **dict.fromkeys(("gather", "embedding", "take", "scatter", "scatter_by", "dynamic_slice"), 1),
    "dynamic_update_slice": 2,
    "kv_update": 2,
    "cache_read": 1,
}


def _smallest(kind: DType) -> float:
    """The smallest number above 0 of a float of 8 bits or fewer; 0 of wider types."""
    if kind.bits > 8 or not kind.is_float:
        return 0.0
    # All bits but the last are 0.
    return float(decode(kind, b"\1")[0])


def _places(module: Module, function: Function) -> set[str]:
    """The integer arguments that places in arrays are computed from, by name."""
    found: set[Value] = set()
    whole = inlined(module, function)
    for op in reversed(list(whole.block)):
        first = _PLACES_FROM.get(op.name)
        if first is not None:
            found.update(op.operands[first:])
        elif op.name in CONTROL or op.name in ("call", "sort", "reduce"):
            # The functions that they run are not examined.
            found.update(op.operands)
        elif any(result in found for result in op.results):
            found.update(op.operands)
    return {value.name or "" for value in whole.args if value in found}


def stated_vocabulary(module: Module) -> int:
    """Number of token ids that the configuration of a module states; 0 where it states none."""
    try:
        config: object = parse_json(module.meta.get("config", "{}"))
    except ValueError:
        config = None
    size = (
        cast(Mapping[str, object], config).get("vocab_size") if isinstance(config, dict) else None
    )
    return size if isinstance(size, int) and size > 0 else 0


def vocabulary(module: Module, function: Function) -> int:
    """Number of token ids: the configuration's, else the rows of the embedding; 2 if unknown."""
    if size := stated_vocabulary(module):
        return size
    for op in function.ops:
        if op.name == "embedding" and op.operands[1].name == "tokens":
            rows = op.operands[0].type.shape[0]
            if isinstance(rows, int):
                return rows
    return 2


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """Arrays for every input, weight and state of a program, by name.

    Attributes:
        shared: arrays in logical types, one for all ranks.
        per_rank: arrays as each rank takes them, one per rank.
        given: number of names that the user gave arrays for.
        unused: names of arrays that the module knows and the program does not take.
    """

    shared: dict[str, Array]
    per_rank: dict[str, list[Array]]
    given: int
    unused: list[str]


def program_inputs(
    module: Module,
    function: Function,
    arrays: Mapping[str, Array],
    seed: int,
    *,
    per_rank: bool,
) -> ProgramInputs:
    """The user's arrays, and random ones for the rest.

    Args:
        module: with every symbol bound.
        function: the program.
        arrays: the user's; with one more dimension in front, one array per rank.
        seed: of the random ones.
        per_rank: random floats differ by rank.

    Raises:
        GraphgenError: GG0402 for an unknown name, or an array that does not fit.
    """
    rows, ranks = needed(module, function), ranks_of(module)
    unused = _unused(arrays, module, [row.name for row in rows], function)
    maker = RandomInputs(module, function, seed)
    shared: dict[str, Array] = {}
    own: dict[str, list[Array]] = {}
    for row in rows:
        array, type_ = arrays.get(row.name), row.logical
        split = ranks > 1 and not row.pack
        if array is not None and split and array.shape == (ranks, *type_.dims):
            own[row.name] = [given_array(array[rank], type_, row.name) for rank in range(ranks)]
        elif array is not None:
            shared[row.name] = given_array(array, type_, row.name)
        elif per_rank and split and has_floats(type_.dtype):
            own[row.name] = [maker.make(row, type_, rank) for rank in range(ranks)]
        else:
            shared[row.name] = maker.make(row, type_)
    return ProgramInputs(shared, own, sum(row.name in arrays for row in rows), unused)


def _unused(
    arrays: Mapping[str, Array], module: Module, wanted: Sequence[str], function: Function
) -> list[str]:
    """Names that the program does not take; one that the module does not know is an error."""
    unknown = sorted(arrays.keys() - set(wanted) - module.interface.keys())
    if unknown:
        raise GraphgenError(
            "GG0402",
            f"@{function.name} has no input called {', '.join(unknown)}",
            help=did_you_mean(unknown[0], wanted) or f"it has {', '.join(wanted)}",
        )
    return sorted(arrays.keys() - set(wanted))


def with_arrays(workload: Workload, module: Module, arrays: Mapping[str, Array]) -> Workload:
    """The workload with these weights, initial states, and inputs of every call.

    Args:
        workload: for ``module``.
        module: its interface has the names.
        arrays: by name, in logical types; bf16 may be two raw bytes, as in NumPy's files.

    Raises:
        GraphgenError: GG0402 for a name that is not read, or an array of another shape or kind.
    """
    calls: list[ProgramCall] = []
    used: set[str] = set()
    weights, states = dict(workload.weights), dict(workload.states)
    for held in (weights, states):
        for name in held.keys() & arrays.keys():
            held[name] = _fitting(arrays[name], held[name], name, _type(module, name))
            used.add(name)
    for call in workload.calls:
        inputs, parts = dict(call.inputs), dict(call.parts)
        for name in inputs.keys() & arrays.keys():
            inputs[name] = _fitting(arrays[name], inputs[name], name, _type(module, name))
        for name in parts.keys() & arrays.keys():
            one = _fitting(arrays[name], parts[name][0], name, _type(module, name))
            parts[name] = [one] * len(parts[name])
        used |= (inputs.keys() | parts.keys()) & arrays.keys()
        calls.append(replace(call, inputs=inputs, parts=parts))
    unknown = sorted(arrays.keys() - used)
    if unknown:
        known = sorted({*weights, *states, *(name for call in calls for name in call.inputs)})
        raise GraphgenError(
            "GG0402",
            f"there is no input called {', '.join(unknown)}",
            help=f"there are {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}",
        )
    return replace(workload, weights=weights, calls=tuple(calls), states=states)


def _type(module: Module, name: str) -> TensorType:
    return module.interface[name].logical


def _fitting(array: Array, like: Array, name: str, type_: TensorType) -> Array:
    def refuse(has: str) -> GraphgenError:
        wants = f"{type_.dtype.name}{list(like.shape)}"
        return GraphgenError("GG0402", f"input {name} must be {wants}, given {has}")

    return typed_array(array, type_, like.shape, refuse).astype(like.dtype)
