"""Errors of shared code in the names of AWS's libraries: attributes in place of flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute_table import attributes_of

# A flag, and the number that is given to it.
_FLAG: Final = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:[ =](\d+))?")
# The classes whose attributes have the flags' names, NeuronConfig's first.
_OWNERS: Final = ("NeuronConfig", "MoENeuronConfig", "OnDeviceSamplingConfig", "LoraServingConfig")
_OTHER_NAMES: Final = {
    "tp": "tp_degree",
    "dtype": "torch_dtype",
    "block-size": "pa_block_size",
    "on-device-sampling": "on_device_sampling_config",
}
# Of transformers-neuronx, whose arguments of ``from_pretrained`` hold the sizes.
TNX_NAMES: Final[Mapping[str, str]] = {
    "tp": "tp_degree",
    "dtype": "amp",
    "max-len": "n_positions",
    "seq-len": "n_positions",
    "max-context-length": "context_length_estimate",
    "context-encoding-buckets": "a list for context_length_estimate",
    "on-device-sampling": "on_device_generation",
    "speculation-length": "enable_speculative_decoder",
}

Method = TypeVar("Method", bound=Callable[..., Any])


class _Attributes(Protocol):
    """A NeuronConfig, or one of the same names."""

    def is_given(self, name: str, /) -> bool:
        """True for an attribute that somebody set."""
        ...


class _WithNames(Protocol):
    """A model of AWS's libraries."""

    def flag_names(self) -> Mapping[str, str]:
        """The attribute of each flag, without its two hyphens."""
        ...


def nxdi_names(config: _Attributes) -> Mapping[str, str]:
    """The attribute of NxD Inference's for each flag.

    Args:
        config: whose ``max_length`` limits sequences where it is given, else ``seq_len``.
    """
    named = {
        name.replace("_", "-"): name for owner in reversed(_OWNERS) for name in attributes_of(owner)
    }
    longest = length_attribute(config)
    return {**named, **_OTHER_NAMES, "max-len": longest, "seq-len": longest}


def length_attribute(config: _Attributes) -> str:
    """The attribute that limits sequences: ``max_length`` where it is given."""
    return "max_length" if config.is_given("max_length") else "seq_len"


def in_attributes(method: Method) -> Method:
    """Let errors that leave a method name the attributes of its object's ``flag_names``."""

    @wraps(method)
    def guarded(self: _WithNames, *args: object, **kwargs: object) -> object:
        try:
            return method(self, *args, **kwargs)
        except GraphgenError as error:
            names = self.flag_names()
            error.what, error.help = (_renamed(text, names) for text in (error.what, error.help))
            raise

    return cast(Method, guarded)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    def attribute(found: re.Match[str]) -> str:
        name = names.get(found[1])
        if name is None:
            return found[0]
        return name if found[2] is None else f"{name}={found[2]}"

    return _FLAG.sub(attribute, text)
