"""NxD Inference's NeuronConfig and its parts, as classes of the table."""

from __future__ import annotations

from typing import ClassVar

from graphgen.runtime.aws.config.strict_config import StrictConfig


class NeuronConfig(StrictConfig):
    """Compile-time and run-time options; the attributes are those of the table."""

    owner: ClassVar[str] = "NeuronConfig"
