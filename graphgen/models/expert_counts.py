"""Numbers of experts: in a ``config.json``, and in the small twins of a model."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader

# Of a mini: with few chosen out of many, dispatch by cost chooses as it does for the model.
_EXPERTS, _CHOSEN = 16, 2


def read_experts(reader: ConfigReader, key: str, defaults: tuple[int, int]) -> tuple[int, int]:
    """The number of experts under ``key`` and of those that a token has (GG0503).

    Settings of training are left out: the router's loss and its noise.
    """
    reader.neutral("router_aux_loss_coef", "router_jitter_noise", "output_router_logits")
    experts = reader.integer(key, defaults[0])
    chosen = reader.integer("num_experts_per_tok", defaults[1])
    if chosen > experts:
        raise GraphgenError(
            "GG0503", f"config: num_experts_per_tok = {chosen}, but there are {experts} experts"
        )
    return experts, chosen


def small_experts(experts: int, chosen: int) -> tuple[int, int]:
    """The experts of a mini and those of a token: few of many, where the model has many."""
    if experts < 8:
        return experts, chosen
    # A kernel that chooses from multiples of 8 pads other numbers.
    few = _EXPERTS if experts % 8 == 0 else _EXPERTS - 4
    return few, few if chosen == experts else min(chosen, _CHOSEN)
