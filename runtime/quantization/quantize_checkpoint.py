"""Write a quantized checkpoint, one tensor after the other: read, round, write, forget."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.passes.quantization.quantizable_products import names
from graphgen.passes.quantization.schemes import WeightScheme
from graphgen.runtime.checkpoint.expert_tensors import numbered_experts
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Checkpoint, TensorInfo
from graphgen.runtime.folders import new_folder, write_json
from graphgen.runtime.progress import Progress
from graphgen.runtime.quantization.calibration import Gram, gram_matrices
from graphgen.runtime.quantization.checkpoint_format import (
    Array,
    TensorOfWeight,
    check_format,
    check_shape,
    contents,
    fused_tensors,
    quantization_config,
    stored_form,
    stored_tensors,
)
from graphgen.runtime.quantization.gptq import quantize_by_gptq
from graphgen.runtime.quantization.quantizable import (
    QuantizableWeight,
    quantizable_stacks,
    quantizable_weights,
)
from graphgen.runtime.quantization.rounding import QuantizedWeight, quantize_to_nearest
from graphgen.runtime.tokenizer.tokenizer_folder import copy_other_files
from graphgen.runtime.weights.aligned_safetensors import append_tensor, stream_header
from graphgen.runtime.weights.weight_checks import max_magnitude

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class QuantizationRequest:
    """A scheme, its exceptions, the format and the calibration.

    Attributes:
        scheme: of the weights of products.
        skip: modules that keep their type: parts of dotted names.
        form: ``huggingface`` or ``nxdi``.
        windows: token ids of the calibration text, all windows of one length; empty for rounding
            to nearest.
    """

    scheme: WeightScheme
    skip: Sequence[str] = ("lm_head",)
    form: str = "huggingface"
    windows: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class QuantizedCheckpoint:
    """Statistics of a written checkpoint.

    Attributes:
        quantized: number of quantized weights.
        kept: weights of products that keep their type.
        nbytes: of the weights' file.
    """

    quantized: int
    kept: tuple[str, ...]
    nbytes: int


def quantize_checkpoint(
    checkpoint: Checkpoint, output: Path, request: QuantizationRequest, progress: Progress
) -> QuantizedCheckpoint:
    """Write a folder with quantized weights; it appears complete, or not at all.

    A tensor is read, rounded and written before the next one. With a calibration text, Gram
    matrices are in memory too, and a part of the model at a time is run.

    Args:
        checkpoint: the model in floats.
        output: a new or empty folder.
        request: scheme, exceptions, format and calibration.
        progress: notified of long tasks.

    Raises:
        GraphgenError: GG0705 for a scheme that the format or the model does not have, GG0704 if
            the folder is taken or cannot be written, GG05xx and GG06xx for the checkpoint, such as
            GG0605 for weights that are not finite.
    """
    check_format(request.form, request.scheme)
    weights = _chosen(checkpoint, request)
    experts, fused = numbered_experts(checkpoint), fused_tensors(checkpoint)
    written = {weight.name for weight in weights.values()}
    kept = {
        name.removesuffix(".weight"): None
        for weight in _quantizable(checkpoint, ()).values()
        if fused.name(weight.name) not in written
        for name in experts.get(weight.name, (fused.name(weight.name),))
    }
    occupied = f"{output} is there already"
    with new_folder(output, "the quantized checkpoint", occupied) as folder:
        copy_other_files(checkpoint, folder)
        _write_config(checkpoint, folder, request, [*kept])
        with progress.task("quantizing") as report, (folder / WEIGHTS).open("wb") as file:
            rows, arrays = _tensors(checkpoint, weights, request, progress)
            file.write(stream_header((name, row.dtype, row.shape) for name, row in rows))
            for done, array in enumerate(arrays):
                append_tensor(file, array)
                report((done + 1) / len(rows))
            file.flush()
            os.fsync(file.fileno())
        size = (folder / WEIGHTS).stat().st_size
    return QuantizedCheckpoint(len(weights), tuple(kept), size)


def write_state(checkpoint: Checkpoint, output: Path, state: Mapping[str, Array]) -> None:
    """Write tensors that are in memory beside the configuration and tokenizer of a checkpoint.

    Args:
        checkpoint: the model in floats.
        output: a new or empty folder.
        state: tensors by name.

    Raises:
        GraphgenError: GG0704 if the folder is taken or cannot be written.
    """
    occupied = f"{output} is there already"
    with new_folder(output, "the quantized checkpoint", occupied) as folder:
        copy_other_files(checkpoint, folder)
        write_json(folder / "config.json", dict(checkpoint.config))
        with (folder / WEIGHTS).open("wb") as file:
            rows = [
                (name, TensorOfWeight("", array.dtype, array.shape))
                for name, array in state.items()
            ]
            file.write(stream_header((name, row.dtype, row.shape) for name, row in rows))
            for array in state.values():
                append_tensor(file, array)
            file.flush()
            os.fsync(file.fileno())


def _chosen(checkpoint: Checkpoint, request: QuantizationRequest) -> dict[str, QuantizableWeight]:
    """The weights to quantize, each checked against the format (GG0705).

    Those that are stored as one tensor are one, under the name of the first of them.
    """
    everything = checkpoint.tensors()
    for pattern in request.skip:
        if pattern != "lm_head" and not any(names(pattern, name) for name in everything):
            raise GraphgenError("GG0705", f"--modules-to-not-convert {pattern} names no weight")
    experts, fused = numbered_experts(checkpoint), fused_tensors(checkpoint)
    matrices = {
        name: weight
        for name, weight in _quantizable(checkpoint, request.skip).items()
        if (weight.matrices == 1 and name not in fused.experts)
        or (name in experts and weight.contracted == 2 and _reads_experts(request))
    }
    found = fused.joined(matrices, request.scheme)
    if not found:
        raise GraphgenError("GG0705", "no weight is left to quantize", help="name fewer exceptions")
    for weight in found.values():
        if weight.contracted == 0:
            raise GraphgenError(
                "GG0705",
                f"'{weight.name}' is stored as [in,out]; the formats have weights [out,in] only",
                help="--quantized of the other commands quantizes it while it is loaded",
            )
        check_shape(weight.name, _matrix(weight), request.scheme)
    return found


def _quantizable(checkpoint: Checkpoint, skip: Sequence[str]) -> dict[str, QuantizableWeight]:
    """Matrices and stacks of experts' matrices, by name."""
    config = checkpoint.config
    return {**quantizable_weights(config, skip), **quantizable_stacks(config, skip)}


