"""Arguments of AWS's ``forward`` whose features are not built: refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from graphgen.errors import GraphgenError

# Argument to feature and remedy.
_SPECULATION = ("fused and tree speculation", "leave it out")
_PAGES = ("a table of blocks of the caller", "leave it out: sequences get blocks by seq_ids")
_IMAGES = ("multimodal input", "leave it out")
_ACTIVATIONS = ("capture of activations", "leave it out")
UNBUILT: Mapping[str, tuple[str, str]] = {
    "prev_hidden": _SPECULATION,
    "medusa_args": _SPECULATION,
    "accepted_indices": _SPECULATION,
    "current_length": _SPECULATION,
    "medusa_mask": _SPECULATION,
    "scatter_index": _SPECULATION,
    "active_mask": _SPECULATION,
    "rotary_position_ids": _SPECULATION,
    "past_key_values": ("a cache of the caller", "leave it out: the cache stays on the device"),
    "labels": ("training", "leave it out"),
    "use_cache": ("generation without a cache", "leave it out"),
    "output_attentions": ("attention weights as output", "leave it out"),
    "slot_mapping": _PAGES,
    "block_table": _PAGES,
    "full_context_lens": _PAGES,
    "computed_context_lens": _PAGES,
    "llava_args": _IMAGES,
    "vision_embeddings": _IMAGES,
    "vision_mask": _IMAGES,
    "tf_args": _ACTIVATIONS,
    "tensor_capture_hook": _ACTIVATIONS,
}


# Arguments that are built, for the hint of a misspelled one.
_BUILT = ("inputs_embeds", "adapter_ids", "output_hidden_states", "input_capture_hook")
# Values that request nothing.
_INACTIVE: Mapping[str, object] = {
    "use_cache": True,
    "output_attentions": False,
}


def refuse_unbuilt(given: Mapping[str, object]) -> None:
    """Refuse arguments that request something; ``None`` requests nothing.

    Raises:
        GraphgenError: GG0904 for a feature that is not built, GG0901 for an unknown argument.
    """
    for name, value in given.items():
        if name not in UNBUILT:
            near = difflib.get_close_matches(name, (*_BUILT, *UNBUILT), 1)
            raise GraphgenError(
                "GG0901",
                f"forward has no argument '{name}'",
                help=f"did you mean {near[0]}?" if near else "see NeuronBaseForCausalLM.forward",
            )
        if value is not None and value is not _INACTIVE.get(name):
            feature, remedy = UNBUILT[name]
            what = f"{name} of forward: {feature} is not built yet"
            raise GraphgenError("GG0904", what, help=remedy)
