"""Answers to text prompts, from an application or from a model of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.generation_model import GenerationModel

if TYPE_CHECKING:
    import torch


class _Tokenizer(Protocol):
    """The part of transformers' tokenizers that is used."""

    pad_token_id: int | None
    eos_token_id: int | None

    def __call__(self, text: list[str]) -> Mapping[str, list[list[int]]]: ...

    def batch_decode(
        self, sequences: object, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> list[str]: ...


class _Generator(Protocol):
    """The part of transformers' models that is used."""

    def generate(self, inputs: torch.Tensor, **kwargs: object) -> object: ...


def get_generate_outputs(
    model: object,
    prompts: Sequence[str],
    tokenizer: object,
    is_hf: bool = False,
    draft_model: object = None,
    generation_config: object = None,
    **generate_kwargs: object,
) -> tuple[object, list[str]]:
    """Generate from texts.

    Prompts are padded on the application's ``padding_side``, and on the left for a model of
    transformers, which counts padding on the right as tokens. The tokenizer is not changed: where
    it has no padding token, padding is the end of sequence.

    Args:
        model: an application, or a model of transformers.
        prompts: texts, at most as many as the compiled batch.
        tokenizer: of transformers.
        is_hf: ``model`` is one of transformers.
        draft_model: proposes tokens, an application beside an application and a model of
            transformers beside one; ``None`` for none.
        generation_config: the settings, a ``GenerationConfig``.
        generate_kwargs: further arguments of ``generate``.

    Returns:
        The result of ``generate``, and the text of each sequence, prompt included.

    Raises:
        GraphgenError: GG0702 for no prompt, others of ``generate``.
    """
    if not prompts:
        raise GraphgenError("GG0702", "get_generate_outputs got no prompt", help="give some texts")
    generator, side = _generator(model, is_hf)
    encoder = cast(_Tokenizer, tokenizer)
    ids, mask = _padded(encoder, prompts, side)
    if draft_model is not None:
        generate_kwargs["assistant_model"] = draft_model
    outputs = generator.generate(
        ids, attention_mask=mask, generation_config=generation_config, **generate_kwargs
    )
    texts = encoder.batch_decode(
        getattr(outputs, "sequences", outputs),
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    return outputs, texts


def _generator(model: object, is_hf: bool) -> tuple[_Generator, str]:
    """A model that generates, and the side on which its prompts are padded."""
    if is_hf:
        return cast(_Generator, model), "left"
    from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter

    adapter = HuggingFaceGenerationAdapter(cast(GenerationModel, model))
    return cast(_Generator, adapter), adapter.padding_side


def _padded(
    tokenizer: _Tokenizer, prompts: Sequence[str], side: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [B,S] and the mask [B,S] of texts."""
    import torch

    rows = tokenizer([*prompts])["input_ids"]
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = tokenizer.eos_token_id or 0
    width = max(len(row) for row in rows)
    shape = (len(rows), width)
    ids, mask = torch.full(shape, pad, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    for index, row in enumerate(rows):
        start = width - len(row) if side == "left" else 0
        ids[index, start : start + len(row)] = torch.tensor(row)
        mask[index, start : start + len(row)] = 1
    return ids, mask