def _reads_experts(request: QuantizationRequest) -> bool:
    """True if the format is read for the matrices of experts too."""
    return 3 in stored_form(request.form, request.scheme).scheme.ranks


def _matrix(weight: QuantizableWeight) -> tuple[int, int]:
    """Sizes of the matrix, or of each."""
    rows, columns = weight.shape[-2:]
    return rows, columns


def _write_config(
    checkpoint: Checkpoint, folder: Path, request: QuantizationRequest, kept: Sequence[str]
) -> None:
    config = dict(checkpoint.config)
    if request.form == "huggingface":
        config["quantization_config"] = quantization_config(
            request.scheme, list(dict.fromkeys(["lm_head", *kept]))
        )
    write_json(folder / "config.json", config)


def quantized_tensors(
    checkpoint: Checkpoint, request: QuantizationRequest, progress: Progress
) -> tuple[list[tuple[str, TensorOfWeight]], Iterator[Array]]:
    """The tensors of a quantized checkpoint, and their contents in that order, made one by one.

    Tensors that keep their type come first, then the others in the order of calibration.

    Args:
        checkpoint: the model in floats.
        request: scheme, exceptions, format and calibration.
        progress: notified of long tasks.

    Raises:
        GraphgenError: as :func:`quantize_checkpoint`, but for the folder.
    """
    check_format(request.form, request.scheme)
    return _tensors(checkpoint, _chosen(checkpoint, request), request, progress)


