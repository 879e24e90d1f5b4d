"""Turn the metadata of a GGUF file into a Hugging Face configuration, refusing what it cannot say.

Every key of the model's architecture is either translated, known to change nothing, or an error: a
key that is skipped could change what the model computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_architectures import ARCHITECTURES
from graphgen.runtime.checkpoint.gguf.gguf_families import FAMILIES, Family
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader, GgufValue
from graphgen.runtime.checkpoint.gguf.gguf_metadata import Metadata

# Keys that may be there as long as they say what the models read here do anyway.
_REQUIRED_VALUES: Final[Mapping[str, GgufValue]] = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
}
# Describes how the file was converted, not what the model computes.
_IGNORED: Final = frozenset({"tensor_data_layout"})


def read_config(header: GgufHeader) -> dict[str, object]:
    """The Hugging Face configuration of the model in a GGUF file.

    Args:
        header: of the file, or of all files of a model that is split.

    Raises:
        GraphgenError: GG0501 for an architecture that is not supported, GG0502 for a setting that
            cannot be translated, GG0503 for an impossible value, GG0601 for a missing one.
    """
    metadata = Metadata(header.file.path, header.metadata)
    architecture = metadata.architecture
    family = FAMILIES.get(architecture)
    if family is None:
        raise GraphgenError(
            "GG0501",
            f"the GGUF file holds architecture '{architecture}'; "
            f"supported: {', '.join(ARCHITECTURES)}",
            where=str(header.file.path),
            help="use the model's safetensors checkpoint instead",
        )
    if metadata.get("general.type") not in (None, "model"):
        raise metadata.unsupported("general.type", "only whole models can be read")
    _refuse_unknown_keys(metadata, family)
    return {
        **family.config(metadata, header),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": metadata.optional_int("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.optional_int("tokenizer.ggml.eos_token_id"),
    }


def _refuse_unknown_keys(metadata: Metadata, family: Family) -> None:
    for key in metadata.keys_under(metadata.own("")):
        full = metadata.own(key)
        if key in family.keys or key in _IGNORED:
            continue
        if key not in _REQUIRED_VALUES:
            raise metadata.unsupported(
                full, "this setting is not known, and it may change what the model computes"
            )
        if metadata.get(full) != _REQUIRED_VALUES[key]:
            raise metadata.unsupported(full, "this kind of model is not supported")
