"""Read a model from GGUF files under its Hugging Face names and in Hugging Face layout."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphgen.runtime.checkpoint.gguf.gguf_architecture import Config, GgufArchitecture
from graphgen.runtime.checkpoint.gguf.gguf_architectures import architecture_of
from graphgen.runtime.checkpoint.gguf.gguf_header import (
    GgufHeader,
    GgufValue,
    join_parts,
    read_parts,
)
from graphgen.runtime.checkpoint.gguf.gguf_source import GgufSource, tensor_sources
from graphgen.runtime.checkpoint.interfaces import Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import no_such_tensor, unreadable

# Architecture settings that are accepted at the value the supported models have anyway.
_REQUIRED_VALUES: Final[Mapping[str, GgufValue]] = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
}
# Describes how the file was converted, not what the model computes.
_IGNORED: Final = frozenset({"tensor_data_layout"})


class GgufCheckpoint:
    """The weights and the configuration of one GGUF file or of all parts of one, memory-mapped.

    Quantised tensors are declared, and come, as f32. A GGUF name that has no Hugging Face
    equivalent is kept as it is, so that it shows up when the tensors are matched with the model.

    Args:
        path: the ``.gguf`` file, or any file of a model that was split.

    Raises:
        GraphgenError: GG0601 for a damaged file, GG0501, GG0502 or GG0503 for a model or a setting
            that cannot be translated.
    """

    def __init__(self, path: Path) -> None:
        self._parts: Final = read_parts(path)
        header = join_parts(self._parts)
        self.path: Final = header.file.path
        architecture = architecture_of(header)
        config = _read_config(header, architecture)
        self.config: Final[Mapping[str, object]] = config
        self._sources: Final[dict[str, GgufSource]] = {}
        entries = {n: e for n, e in header.tensors.items() if n not in architecture.in_config}
        for name, source in tensor_sources(architecture, entries, config):
            if name in self._sources:
                raise unreadable(path, f"two GGUF tensors are '{name}'")
            self._sources[name] = source

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        return {
            name: TensorInfo(name, source.shape, source.dtype)
            for name, source in self._sources.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``, dequantised, its values as Hugging Face has them.

        Raises:
            GraphgenError: GG0602 if there is no such tensor, GG0601 if it cannot be decoded.
        """
        source = self._sources.get(name)
        if source is None:
            raise no_such_tensor(self.path, name)
        return source.read()

    def kinds(self) -> Mapping[str, str]:
        """GGUF's name of the kind of each matrix, or stack of them, that is read row by row."""
        return {name: kind for name, source in self._sources.items() if (kind := source.kind)}

    def blocks(self, name: str) -> Array:
        """The bytes u8 [..., out, bytes of a row] of a quantized tensor, rows as in Hugging Face's.

        Args:
            name: of :meth:`kinds`.
        """
        return self._sources[name].blocks()

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits; see :class:`Checkpoint`."""
        digests = [
            part.file.digest(
                part.data_offset, [(entry.offset, entry.nbytes) for entry in part.tensors.values()]
            )
            for part in self._parts
        ]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("".join(digests).encode()).hexdigest()


def _read_config(header: GgufHeader, architecture: GgufArchitecture) -> Config:
    """The configuration under Hugging Face's names.

    Every key of the architecture is translated, known to change nothing, or an error: a key that
    is skipped could change what the model computes.

    Raises:
        GraphgenError: GG0502 for a setting that cannot be translated, GG0503 for an impossible
            value, GG0601 for a missing one.
    """
    if header.metadata.get("general.type") not in (None, "model"):
        raise header.unsupported("general.type", "only whole models can be read")
    own = header.own("")
    for full, value in header.metadata.items():
        key = full.removeprefix(own)
        if not full.startswith(own) or key in architecture.settings or key in _IGNORED:
            continue
        if key not in _REQUIRED_VALUES:
            raise header.unsupported(
                full, "this setting is not known, and it may change what the model computes"
            )
        if value != _REQUIRED_VALUES[key]:
            raise header.unsupported(full, "this kind of model is not supported")
    return {
        "architectures": [architecture.hf_class],
        "model_type": architecture.model_type,
        **architecture.config(header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": header.optional_int("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.optional_int("tokenizer.ggml.eos_token_id"),
    }