def _tensors(
    checkpoint: Checkpoint,
    weights: Mapping[str, QuantizableWeight],
    request: QuantizationRequest,
    progress: Progress,
) -> tuple[list[tuple[str, TensorOfWeight]], Iterator[Array]]:
    """The same of weights that were chosen."""
    experts, fused = numbered_experts(checkpoint), fused_tensors(checkpoint)
    tensors = {**fused.stored, **checkpoint.tensors()}
    written = {weight.name for weight in weights.values()}
    whole = dict.fromkeys(fused.name(name) for name in checkpoint.tensors())
    others = [name for name in whole if name not in written]
    rows = [row for name in others for row in _kept_rows(tensors[name], experts.get(name))]
    for weight in weights.values():
        stored = stored_tensors(request.form, request.scheme, _matrix(weight))
        for name in experts.get(weight.name, (weight.name,)):
            rows += [(f"{name.removesuffix('.weight')}.{each.suffix}", each) for each in stored]

    def arrays() -> Iterator[Array]:
        for name in others:
            array = checkpoint.read(name)
            yield from array if name in experts else (array,)
        for matrices in _quantized(checkpoint, weights, request, progress):
            for made in matrices:
                yield from contents(request.form, made)

    return rows, arrays()


def _kept_rows(
    info: TensorInfo, stored: tuple[str, ...] | None
) -> list[tuple[str, TensorOfWeight]]:
    """The tensors of one that keeps its type: those of experts one by one, as they were stored."""
    kind = NUMPY_DTYPES[info.dtype]
    if stored is None:
        return [(info.name, TensorOfWeight("", kind, info.shape))]
    return [(each, TensorOfWeight("", kind, info.shape[1:])) for each in stored]


def _quantized(
    checkpoint: Checkpoint,
    weights: Mapping[str, QuantizableWeight],
    request: QuantizationRequest,
    progress: Progress,
) -> Iterator[Iterator[QuantizedWeight]]:
    """The matrices of each weight, in order: one, or one an expert."""
    if not request.windows:
        for weight in weights.values():
            array = _read(checkpoint, weight.name)
            yield (
                quantize_to_nearest(each, request.scheme)
                for each in array.reshape(weight.matrices, *array.shape[-2:])
            )
        return
    for part, grams in gram_matrices(checkpoint, request.windows, weights, progress):
        for name in part:
            array, gram = _read(checkpoint, weights[name].name), grams.get(name)
            stack = array.reshape(weights[name].matrices, *array.shape[-2:])
            size = array.shape[-1]
            each = None if gram is None else gram.reshape(len(stack), size, size)
            yield (
                _calibrated(matrix, None if each is None else each[number], request.scheme)
                for number, matrix in enumerate(stack)
            )


def _read(checkpoint: Checkpoint, name: str) -> Array:
    """A weight to quantize, whose scales need finite numbers (GG0605)."""
    array = checkpoint.read(name)
    seen = max_magnitude(array)
    if seen.is_nan or seen.is_infinite:
        first = np.argwhere(~np.isfinite(array.astype(np.float32)))[0].tolist()
        raise GraphgenError(
            "GG0605",
            f"the weight '{name}' holds {'NaN' if seen.is_nan else 'an infinite value'}; the first "
            f"number that is not finite is at {first}",
            where=str(checkpoint.path),
            help="the checkpoint is damaged or its training failed: get it again, or another one",
        )
    return array


def _calibrated(array: Array, gram: Gram | None, scheme: WeightScheme) -> QuantizedWeight:
    """By GPTQ, where the inputs of the weight could be gathered."""
    if gram is None:
        return quantize_to_nearest(array, scheme)
    return quantize_by_gptq(array.astype(np.float32), gram, scheme)
