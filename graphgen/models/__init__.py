"""Model families: one file each with configuration, forward pass and checkpoint names.

``decoder.py`` is the decoder that most share, ``registry.py`` the table of families.
"""

from __future__ import annotations

from graphgen.models.family import Family, ModelConfig
from graphgen.models.family_module import build_module
from graphgen.models.llama import LlamaConfig, read_llama
from graphgen.models.named_shapes import SHAPES, SOURCES, shape_name
from graphgen.models.program_form import PHASES, ExpertOutputs, ProgramForm
from graphgen.models.registry import (
    FAMILIES,
    build,
    family_of,
    known_family,
    known_shape,
    read_model_config,
    register_family,
)

__all__ = [
    "FAMILIES",
    "PHASES",
    "SHAPES",
    "SOURCES",
    "ExpertOutputs",
    "Family",
    "LlamaConfig",
    "ModelConfig",
    "ProgramForm",
    "build",
    "build_module",
    "family_of",
    "known_family",
    "known_shape",
    "read_llama",
    "read_model_config",
    "register_family",
    "shape_name",
]
