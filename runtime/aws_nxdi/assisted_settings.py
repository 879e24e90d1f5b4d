"""Settings of ``generate`` for assisted decoding; unsupported ones are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.choice_settings import takes_best
from graphgen.runtime.aws_nxdi.generation_model import ScoreProcessor
from graphgen.runtime.sampling import Sampling

if TYPE_CHECKING:
    import torch

# Processors of transformers, in the order in which they apply, with the name of their setting and
# of the attribute that has it.
_PROCESSORS = {
    "RepetitionPenaltyLogitsProcessor": ("repetition_penalty", "penalty"),
    "NoRepeatNGramLogitsProcessor": ("no_repeat_ngram_size", "ngram_size"),
    "TemperatureLogitsWarper": ("temperature", "temperature"),
    "TopKLogitsWarper": ("top_k", "top_k"),
    "TopPLogitsWarper": ("top_p", "top_p"),
    "MinPLogitsWarper": ("min_p", "min_p"),
}
# It changes no probability.
_WITHOUT_EFFECT = "LogitNormalization"
# Settings of transformers that decide how many tokens a draft proposes. Their defaults there are
# for drafts without a compiled length, so only given ones count.
DRAFT_SETTINGS = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
)


class AssistedSettings(Protocol):
    """The part of transformers' ``GenerationConfig`` about proposals; ``None`` for not given.

    Attributes:
        num_assistant_tokens: tokens that a draft proposes.
        num_assistant_tokens_schedule: how that number changes; only ``constant``.
        assistant_confidence_threshold: probability below which a draft stops; only 0.
        prompt_lookup_num_tokens: tokens that prompt lookup proposes.
        max_matching_ngram_size: longest run of last tokens that prompt lookup compares.
        return_dict_in_generate, output_scores, output_logits: what is returned.
    """

    num_assistant_tokens: int | None
    num_assistant_tokens_schedule: str | None
    assistant_confidence_threshold: float | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    return_dict_in_generate: bool | None
    output_scores: bool | None
    output_logits: bool | None


@dataclass(frozen=True, slots=True)
class EndRules:
    """The end of the rows of a batch.

    Attributes:
        length: tokens of a sequence, padding of its prompt included.
        tokens: those that end a sequence.
    """

    length: int
    tokens: frozenset[int]


def refuse_with_proposals(feature: str, remedy: str) -> NoReturn:
    """Refuse a feature that decoding with proposed tokens does not have (GG0904)."""
    raise GraphgenError(
        "GG0904",
        f"{feature} with assistant_model or prompt_lookup_num_tokens is not built yet",
        help=f"{remedy}, or generate without proposals",
    )


def check_assisted(settings: AssistedSettings, hook: object) -> None:
    """Refuse settings and outputs that decoding with proposed tokens does not have (GG0904).

    Args:
        settings: of this call.
        hook: the ``input_capture_hook``.
    """
    if settings.return_dict_in_generate:
        for name in ("output_scores", "output_logits"):
            if getattr(settings, name):
                refuse_with_proposals(name, f"leave {name} out")
    if hook is not None:
        refuse_with_proposals("input_capture_hook", "leave input_capture_hook out")
    if settings.num_assistant_tokens_schedule not in (None, "constant"):
        refuse_with_proposals(
            f"num_assistant_tokens_schedule={settings.num_assistant_tokens_schedule!r}",
            "give num_assistant_tokens, which stays",
        )
    if settings.assistant_confidence_threshold:
        refuse_with_proposals(
            "assistant_confidence_threshold", "set assistant_confidence_threshold=0"
        )


def sampling_rows(
    processors: Sequence[ScoreProcessor],
    params: Sequence[Sampling] | None,
    *,
    rows: int,
    do_sample: bool,
    seed: int,
) -> list[Sampling]:
    """The sampling settings of each row.

    Args:
        processors: transformers' own, of this call.
        params: top_k, top_p and temperature of each row, instead of the processors'; ``None`` for
            those of the processors.
        rows: B.
        do_sample: of this call.
        seed: of the random numbers.

    Raises:
        GraphgenError: GG0904 for another processor, or an order of its own.
    """
    shared: dict[str, Any] = {**_values(processors), "do_sample": do_sample, "seed": seed}
    if params is None or not do_sample:
        return [Sampling(**shared)] * rows
    made: list[Sampling] = []
    for row in params:
        filters: dict[str, Any] = {
            "top_k": row.top_k,
            "top_p": row.top_p,
            "temperature": row.temperature,
        }
        made.append(Sampling(**{**shared, **filters, "do_sample": not takes_best(row)}))
    return made


def _values(processors: Sequence[ScoreProcessor]) -> dict[str, Any]:
    """The settings that processors stand for, by name (GG0904)."""
    from transformers.generation import logits_process as ready

    values: dict[str, Any] = {}
    places = list(_PROCESSORS)
    last = -1
    for each in processors:
        name = type(each).__name__
        if type(each) is getattr(ready, name, None):
            if name == _WITHOUT_EFFECT:
                continue
            ignored = getattr(each, "prompt_ignore_length", None)
            if name in places and places.index(name) > last and not isinstance(ignored, int):
                last = places.index(name)
                setting, attribute = _PROCESSORS[name]
                values[setting] = getattr(each, attribute)
                continue
        refuse_with_proposals(
            name,
            "use repetition_penalty, no_repeat_ngram_size, temperature, top_k, top_p and min_p "
            "alone",
        )
    return values


def end_rules(criteria: Iterable[object]) -> EndRules:
    """The end of rows by transformers' length and end-of-sequence criteria (GG0904 for others)."""
    from transformers.generation import stopping_criteria as ready

    length, tokens = 1 << 62, set[int]()
    for each in criteria:
        if type(each) is ready.MaxLengthCriteria:
            length = min(length, each.max_length)
        elif type(each) is ready.EosTokenCriteria:
            ids: torch.Tensor = each.eos_token_id
            tokens |= {int(token) for token in ids.flatten()}
        else:
            refuse_with_proposals(type(each).__name__, "end by max_new_tokens and eos_token_id")
    return EndRules(length, frozenset(tokens))
