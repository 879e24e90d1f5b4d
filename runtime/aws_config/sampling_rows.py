"""Attributes of on-device sampling."""

from __future__ import annotations

from typing import cast

from graphgen.config.fields import integer, number, optional
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileRequest,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    sets,
)
from graphgen.runtime.aws_config.value_kinds import BOOL, COUNT, INDEX, nested

# Settings of one row, and the values that take the best token.
_SETTINGS = {"top_k": 1, "top_p": 1.0, "temperature": 1.0}


def _draws(values: Values) -> object:
    """True when all rows have a setting that only drawn tokens depend on."""
    differ = any(values[name] != best for name, best in _SETTINGS.items())
    return differ and not values["dynamic"]


def _pass(request: CompileRequest) -> str:
    """The pass that lets programs choose tokens; empty for logits."""
    sampling = cast("Values | None", request["on_device_sampling_config"])
    if sampling is None:
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.programs.on_device_sampling import OnDeviceSampling

    return str(
        OnDeviceSampling(
            do_sample=bool(sampling["do_sample"] or sampling["dynamic"]),
            global_topk=cast(int, sampling["global_topk"]),
            deterministic=bool(sampling["deterministic"]),
            output_logits=bool(request["output_logits"]),
        )
    )


_PASS = sets("sampling", _pass)

SAMPLING = owned_by(
    "NeuronConfig",
    Attribute(
        "on_device_sampling_config",
        optional(nested("OnDeviceSamplingConfig")),
        None,
        "lets the programs choose the tokens; None for programs that give logits",
        _PASS,
        source="C26",
    ),
    Attribute(
        "output_logits",
        BOOL,
        False,
        "whether programs that choose the tokens give the logits too",
        _PASS,
        source="C68",
    ),
    Attribute(
        "sampling_dp_degree",
        optional(COUNT),
        None,
        "groups of ranks that sample different rows",
        Refused("sampling split by rows", "leave it out: each rank samples all rows"),
        inactive=(1,),
    ),
    Attribute(
        "disable_argmax_kernel",
        BOOL,
        False,
        "whether the highest logit is found without a kernel",
        NoEffect("the highest logit is found by ordinary ops"),
    ),
)

ON_DEVICE_SAMPLING = owned_by(
    "OnDeviceSamplingConfig",
    Attribute(
        "do_sample",
        BOOL,
        Derived(
            "True if top_k, top_p or temperature is not its default, and dynamic is False", _draws
        ),
        "draws tokens (True), or takes the best one (False)",
        _PASS,
        source="C27",
        decision="the newer reference says False, the older one True, and the guide's multinomial "
        "example gives top_k alone; so False, unless a setting differs from its default that only "
        "drawn tokens depend on, because a setting must have an effect; a call of generate without "
        "do_sample takes the best token of programs that draw, too",
    ),
    Attribute(
        "top_k",
        integer(-1),
        1,
        "tokens to draw from, of a row that gives none; 0 and -1 for all",
        RunTimeSetting("the sampling parameters of rows that give none"),
        source="C28",
    ),
    Attribute(
        "top_p",
        number(0, 1, open_low=True),
        1.0,
        "probability that the tokens to draw from reach together, of a row that gives none",
        RunTimeSetting("the sampling parameters of rows that give none"),
        source="C29",
    ),
    Attribute(
        "temperature",
        number(0),
        1.0,
        "divisor of the logits, of a row that gives none; 0 for the best token",
        RunTimeSetting("the sampling parameters of rows that give none"),
        source="C29",
    ),
    Attribute(
        "dynamic",
        BOOL,
        False,
        "whether each row of a call has its own sampling_params",
        _PASS,
        source="C30",
        decision="the guide wants it for top_p and temperature; here they are also the same for "
        "all rows without it",
    ),
    Attribute(
        "deterministic",
        BOOL,
        False,
        "whether tokens are drawn with the number 0.5 instead of random ones",
        _PASS,
        source="C31",
    ),
    Attribute(
        "global_topk",
        INDEX,
        256,
        "best tokens that are looked at when drawing; 0 for all",
        _PASS,
        source="C32",
    ),
    Attribute(
        "on_device_sampling_config",
        BOOL,
        True,
        "a mark that the library writes into its files; always True",
        PartOf("NeuronConfig.on_device_sampling_config"),
    ),
    Attribute(
        "top_k_kernel_enabled",
        BOOL,
        False,
        "finds the best tokens by a kernel",
        NoEffect("kernels exist on Neuron devices only"),
        Refused("the top-k kernel", "leave it out: ordinary ops compute the same"),
    ),
)
