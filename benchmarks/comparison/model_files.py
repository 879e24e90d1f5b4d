"""Write the weights of a GGUF file in the forms that the engines read: GGUF and Hugging Face's.

All start from the same dequantized values, each rounded once: what was Q4_1 in the published file
is Q8_0 or bf16 of what Q4_1 meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

from benchmarks.comparison.interfaces import ModelFiles
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

# Of matrices, by ``Case.weights``; vectors stay f32, as in files that llama.cpp writes.
GGUF_TYPES: Mapping[str, GGMLQuantizationType] = {
    "f32": GGMLQuantizationType.F32,
    "bf16": GGMLQuantizationType.BF16,
    "f16": GGMLQuantizationType.F16,
    "int8": GGMLQuantizationType.Q8_0,
    "int4": GGMLQuantizationType.Q4_0,
}
# Of ``general.file_type``, as llama.cpp numbers them.
FILE_TYPES = {"f32": 0, "bf16": 32, "f16": 1, "int8": 7, "int4": 2}
# Made by the writer itself.
WRITTEN = ("GGUF.", "general.architecture", "general.file_type")


def write_files(checkpoint: Checkpoint, folder: Path) -> ModelFiles:
    """Write what is not there yet below ``folder``.

    Args:
        checkpoint: of one GGUF file.
        folder: for all of them; 1.6 GB for SmolLM2-135M.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{kind}.gguf" for kind in GGUF_TYPES}
    missing = [kind for kind, path in paths.items() if not path.exists()]
    for kind in missing:
        write_gguf(checkpoint.path, paths[kind], kind)
    hf = folder / "hf"
    if not (hf / "config.json").exists():
        write_hf_folder(checkpoint, hf)
    texts = {kind: str(path) for kind, path in paths.items()}
    return ModelFiles(str(checkpoint.path), texts, str(hf))


def write_gguf(source: Path, target: Path, kind: str) -> None:
    """Write the metadata and the tensors of ``source`` again, matrices in the type of ``kind``."""
    reader = GGUFReader(source)
    architecture: Any = reader.fields["general.architecture"].contents()
    part = target.with_suffix(".part")
    writer = GGUFWriter(part, architecture)
    for name, field in reader.fields.items():
        if not name.startswith(WRITTEN):
            inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(FILE_TYPES[kind])
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        type_ = GGUF_TYPES[kind] if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(target)


def write_hf_folder(checkpoint: Checkpoint, folder: Path) -> None:
    """Write ``model.safetensors`` in float32, the tokenizer, and last ``config.json``."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    names = checkpoint.tensors()
    tensors = {name: np.ascontiguousarray(checkpoint.read(name), np.float32) for name in names}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    parts = load_tokenizer(checkpoint.path).parts
    parts.backend.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": parts.eos_token}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    config = {**checkpoint.config, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
