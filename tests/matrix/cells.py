"""One cell of the matrix: the mini twin of a family, compiled, and compared with what it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import ACTIVATIONS_STATIC
from graphgen.eval import MEANING, Array, numpy_dtype
from graphgen.exec.adapters import adapter_rows
from graphgen.exec.decode_steps import COUNT, STEP_COUNTS, STEP_RANDOM, STOP_TOKENS, STOPS
from graphgen.exec.decode_steps import STEPS as STEPS_PHASE
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import ADAPTER_IDS, Module, Role, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build
from graphgen.models.first_layers import first_layers
from graphgen.models.registry import family_of
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.cache_form import FIXED_SCALES
from graphgen.passes.quantization.cache_ranges import CacheRanges, InputRanges, write_ranges
from graphgen.passes.quantization.product_statistics import add_range_outputs
from graphgen.passes.quantization.stored_readings import ReadQuantized
from graphgen.passes.workload.draw_calls import slot_of_row
from graphgen.passes.workload.make_workload import WorkloadSizes, make_workload
from graphgen.passes.workload.value_ranges import normal_numbers, own_generator
from graphgen.targets import find_target
from tests.matrix.axes import Cell, config_of
from tests.matrix.holes import BLOCK

QUANTIZATION = {
    "as they are": "",
    "int8 a channel": "quantize-weights",
    "int8 a tensor": "quantize-weights{scheme=per_tensor_symmetric}",
    "f8e4m3": "quantize-weights{dtype=f8e4m3,scheme=per_tensor_symmetric}",
    "f8e5m2": "quantize-weights{dtype=f8e5m2}",
    # Whole steps of the kernel, and with some ranks an edge between ranks inside of a group.
    "int4 in groups": "quantize-weights{dtype=int4,scheme=group,group_size=32}",
}
# Numbers of MXFP4 that share an exponent.
MX_GROUP = 32
# Weights as a checkpoint stores them: a scheme of each kind of product that they lead to. The other
# schemes differ in names and bytes alone; tests/runtime/checkpoint has every one.
STORED: Mapping[str, tuple[ReadQuantized, ...]] = {
    "stored int8 a row": (ReadQuantized("compressed-tensors", "s8", (1, 0)),),
    "stored 4 bits in groups": (ReadQuantized("gptq", "u4", (1, 16), zero_points=True),),
    "stored f8e4m3 in blocks": (ReadQuantized("fp8", "f8e4m3fn", (32, 32)),),
    # Matrices are stored by one scheme, and experts by another.
    "stored MXFP4": tuple(
        [ReadQuantized(name, "f4e2m1fn", (1, MX_GROUP)) for name in ("mxfp4", "mxfp4-experts")]
    ),
}
# Element type and scale of quantized caches.
CACHED: Mapping[str, tuple[str, str]] = {
    "f8e4m3 cast": ("f8e4m3", "none"),
    "f8e5m2 cast": ("f8e5m2", "none"),
    "f8e4m3 a tensor": ("f8e4m3", "per_tensor"),
    "f8e4m3 a key": ("f8e4m3", "per_key"),
    "int8 a channel": ("int8", "per_channel"),
    "int8 a token": ("int8", "per_token"),
    "f8e5m2 a token": ("f8e5m2", "per_token"),
    "f8e4m3fn cast": ("f8e4m3fn", "none"),
}
ACTIVATIONS = {
    "as they are": "none",
    "dynamic": "dynamic",
    "static": "static",
    "in blocks": "blocks",
}
FORMS = {
    "": ("auto", "auto"),
    ", gathering": ("gather", "auto"),
    ", exchanging": ("all-to-all", "auto"),
    ", in a ring": ("ring", "off"),
    ", in a balanced ring": ("ring", "on"),
}
DISPATCH = {
    "least cost": "auto",
    "all": "all",
    "selective": "selective",
    "capacity": "capacity",
    "blocks of 2": "blockwise",
}
TILES = {"least cost": "auto"}
# Passes in front of the reference, which changes with the outputs, and passes that are compared.
CHOOSE: Mapping[str, tuple[str, str]] = {
    "logits": ("", ""),
    "logits and best": ("", "canonicalize,on-device-sampling{output_logits=true}"),
    "best": ("on-device-sampling", ""),
    "drawn": ("on-device-sampling{do_sample=true}", ""),
}
# Where the reference has adapters already: the pipeline finds them there.
ADAPTED = "canonicalize,unfuse-projections,multi-lora{{max_loras={},rank={}}}"
ADAPTERS = {"none": (0, CompileConfig().max_lora_rank), "two of rank 3": (2, 3)}
SEED = 3
# Decode steps of one launch, where it makes several.
STEPS = 2


@dataclass(frozen=True, slots=True)
class CellRun:
    """A cell before it is compiled.

    Attributes:
        module: where the pipeline begins.
        passes: the pipeline.
        workload: the calls over which the programs are compared.
    """

    module: Module
    passes: list[Pass]
    workload: Workload


def cell_run(cell: Cell, seed: int = SEED, *, one_layer: bool = False) -> CellRun:
    """The module, the pipeline and the calls of a cell.

    Args:
        cell: a value for each axis.
        seed: of weights and inputs.
        one_layer: leave out the second layer of the mini twin.

    Raises:
        GraphgenError: where the product refuses the combination early.
    """
    module = _model(cell, one_layer=one_layer)
    front, compared = CHOOSE[cell["sampling"]]
    run_pipeline(module, parse_pipeline(front))
    if cell["adapters"] != "none":
        run_pipeline(module, parse_pipeline(ADAPTED.format(*ADAPTERS[cell["adapters"]])))
    workload, config = _workload(cell, module, seed, one_layer), config_for(cell)
    if config.cache_scale in FIXED_SCALES:
        config = replace(config, kv_cache_ranges=str(_ranges(module, workload)))
    if config.activation_quantization_type == ACTIVATIONS_STATIC:
        config = replace(config, activation_ranges=str(_input_ranges(module, workload)))
    return CellRun(module, [*parse_pipeline(compared), *default(config)], workload)


def config_for(cell: Cell) -> CompileConfig:
    """The options of the default pipeline."""
    (short, long), (loras, rank) = _buckets(cell), ADAPTERS[cell["adapters"]]
    form, balance = FORMS[cell["ranks of a prompt"][1:]]
    plain = CompileConfig()
    element, scale = CACHED.get(
        cell["numbers of caches"], (plain.kv_cache_dtype, plain.kv_cache_scale)
    )
    return CompileConfig(
        target=cell["target"],
        tp=int(cell["ranks"]),
        moe_ep_degree=int(cell["groups of experts"]),
        cp_degree=int(cell["ranks of a prompt"][0]),
        cp_form=form,
        cp_balance=balance,
        attention_dp_degree=int(cell["groups of rows"]),
        expert_dispatch=DISPATCH[cell["experts"]],
        expert_block_size=2 if cell["experts"] == "blocks of 2" else 0,
        heads=cell["heads"],
        flash_decoding=cell["slots of caches"] == "divided",
        batch=(int(cell["rows"]),),
        context=(short,) if cell["phases"] == "prefill and decode" else (),
        tokens=(short, long),
        roll_window_cache=cell["caches"] == "rolled",
        page_cache=BLOCK if cell["caches"] == "paged" else 0,
        kv_cache_quant=cell["numbers of caches"] in CACHED,
        kv_cache_dtype=element,
        kv_cache_scale=scale,
        activation_quantization_type=ACTIVATIONS[cell["activations"]],
        rpl_reduce_dtype=cell["sums over ranks"],
        attention_dtype=cell["attention"],
        softmax_dtype=cell["softmax"],
        attention_block=TILES.get(cell["tiles of attention"], cell["tiles of attention"]),
        cast_logits_dtype=cell["numbers of logits"],
        outline=cell["layers"] == "outlined",
        steps_per_launch=STEPS if cell["launches"] == "several steps" else 1,
        kernels="on" if cell["kernels"] == "selected" else "off",
        quantization=QUANTIZATION.get(cell["weights"], ""),
        max_loras=loras,
        max_lora_rank=rank,
    )


@cache
def _folder() -> TemporaryDirectory[str]:
    """The folder of the files of ranges; it is removed with the process."""
    return TemporaryDirectory(prefix="graphgen-cells-")


def _ranges(module: Module, workload: Workload) -> Path:
    """The file of the largest magnitudes that the caches of the calls hold."""
    rows = [row.name for row in module.entries(Role.STATE)]
    outcomes = Runner(module, workload, arithmetic=MEANING).outcomes()
    largest = {
        name: np.max([np.abs(outcome[name]).max((0, 1)) for outcome in outcomes], axis=0)
        for name in rows
    }
    return _written({name: found.tolist() for name, found in largest.items()}, {})


def _input_ranges(module: Module, workload: Workload) -> Path:
    """The file of the largest magnitudes that the weights of products are multiplied by."""
    return _written({}, input_ranges(module, workload))


def input_ranges(module: Module, workload: Workload) -> dict[str, float]:
    """The largest magnitude over the calls of what each weight is multiplied by."""
    copy = clone_module(module)
    run_pipeline(copy, parse_pipeline("canonicalize"))
    outputs = add_range_outputs(copy)
    outcomes = Runner(copy, workload, arithmetic=MEANING).outcomes()
    return {
        weight: max(float(made[name].max()) for made in outcomes if name in made)
        for weight, name in outputs.items()
    }


def _written(caches: CacheRanges, inputs: InputRanges) -> Path:
    """A file of ranges, named after what it has."""
    digest = sha256(repr((sorted(caches.items()), sorted(inputs.items()))).encode()).hexdigest()
    path = Path(_folder().name) / f"{digest}.json"
    write_ranges(path, caches, inputs)
    return path


def compiled(run: CellRun) -> Module:
    """The programs at the end of the pipeline.

    Raises:
        GraphgenError: where the product refuses the combination.
    """
    module = clone_module(run.module)
    run_pipeline(module, run.passes)
    return module


def relative_difference(run: CellRun) -> float:
    """The largest relative difference, in float64, between what goes in and what comes out.

    Raises:
        GraphgenError: where the product refuses the combination.
    """
    programs = (run.module, compiled(run))
    before, after = [Runner(m, run.workload, arithmetic=MEANING).outcomes() for m in programs]
    return compare(before, after).relative


def _buckets(cell: Cell) -> tuple[int, int]:
    short, long = map(int, cell["buckets"].split(", "))
    return short, long


def _model(cell: Cell, *, plain: bool = False, one_layer: bool = False) -> Module:
    """The mini twin; ``plain`` for its usual inputs and outputs."""
    family = family_of(config_of(cell["family"]))
    config = family.read(config_of(cell["family"])).mini().to_hf()
    module = build(
        first_layers(family, config, 1) if one_layer else config,
        dtype(cell["dtype"]),
        phases=("prefill", "decode") if cell["phases"] == "prefill and decode" else ("decode",),
        every_token=cell["interface"] == "every token" and not plain,
        hidden_states=cell["interface"] == "hidden states" and not plain,
        inputs_embeds=cell["interface"] == "embeddings" and not plain,
        feature_layers=(1, 0, -1) if cell["interface"] == "features" and not plain else (),
    )
    readings = STORED.get(cell["weights"], ())
    if readings:
        rescaled = find_target(cell["target"]).is_accelerator
        modules = tuple(_multiplied(module, family.embedding))
        run_pipeline(
            module, [replace(each, rescaled=rescaled, modules=modules) for each in readings]
        )
    return module


def _multiplied(module: Module, embedding: str) -> set[str]:
    """The modules whose weight products read, but for a head that is tied to the embedding.

    Experts with a short group of inputs are left out, which MXFP4 does not have.
    """
    ops = [op for f in module.programs() for op in f.ops]
    read = [op.operands[1] for op in ops if op.name == "dot_general"]
    experts = [value for op in ops if op.name == "experts" for value in op.operands[3:6]]
    read += [value for value in experts if int(str(value.shape[-1])) % MX_GROUP == 0]
    names = {value.name or "" for value in read} & module.interface.keys()
    return {name.removesuffix(".weight") for name in names - {embedding}}


def rounds(cell: Cell) -> bool:
    """Whether some pass of a cell rounds to less than f32.

    That may flip a token inside of a launch, which nothing replays: such cells make none.
    """
    axes = ("dtype", "sums over ranks", "attention", "softmax", "numbers of logits")
    stored = (cell["weights"], cell["numbers of caches"])
    return stored != ("as they are",) * 2 or any(cell[x] not in ("f32", "model") for x in axes)


def _workload(cell: Cell, module: Module, seed: int, one_layer: bool) -> Workload:
    """The calls of the plain model, with the inputs that this one has instead or as well."""
    short, long = _buckets(cell)
    sizes = WorkloadSizes(int(cell["rows"]), short, short, long)
    plain = make_workload(_model(cell, plain=True, one_layer=one_layer), seed, sizes)
    planned = plain.calls
    several = cell["launches"] == "several steps" and "next_tokens" in module.interface
    if several and not rounds(cell):
        planned = (*planned, _several(planned[-1]))
    calls = tuple(replace(call, inputs=_inputs(module, call, seed)) for call in planned)
    names = {row.name for row in module.entries(Role.WEIGHT)}
    weights = {name: array for name, array in plain.weights.items() if name in names}
    for row in module.entries(Role.SLOTTED):
        weights[row.name] = normal_numbers(own_generator(seed, row.name), row, row.logical)
    if cell["weights"] in STORED:
        weights = {name: _stored_numbers(name, array, seed) for name, array in weights.items()}
    return replace(plain, weights=weights, calls=calls)


def _stored_numbers(name: str, array: Array, seed: int) -> Array:
    """Numbers as a checkpoint has them: all bits of words, and scales of ordinary size."""
    rng = np.random.default_rng([seed, *array.shape])
    if array.dtype in (np.int32, np.int8):
        ends = np.iinfo(array.dtype)
        return rng.integers(ends.min, ends.max, array.shape, array.dtype, endpoint=True)
    if array.dtype == np.uint8:
        # Bytes of numbers, and exponents from 1/256 to 1/16.
        ends = (119, 123) if name.endswith(("_scale", "_scales")) else (0, 255)
        return rng.integers(*ends, array.shape, np.uint8, endpoint=True)
    if array.dtype.itemsize == 1:
        return (40 * rng.standard_normal(array.shape)).clip(-240, 240).astype(array.dtype)
    if name.endswith((".scales", ".weight_scale", ".weight_scale_inv")):
        return (rng.uniform(0.1, 1, array.shape) / 128).astype(array.dtype)
    return array


def _several(last: ProgramCall) -> ProgramCall:
    """The steps after the last call, of which the second row takes one and others all."""
    active = last.inputs["lengths"] > 0
    counts = np.where(active, STEPS, 0).astype(np.int32)
    counts[1:2] = np.minimum(counts[1:2], 1)
    inputs = {
        **last.inputs,
        "positions": np.where(active[:, None], last.inputs["positions"] + 1, -1).astype(np.int32),
        "lengths": np.where(active, last.inputs["lengths"] + 1, 0).astype(np.int32),
        STEP_COUNTS: counts,
        STOP_TOKENS: np.full((len(counts), STOPS), -1, np.int32),
    }
    return replace(last, phase=STEPS_PHASE, dims={**last.dims, COUNT: STEPS}, inputs=inputs)


def _inputs(module: Module, call: ProgramCall, seed: int) -> dict[str, Array]:
    """Inputs by name: those of the call, and drawn ones it does not have."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    found |= {name: call.inputs[name] for name in (STEP_COUNTS, STOP_TOKENS) if name in call.inputs}
    if call.phase == STEPS_PHASE and "random" in module.interface:
        found[STEP_RANDOM] = rng.random((len(call.inputs["lengths"]), STEPS)).astype(np.float32)
    for row in module.entries(Role.INPUT):
        type_ = row.logical.bind(call.dims)
        if row.name in call.inputs:
            found[row.name] = call.inputs[row.name]
        elif row.name == ADAPTER_IDS:
            slots = adapter_rows(module).values()
            count = next(a.logical.dims[0] for a, _ in slots)
            rows = call.dims["R"]
            assert isinstance(rows, int)
            found[row.name] = slot_of_row(call.inputs["seq_ids"], rows, count)
        elif row.name == "sampling_params":
            # Of each row top_k, top_p and temperature.
            choices = np.array([[5, 0.9, 1], [0, 1, 2], [1, 1, 1], [3, 0.5, 0.7]])
            found[row.name] = choices[: type_.dims[0]].astype(numpy_dtype(type_.dtype))
        else:
            found[row.name] = rng.random(type_.dims).astype(numpy_dtype(type_.dtype))
    return found
