"""HuggingFaceGenerationModelAdapter: transformers' ``generate`` over transformers-neuronx's models.

Importing this module imports torch and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.flag_names import TNX_NAMES
from graphgen.runtime.aws_config.neuron_config import NeuronConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_config.tnx_config import TnxGenerationConfig
from graphgen.runtime.aws_nxdi.forward_inputs import RowInput, read_rows
from graphgen.runtime.aws_nxdi.generation_model import RandomNumbers
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.row_sampling import row_draw
from graphgen.runtime.aws_tnx.tnx_model import TnxModel
from graphgen.runtime.aws_tnx.tnx_sample import as_tensor, run_prompts
from graphgen.runtime.session.step_call import Draw, packed

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PreTrainedConfig


@dataclass(frozen=True, slots=True)
class _Attributes:
    """A model's ``config.json``."""

    values: Mapping[str, object]

    def to_hf(self) -> Mapping[str, object]:
        return self.values


@dataclass(frozen=True, slots=True)
class _Output:
    """Logits f32 [B,1,V], or tokens [B]."""

    logits: torch.Tensor | None
    tokens: torch.Tensor | None


@dataclass(slots=True)
class TnxApplication:
    """A compiled model of transformers-neuronx as the application that ``generate`` runs over.

    Attributes:
        model: compiled.
        model_path: of the checkpoint.
        config: the model's attributes.
        neuron_config: the sizes and the sampling of the programs, in NxD Inference's names.
        random: the random numbers of programs that draw.
    """

    model: TnxModel
    model_path: str = field(init=False)
    config: _Attributes = field(init=False)
    neuron_config: NeuronConfig = field(init=False)
    random: RandomNumbers = field(init=False)

    def __post_init__(self) -> None:
        """Describe the model."""
        session = self.model.session
        self.model_path = str(self.model.path)
        self.config = _Attributes(self.model.config)
        self.random = np.random.default_rng().random
        sampling = _sampling_config(self.model.generation_config, session.candidates)
        self.neuron_config = NeuronConfig(
            batch_size=session.rows,
            seq_len=session.limit,
            padding_side=self.model.neuron_config.value("padding_side"),
            on_device_sampling_config=sampling,
        )

    def reset(self) -> None:
        """Forget all sequences."""
        self.model.reset_generation()

    def order_rows(self, sources: Sequence[int]) -> None:
        """Let the first rows of the cache become what rows ``sources`` were, as beams go on."""
        self.model.session.order_rows(range(len(sources)), sources)

    def forward(
        self,
        input_ids: torch.Tensor,
        seq_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        *,
        adapter_ids: object = None,
        input_capture_hook: Callable[..., None] | None = None,
    ) -> object:
        """Run prompts padded on the right, or one more token of each sequence.

        Args:
            input_ids: integers [B,S].
            seq_ids: integers [B], rows of the cache.
            attention_mask: [B,S], 0 at padding.
            position_ids: integers [B,S].
            sampling_params: f32 [B,3] of top_k, top_p and temperature.
            adapter_ids: ``None``.
            input_capture_hook: called with the inputs first.

        Raises:
            GraphgenError: GG0904 for adapters, which transformers-neuronx has not.
        """
        if adapter_ids is not None:
            raise GraphgenError(
                "GG0904",
                "adapter_ids: models of transformers-neuronx have no adapters",
                help="load the model with NxD's names: NeuronLlamaForCausalLM and its lora_config",
            )
        if input_capture_hook is not None:
            input_capture_hook(input_ids, attention_mask, position_ids, seq_ids, sampling_params)
        session = self.model.session
        rows = read_rows(input_ids, attention_mask, position_ids, seq_ids, lengths=session.lengths)
        ids, positions = packed([row.tokens for row in rows], [row.start for row in rows])
        places = np.array([row.row for row in rows], np.int32)
        draw = self._draw(rows, sampling_params)
        run = session.step if all(row.start for row in rows) else partial(run_prompts, session)
        output = run(ids, positions, places, draw)
        if session.chooses:
            assert output.tokens is not None
            return _Output(None, as_tensor(output.tokens))
        assert output.logits is not None
        return _Output(as_tensor(output.logits[:, None]), None)

    def _draw(self, rows: Sequence[RowInput], sampling_params: torch.Tensor | None) -> Draw | None:
        """The sampling inputs of a call's rows."""
        session, generation = self.model.session, self.model.generation_config
        draw = row_draw(session, len(rows), sampling_params, self.neuron_config, self.random)
        if draw is None or generation is None or not session.keeps:
            return draw
        kept = [generation.of_row("top_p_min_tokens", row.row, session.rows) for row in rows]
        return Draw(draw.params, draw.random, np.array(kept, np.int32))


class HuggingFaceGenerationModelAdapter(HuggingFaceGenerationAdapter):
    """A compiled model of transformers-neuronx as a model of transformers that generates.

    See :class:`HuggingFaceGenerationAdapter` for ``generate``.

    Args:
        config: the model's configuration in transformers.
        model: compiled.

    Raises:
        GraphgenError: GG0902 for another object, GG0908 for a model that is not compiled.
    """

    def __init__(self, config: PreTrainedConfig, model: TnxModel) -> None:
        if not isinstance(model, TnxModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphgenError(
                "GG0902",
                f"HuggingFaceGenerationModelAdapter got a {type(model).__name__} as its model",
                help="give a configuration and a model, such as LlamaForSampling",
            )
        super().__init__(TnxApplication(model))
        self.config = config
        self._model = model

    def flag_names(self) -> Mapping[str, str]:
        """The attribute of each flag of graphgen's, for errors."""
        return TNX_NAMES

    def reset_generation(self) -> None:
        """Forget all sequences; ``generate`` does so too."""
        self._model.reset_generation()

    def _check_sizes(self, lengths: torch.Tensor, ids: torch.Tensor, how: GenerationConfig) -> None:
        rows = self._model.session.rows
        if len(ids) > rows:
            raise GraphgenError(
                "GG0705",
                f"{len(ids)} sequences, but the programs were compiled for {rows}: prompts x "
                "num_return_sequences",
                help=f"from_pretrained(..., batch_size={len(ids)}), or give fewer prompts",
            )
        super()._check_sizes(lengths, ids, how)


def _sampling_config(
    generation: TnxGenerationConfig | None, candidates: int
) -> OnDeviceSamplingConfig | None:
    """The sampling of programs that choose tokens."""
    if generation is None:
        return None
    fixed = {
        name: generation.value(name)
        for name in ("top_k", "top_p", "temperature")
        if generation.value("do_sample")
    }
    lines = any(isinstance(value, tuple) for value in fixed.values())
    if generation.value("dynamic") or lines:
        return OnDeviceSamplingConfig(
            do_sample=True,
            dynamic=True,
            global_topk=candidates,
            deterministic=generation.value("deterministic"),
        )
    if not generation.value("do_sample"):
        return OnDeviceSamplingConfig()
    return OnDeviceSamplingConfig(
        do_sample=True,
        global_topk=candidates,
        deterministic=generation.value("deterministic"),
        **fixed,
    )
