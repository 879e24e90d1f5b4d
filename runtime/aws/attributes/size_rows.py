"""Attributes for batch sizes, sequence lengths and element types."""

from __future__ import annotations

from graphgen.runtime.aws.attributes.attribute import (
    Attribute,
    CompileSetting,
    PartOf,
    same_as,
)
from graphgen.runtime.aws.attributes.value_kinds import COUNT, DTYPE

_OWNER = "NeuronConfig"

SIZES = (
    Attribute(
        name="batch_size",
        owner=_OWNER,
        kind=COUNT,
        default=1,
        doc="Number of sequences of one call.",
        source="C01",
        cpu=CompileSetting("batch"),
    ),
    Attribute(
        name="seq_len",
        owner=_OWNER,
        kind=COUNT,
        default=128,
        doc="Longest sequence, prompt and new tokens.",
        source="C03",
        cpu=CompileSetting("slots"),
    ),
    Attribute(
        name="max_length",
        owner=_OWNER,
        kind=COUNT,
        default=same_as("seq_len"),
        doc="Longest sequence.",
        source="C06",
        cpu=PartOf("seq_len"),
    ),
    Attribute(
        name="torch_dtype",
        owner=_OWNER,
        kind=DTYPE,
        default="bfloat16",
        doc="Element type of weights, activations and caches.",
        source="C09",
        cpu=CompileSetting("dtype"),
    ),
)
