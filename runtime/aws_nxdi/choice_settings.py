"""The next token of each row: from logits on the host, or from programs that choose it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.generation_model import (
    AttributeValues,
    GenerationSettings,
    ScoreProcessor,
)
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.sampling_params import settings_of_params
from graphgen.runtime.session.session import Session

if TYPE_CHECKING:
    import torch

# Processors of transformers that programs have as inputs.
_WARPERS = ("TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper")
# Top_k, top_p and temperature of a greedy row.
_BEST = (1.0, 1.0, 1.0)
# The same where (1, 1, 1) stands for the settings of the programs.
BEST_TOKEN = (1.0, 1.0, 0.0)


def takes_best(how: Sampling) -> bool:
    """True if only the most probable token can be chosen."""
    return not how.do_sample or how.top_k == 1 or how.temperature == 0


@dataclass(frozen=True, slots=True)
class OnDeviceChoice:
    """Settings for programs that choose tokens.

    Attributes:
        sampling_params: f32 [B,3], or ``None`` for the settings fixed at compile time.
    """

    sampling_params: torch.Tensor | None


def on_device_choice(
    device: AttributeValues,
    generation: GenerationSettings,
    sampling_params: torch.Tensor | None,
    rows: int,
) -> OnDeviceChoice:
    """The inputs of programs that choose tokens as ``generation`` says.

    Args:
        device: the OnDeviceSamplingConfig that the programs were compiled for.
        generation: the settings of this call.
        sampling_params: f32 [B,3]; they replace do_sample, top_k, top_p and temperature.
        rows: B.

    Raises:
        GraphgenError: GG0903 for draws that differ from those fixed at compile time, GG0705 for
            ``sampling_params`` of another shape or out of range.
    """
    import torch

    if sampling_params is None:
        wanted = _wanted(generation)
        params = torch.tensor([wanted], dtype=torch.float32).expand(rows, 3)
    else:
        params = sampling_params.to(torch.float32)
    settings = settings_of_params(params.numpy(), rows)
    if bool(device.value("dynamic")):
        return OnDeviceChoice(params)
    fixed = _fixed(device)
    for how in settings:
        # Programs that draw take the best token of a row, too.
        if not takes_best(how) and how != fixed:
            raise GraphgenError(
                "GG0903",
                f"the programs {_text(fixed)}, and this call wants to {_text(how)}",
                help=f"generate with {_arguments(fixed)}, or compile with "
                "OnDeviceSamplingConfig(do_sample=True, dynamic=True)",
            )
    if takes_best(fixed) or all(how == fixed for how in settings):
        return OnDeviceChoice(None)
    best = torch.tensor([takes_best(how) for how in settings])
    return OnDeviceChoice(torch.where(best[:, None], torch.tensor([BEST_TOKEN]), params))


def device_rows(rows: Sequence[Sampling], session: Session) -> list[Sampling]:
    """The settings of rows as the programs of a session draw: of their candidates alone."""
    return [
        replace(how, global_topk=session.candidates, deterministic=session.deterministic)
        if how.do_sample
        else how
        for how in rows
    ]


def _wanted(generation: GenerationSettings) -> tuple[float, float, float]:
    if not generation.do_sample:
        return _BEST
    top_p, temperature = generation.top_p, generation.temperature
    return (
        generation.top_k or 0,
        1.0 if top_p is None else top_p,
        1.0 if temperature is None else temperature,
    )


def _fixed(device: AttributeValues) -> Sampling:
    """The settings of programs that were compiled for fixed ones."""
    if not device.value("do_sample"):
        return Sampling()
    names = ("top_k", "top_p", "temperature")
    top_k, top_p, temperature = (cast(float, device.value(name)) for name in names)
    return settings_of_params([[top_k, top_p, temperature]])[0]


def _text(how: Sampling) -> str:
    return "take the best token" if takes_best(how) else f"sample with {_values(how)}"


def _values(how: Sampling) -> str:
    return f"top_k={how.top_k}, top_p={how.top_p:g}, temperature={how.temperature:g}"


def _arguments(how: Sampling) -> str:
    return "do_sample=False" if takes_best(how) else f"do_sample=True, {_values(how)}"


def refuse_host_only(
    processors: Sequence[ScoreProcessor], generation: GenerationSettings, *, gives_logits: bool
) -> None:
    """Refuse what needs logits on the host where programs choose tokens (GG0903).

    Args:
        processors: of this call.
        generation: the settings of this call.
        gives_logits: the programs return logits too.
    """
    remedy = "compile without on_device_sampling_config: the host then chooses from logits"
    extra = [type(each).__name__ for each in processors if type(each).__name__ not in _WARPERS]
    if extra:
        what = f"{extra[0]} needs logits on the host, and the programs choose the tokens"
        raise GraphgenError("GG0903", what, help=remedy)
    if generation.return_dict_in_generate and generation.output_scores:
        what = "output_scores needs logits on the host, and the programs choose the tokens"
        raise GraphgenError("GG0903", what, help=remedy)
    if generation.return_dict_in_generate and generation.output_logits and not gives_logits:
        raise GraphgenError(
            "GG0903",
            "output_logits: the programs return tokens alone",
            help="compile with NeuronConfig(output_logits=True)",
        )


def ignore_padding(processors: Sequence[ScoreProcessor], padding: torch.Tensor) -> None:
    """Let penalties leave out the padding of rows that are padded on the left now.

    Args:
        processors: of this call; transformers has counted padding before the prompts as given.
        padding: integers [B].
    """
    for each in processors:
        if hasattr(getattr(each, "prompt_ignore_length", None), "shape"):
            setattr(each, "prompt_ignore_length", padding)  # noqa: B010 - of some classes alone


def host_processors(
    processors: Sequence[ScoreProcessor], generation: GenerationSettings, rows: Sequence[Sampling]
) -> Sequence[ScoreProcessor]:
    """The processors with filters of each row in place of those of ``generation``.

    Args:
        processors: of this call.
        generation: the settings of this call.
        rows: settings of each row.

    Raises:
        GraphgenError: GG0903 for rows that sample, where ``generation`` does not.
    """
    if not generation.do_sample:
        drawn = [how for how in rows if not takes_best(how)]
        if drawn:
            raise GraphgenError(
                "GG0903",
                f"sampling_params {_text(drawn[0])}, and generate has do_sample=False",
                help="give do_sample=True, or leave sampling_params out",
            )
        return processors
    names = [type(each).__name__ for each in processors]
    place = min((names.index(name) for name in _WARPERS if name in names), default=len(names))
    after = [each for each in processors[place:] if type(each).__name__ not in _WARPERS]
    return [*processors[:place], _RowFilters(rows), *after]


class _RowFilters:
    """Temperature, top_k and top_p of each row, as transformers' processors."""

    def __init__(self, rows: Sequence[Sampling]) -> None:
        self._rows = [_filters(how) for how in rows]

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        filtered: list[torch.Tensor] = []
        for index, filters in enumerate(self._rows):
            row = scores[index : index + 1]
            for each in filters:
                row = each(ids[index : index + 1], row)
            filtered.append(row)
        return torch.cat(filtered)


def _filters(how: Sampling) -> list[ScoreProcessor]:
    """The filters of one row, in transformers' order."""
    from transformers.generation import logits_process as ready

    made: list[object] = []
    if takes_best(how):
        made.append(ready.TopKLogitsWarper(1))
    else:
        if how.temperature != 1:
            made.append(ready.TemperatureLogitsWarper(how.temperature))
        if how.top_k:
            made.append(ready.TopKLogitsWarper(how.top_k))
        if how.top_p < 1:
            made.append(ready.TopPLogitsWarper(how.top_p))
    return cast("list[ScoreProcessor]", made)
