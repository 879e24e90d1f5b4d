"""NxD Inference's configurations of models with experts, as classes of the table."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Self, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import StrictConfig


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

    def rules(self) -> Iterator[GraphgenError]:
        """Check degrees of phases against the degrees of the ranks (GG0903)."""
        hybrid = self.value("hybrid_sharding_config")
        if not isinstance(hybrid, HybridShardingConfig):
            return
        tp, groups = (cast(int, self.value(name)) for name in ("tp_degree", "moe_ep_degree"))
        for phase in ("cte", "tkg"):
            shared, apart = hybrid.degrees(phase)
            if (shared, apart) != (1, 1) and shared * apart != tp:
                yield GraphgenError(
                    "GG0903",
                    f"{self.owner}.hybrid_sharding_config with tp_degree = {tp}: "
                    f"moe_{phase}_tp_degree {shared} times moe_{phase}_ep_degree {apart} must be "
                    "tp_degree",
                    help="change the degrees",
                )
        apart = hybrid.degrees("tkg")[1]
        if groups not in (1, apart):
            yield GraphgenError(
                "GG0903",
                f"{self.owner}.hybrid_sharding_config with moe_ep_degree = {groups}: "
                f"moe_tkg_ep_degree is {apart}",
                help="leave out moe_ep_degree",
            )


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

    def degrees(self, phase: str) -> tuple[int, int]:
        """Ranks that share an expert, and groups of ranks, in the phase ``cte`` or ``tkg``."""
        tp, ep = (self.value(f"moe_{phase}_{kind}_degree") for kind in ("tp", "ep"))
        return cast(int, tp), cast(int, ep)


class MixtralNeuronConfig(MoENeuronConfig):
    """The options of Mixtral models."""


class DbrxNeuronConfig(MoENeuronConfig):
    """The options of DBRX models."""


class Qwen3MoeNeuronConfig(MoENeuronConfig):
    """The options of Qwen3 models with experts."""
