"""Attributes that state how experts compute, beside the model's own configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.models import read_model_config
from graphgen.models.registry import BUILT_IN
from graphgen.nn import MixtureConfig
from graphgen.runtime.aws_config.attribute import DescribesModel
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig, RouterConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import StrictConfig

# Results that programs of models with experts have.
_RESULTS = ("return_expert_index", "return_router_logits")
_SHARED = "shared_experts_sequence_parallel_enabled"


def check_experts(config: NeuronConfig, model: Mapping[str, object]) -> None:
    """Refuse attributes that contradict the model's mixture of experts.

    A family of the user's that does not say which mixtures it has is made of the same
    configuration, and is not checked.

    Args:
        config: the attributes.
        model: a ``config.json``.

    Raises:
        GraphgenError: GG0903 for an attribute with another value than the model's, and for a model
            without experts.
    """
    if not isinstance(config, MoENeuronConfig):
        return
    read = read_model_config(model)
    mixture_of = cast(
        "Callable[[int], MixtureConfig | None] | None", getattr(read, "mixture", None)
    )
    layers = getattr(read, "num_hidden_layers", 0)
    kind = str(model.get("model_type"))
    if mixture_of is None and kind not in BUILT_IN:
        return
    mixtures = [mixture_of(layer) for layer in range(layers)] if mixture_of is not None else []
    mixtures = [mixture for mixture in mixtures if mixture is not None]
    for owner, name, value in _stated(config):
        if (error := _contradiction(mixtures, kind, name, value)) is not None:
            error.what = f"{owner}.{name} = {value!r}: {error.what}"
            raise error


def _contradiction(
    mixtures: Sequence[MixtureConfig], kind: str, name: str, value: object
) -> GraphgenError | None:
    """The error of an attribute, without its name; ``None`` if the model says the same."""
    if not mixtures:
        return GraphgenError(
            "GG0903", f"a model of type {kind} has no experts", help="use NeuronConfig"
        )
    if name == _SHARED and all(mixture.shared is None for mixture in mixtures):
        what = f"a model of type {kind} has no shared experts"
        return GraphgenError("GG0903", what, help=f"leave {name} out")
    if name in (*_RESULTS, _SHARED):
        return None
    allowed = _allowed(mixtures[0], name)
    if value in allowed:
        return None
    return GraphgenError(
        "GG0903",
        f"a model of type {kind} has {' or '.join(map(repr, allowed))}",
        help=f"leave {name} out: the model's own configuration decides",
    )


def _stated(config: StrictConfig) -> Iterator[tuple[str, str, object]]:
    """Class, name and value of each attribute that says something about the model."""
    for name, value in config.given.items():
        if isinstance(value, RouterConfig):
            yield from _stated(value)
            continue
        states = isinstance(config.attribute(name).cpu, DescribesModel) and value is not None
        results = name in (*_RESULTS, _SHARED) and value not in (None, config.default(name))
        if states or results:
            yield config.owner, name, value


def _allowed(mixture: MixtureConfig, name: str) -> tuple[object, ...]:
    """The values of an attribute that say what the mixture computes."""
    form, router = mixture.form, mixture.router
    sums_to_one = (True, False) if router.over == "chosen" else (router.normalize,)
    found: dict[str, tuple[object, ...]] = {
        "glu_mlp": (True,),
        "glu_type": (form.glu,),
        "hidden_act_scaling_factor": (form.activation_scale,),
        "hidden_act_bias": (form.up_offset,),
        "gate_clamp_lower_limit": _bound(form.gate_bounds[0]),
        "gate_clamp_upper_limit": _bound(form.gate_bounds[1]),
        "up_clamp_lower_limit": _bound(form.up_bounds[0]),
        "up_clamp_upper_limit": _bound(form.up_bounds[1]),
        "early_expert_affinity_modulation": (form.modulate == "input",),
        "normalize_top_k_affinities": sums_to_one,
        "disable_normalize_top_k_affinities": tuple(not one for one in sums_to_one),
        "act_fn": (router.score,),
    }
    return found[name]


def _bound(value: float) -> tuple[object, ...]:
    return (None,) if abs(value) == inf else (value,)
