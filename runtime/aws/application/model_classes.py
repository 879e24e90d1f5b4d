"""The application class of each model family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.families import llama_like, mixtures, other_decoders


def _defined() -> Iterator[type[NeuronBaseForCausalLM]]:
    """The classes that the modules of families define; a user's subclasses are not among them."""
    for module in (llama_like, mixtures, other_decoders):
        for found in vars(module).values():
            known = isinstance(found, type) and issubclass(found, NeuronBaseForCausalLM)
            if known and found is not NeuronBaseForCausalLM:
                yield found


# By Hugging Face's model_type.
CAUSAL_LM: Mapping[str, type[NeuronBaseForCausalLM]] = {cls.model_type(): cls for cls in _defined()}
