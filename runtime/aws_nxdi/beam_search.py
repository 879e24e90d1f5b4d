"""Beam search of transformers over an application: the rows of its cache follow the beams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch  # noqa: TID253 - imported by the adapter alone, which needs torch
from transformers import GenerationConfig, GenerationMixin  # noqa: TID253 - the same
from transformers.modeling_outputs import CausalLMOutput  # noqa: TID253 - the same

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.generation_model import GenerationModel, ModelOutput
from graphgen.runtime.aws_nxdi.prompt_rows import PromptRows

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false


class BeamModel(GenerationMixin):
    """The part of a model that transformers' ``_beam_search`` calls, over one batch of prompts.

    Args:
        model: a loaded application whose programs give logits.
        prompts: a row for each beam, those of a prompt side by side.
        config: of transformers.
        adapter_ids: adapter of each row; ``None`` for the base model.
        hook: called with the inputs of each call of the model.
    """

    _is_stateful = False

    def __init__(
        self,
        model: GenerationModel,
        prompts: PromptRows,
        config: Any,
        adapter_ids: object = None,
        hook: Callable[..., None] | None = None,
    ) -> None:
        self.config = config
        self._model = model
        self._prompts = prompts
        self._adapter_ids = adapter_ids
        self._hook = hook
        self._rows = torch.arange(len(prompts.lengths))
        self._positions: torch.Tensor | None = None

    def search(self, processors: Any, criteria: Any, how: GenerationConfig) -> Any:
        """Search: sequences, or an output with them, as transformers' ``generate`` returns.

        Sequences begin with the prompts as they were given.

        Args:
            processors: of logits.
            criteria: end beams.
            how: the settings.
        """
        self._model.reset()
        # The cache is that of the application: transformers wants one to reorder.
        arguments: dict[str, Any] = {"past_key_values": None, "use_cache": True}
        found: Any = cast(Any, self)._beam_search(
            self._prompts.left, processors, criteria, how, **arguments
        )
        sequences = found if isinstance(found, torch.Tensor) else found.sequences
        given = self._prompts.given[:: how.num_beams or 1]
        size = given.shape[1]
        sequences[:, :size] = given.repeat_interleave(len(sequences) // len(given), 0)
        return found

    def prepare_inputs_for_generation(self, input_ids: Any, **others: object) -> dict[str, Any]:
        """All tokens so far; those that are in the cache are left out by the call."""
        return {"input_ids": input_ids}

    def __call__(self, input_ids: torch.Tensor, return_dict: bool = True) -> CausalLMOutput:
        """The logits f32 [B,1,V] after the prompts, or after the last token of each row."""
        if self._positions is None:
            self._positions = self._prompts.lengths
            made = self._model.forward(
                self._prompts.right,
                seq_ids=self._rows,
                attention_mask=self._prompts.mask,
                position_ids=self._prompts.positions,
                adapter_ids=self._adapter_ids,
                input_capture_hook=self._hook,
            )
        else:
            made = self._model.forward(
                input_ids[:, -1:],
                seq_ids=self._rows,
                position_ids=self._positions[:, None],
                input_capture_hook=self._hook,
            )
            self._positions = self._positions + 1
        return CausalLMOutput(logits=cast(Any, cast(ModelOutput, made).logits))

    def _reorder_cache(self, past_key_values: object, beam_idx: torch.Tensor) -> None:
        """Let the rows of the cache follow the beams that go on, ``beam_idx`` integers [B]."""
        self._model.order_rows(beam_idx.tolist())


def check_beams(model: GenerationModel, params: object) -> None:
    """Refuse beams of programs that give no logits, or that propose tokens (GG0903, GG0904).

    Args:
        model: the application.
        params: the ``sampling_params`` of the call.
    """
    read = model.neuron_config.value
    if read("on_device_sampling_config") is not None and not read("output_logits"):
        raise GraphgenError(
            "GG0903",
            "num_beams needs logits on the host, and the programs give tokens alone",
            help="compile without on_device_sampling_config, or with output_logits=True",
        )
    if params is not None:
        raise GraphgenError(
            "GG0904",
            "num_beams with sampling_params is not built yet",
            help="give top_k, top_p and temperature to generate",
        )
