"""NxD Inference's configurations of models with experts, as classes of the table."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Self

from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.aws.config.strict_config import StrictConfig


class GLUType(Enum):
    """The form of an expert's gate."""

    GLU = "glu"
    SWIGLU = "swiglu"


class BlockShardStrategy(Enum):
    """The blocks of each core: halves, or every other one."""

    HI_LO = "HI_LO"
    PING_PONG = "PING_PONG"


class MoENeuronConfig(NeuronConfig):
    """Options of models with experts, beside those of all models."""

    owner: ClassVar[str] = "MoENeuronConfig"


class RouterConfig(StrictConfig):
    """Options of the router."""

    owner: ClassVar[str] = "RouterConfig"

    @classmethod
    def from_kwargs(cls, **values: object) -> Self:
        """A configuration of ``router_act_fn`` and ``router_dtype``, or of the names without
        ``router_``."""
        return cls(**values)


class RoutedExpertsMLPOpsConfig(StrictConfig):
    """Options of experts."""

    owner: ClassVar[str] = "RoutedExpertsMLPOpsConfig"


class BlockwiseMatmulConfig(StrictConfig):
    """Options of products in blocks."""

    owner: ClassVar[str] = "BlockwiseMatmulConfig"

    @classmethod
    def from_kwargs(cls, **values: object) -> Self:
        """The same as the constructor."""
        return cls(**values)


class MoEFusedTKGConfig(StrictConfig):
    """Options of fused expert kernels."""

    owner: ClassVar[str] = "MoEFusedTKGConfig"


class HybridShardingConfig(StrictConfig):
    """Degrees of each phase."""

    owner: ClassVar[str] = "HybridShardingConfig"


class MixtralNeuronConfig(MoENeuronConfig):
    """The options of Mixtral models."""


class DbrxNeuronConfig(MoENeuronConfig):
    """The options of DBRX models."""


class Qwen3MoeNeuronConfig(MoENeuronConfig):
    """The options of Qwen3 models with experts."""
