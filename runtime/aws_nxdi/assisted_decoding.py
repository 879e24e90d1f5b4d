"""``assistant_model`` and ``prompt_lookup_num_tokens`` of ``generate``, for any batch size.

The loop is :class:`~graphgen.runtime.speculation.speculator.Speculator`, not transformers': each
row accepts by itself. Greedy tokens are those of plain decoding, drawn ones have its distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.draft_checks import (
    check_draft_adapters,
    eagle_checkpoint,
    is_fused,
)
from graphgen.runtime.aws_config.medusa_checks import tree_of
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.assisted_settings import AssistedSettings, EndRules
from graphgen.runtime.aws_nxdi.prompt_rows import PromptRows
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.open_speculator import check_same_tokens, eagle_draft
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Session, reserve_blocks
from graphgen.runtime.speculation.decode_loop import SpeculativeLoop
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.fused_steps import FusedSteps, has_fused_steps
from graphgen.runtime.speculation.medusa_tree import MedusaProposer
from graphgen.runtime.speculation.prompt_lookup import PromptLookup
from graphgen.runtime.speculation.speculator import Speculator
from graphgen.runtime.speculation.tree_speculator import TreeSpeculator
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    import torch

    from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase

_drafts: WeakKeyDictionary[Session, EagleDraft] = WeakKeyDictionary()


def has_eagle(model: object) -> bool:
    """True for an application whose ``generate`` proposes tokens by an EAGLE draft."""
    config = getattr(model, "neuron_config", None)
    return config is not None and bool(config.value("enable_eagle_speculation"))


def has_fused(model: object) -> bool:
    """True for an application whose programs propose and accept by themselves."""
    config = getattr(model, "neuron_config", None)
    return config is not None and is_fused(config)


def eagle_of(model: NeuronApplicationBase) -> EagleDraft:
    """The draft of a loaded application, opened at its first use.

    Raises:
        GraphgenError: GG0903 for a draft of another kind than the attributes say, GG05xx and
            GG06xx for its files, GG0705 for one that does not fit the target.
    """
    running = model.running()
    if running.session not in _drafts:
        draft = eagle_checkpoint(model.config, model.model_path, model.draft_folder)
        checkpoint = cast(EagleCheckpoint, draft)
        made = eagle_draft(running.session, running.model.settings, checkpoint, model.progress)
        _drafts[running.session] = made
    return _drafts[running.session]


def has_medusa(model: object) -> bool:
    """True for an application with ``is_medusa``."""
    config = getattr(model, "neuron_config", None)
    return config is not None and bool(config.value("is_medusa"))


def medusa_of(model: object) -> TreeSpeculator:
    """The speculator of an application with ``is_medusa``."""
    tree = tree_of(cast(NeuronConfig, getattr(model, "neuron_config", None)))
    return TreeSpeculator(MedusaProposer(tree), tree.nodes)


# pyright: reportUnknownMemberType=false


# Tokens that prompt lookup compares in transformers, where nothing is given.
_LONGEST_MATCH = 2


class RunningPrograms(Protocol):
    """The programs of an application that is loaded."""

    @property
    def session(self) -> Session:
        """Programs, weights and cache."""
        ...


@runtime_checkable
class SpeculatingModel(Protocol):
    """The part of an application that verifies or proposes tokens.

    Attributes:
        model_path: the checkpoint, or a compiled folder.
        neuron_config: its attributes.
    """

    model_path: str
    neuron_config: NeuronConfig

    def note_async_mode(self) -> None:
        """Print once that ``async_mode`` has no effect here."""
        ...

    def running(self) -> RunningPrograms:
        """The loaded programs (GG0908)."""
        ...

    def reset(self) -> None:
        """Forget all sequences."""
        ...

    def use_adapters(self, adapter_ids: object, rows: int) -> None:
        """Let the next prompts, of rows 0, 1, ..., use their adapters (GG0402, GG0705)."""
        ...


def open_speculator(
    target: SpeculatingModel, assistant: object, settings: AssistedSettings, needs: Sequence[int]
) -> SpeculativeLoop:
    """The speculator of one call of ``generate``.

    Args:
        target: verifies.
        assistant: an application that proposes, or its adapter; the target itself for its heads of
            Medusa; ``None`` for prompt lookup, and without that for the target's EAGLE draft.
        settings: of this call.
        needs: the number of positions of each row.

    Raises:
        GraphgenError: GG0903 for programs that verify fewer tokens and for two kinds of proposals,
            GG0902 for an assistant of another kind, GG0705 for one with fewer rows or
            another tokenizer, GG0904 for one without logits, GG0908 before it is loaded.
    """
    session, lookup = target.running().session, settings.prompt_lookup_num_tokens
    if has_fused_steps(session):
        if assistant is not None or lookup is not None:
            raise GraphgenError(
                "GG0903",
                "assistant_model and prompt_lookup_num_tokens propose tokens, and so do the "
                "programs of enable_fused_speculation",
                help="leave them out",
            )
        return FusedSteps(session.steps)
    if assistant is None and lookup is None:
        model = cast("NeuronApplicationBase", target)
        return Speculator(eagle_of(model), session.table.verifies)
    if lookup is not None and assistant is not None:
        raise GraphgenError(
            "GG0903",
            "assistant_model and prompt_lookup_num_tokens both propose tokens",
            help="leave one of them out",
        )
    if lookup is not None:
        length = _length(session, "prompt_lookup_num_tokens", lookup)
        return Speculator(PromptLookup(settings.max_matching_ngram_size or _LONGEST_MATCH), length)
    if getattr(assistant, "neuron_model", assistant) is target and has_medusa(target):
        return medusa_of(target)
    own = getattr(getattr(assistant, "generation_config", None), "num_assistant_tokens", None)
    length = _length(session, "num_assistant_tokens", settings.num_assistant_tokens or own)
    return Speculator(draft_of(target, assistant, needs), length)


def _length(session: Session, name: str, proposed: int | None) -> int:
    """k of a step, from the number of tokens proposed if it is given (GG0903)."""
    verifies = session.table.verifies
    wanted = 5 if proposed is None else proposed + 1
    if verifies == 0:
        raise GraphgenError(
            "GG0903",
            "assistant_model and prompt_lookup_num_tokens need programs that verify tokens",
            help=f"compile with NeuronConfig(speculation_length={max(wanted, 2)})",
        )
    if proposed is None:
        return verifies
    if not 1 <= proposed < verifies:
        raise GraphgenError(
            "GG0903",
            f"{name}={proposed}, and programs of speculation_length={verifies} verify 1 to "
            f"{verifies - 1} proposed tokens",
            help=f"give {name}={verifies - 1}, or compile with "
            f"NeuronConfig(speculation_length={max(wanted, 2)})",
        )
    return wanted


def draft_of(target: SpeculatingModel, assistant: object, needs: Sequence[int]) -> DraftModel:
    """An application as the draft of another one.

    Args:
        target: verifies.
        assistant: a loaded application, or its adapter.
        needs: the number of positions of each row.

    Raises:
        GraphgenError: GG0902, GG0903, GG0904, GG0705 and GG0908 as :func:`open_speculator`.
    """
    draft = getattr(assistant, "neuron_model", assistant)
    if not isinstance(draft, SpeculatingModel):
        raise GraphgenError(
            "GG0902",
            f"assistant_model is a {type(assistant).__name__}, not an application",
            help="give a loaded application, or HuggingFaceGenerationAdapter(application)",
        )
    if draft is target:
        raise GraphgenError(
            "GG0903",
            "assistant_model is the model itself, whose cache cannot hold both sequences",
            help="load another application, or give prompt_lookup_num_tokens",
        )
    check_draft_adapters(draft.neuron_config, target.neuron_config)
    _check_tokens(target.model_path, draft.model_path)
    made = draft.running().session
    check_draft(made, len(needs))
    draft.reset()
    limit = min(made.limit, made.slots)
    reserve_blocks(made, {row: min(need, limit) for row, need in enumerate(needs)})
    session = target.running().session
    return DraftModel(made, session.vocabulary or session.token_ids)


def check_draft(draft: Session, rows: int) -> None:
    """Refuse programs that cannot propose tokens for all rows (GG0705, GG0904)."""
    if draft.rows < rows:
        raise GraphgenError(
            "GG0705",
            f"{rows} sequences, but the draft was compiled for {draft.rows}",
            help=f"compile the draft with batch_size={rows}",
        )
    if draft.draws or not draft.vocabulary:
        raise GraphgenError(
            "GG0904",
            "a draft whose programs choose tokens is not built yet: proposals follow from logits",
            help="compile the draft without on-device sampling",
        )


def _check_tokens(target: str, draft: str) -> None:
    """Refuse a draft with another tokenizer (GG0705); folders without one are not compared."""
    one, other = _tokenizer(target), _tokenizer(draft)
    if one is None or other is None or target == draft:
        return
    try:
        check_same_tokens(one, other, draft)
    except GraphgenError as error:
        error.help = "give a draft of the same model family, or prompt_lookup_num_tokens"
        raise


@lru_cache(maxsize=4)
def _tokenizer(path: str) -> Tokenizer | None:
    try:
        return load_tokenizer(locate(path, plain_names=True) or Path(path))
    except GraphgenError:
        return None


def decode_assisted(
    target: SpeculatingModel,
    speculator: SpeculativeLoop,
    prompts: PromptRows,
    choices: Sequence[Sampling],
    ends: EndRules,
    pad: torch.Tensor | None,
    adapter_ids: object = None,
) -> torch.Tensor:
    """Generate: integers [B,S+N], the prompts as they were given and the new tokens.

    Args:
        target: forgets earlier sequences first.
        speculator: of this call.
        prompts: the batch.
        choices: the sampling settings of each row.
        ends: the end of rows.
        pad: integer [], follows the end of sequence; ``None`` if no token ends a sequence.
        adapter_ids: of each row of the target, as ``forward`` takes them. Proposals are made
            without adapters.

    Raises:
        GraphgenError: GG0402 and GG0705 for adapters that do not fit the rows or are not there.
    """
    import torch

    target.note_async_mode()
    target.reset()
    target.use_adapters(adapter_ids, len(choices))
    lengths = cast("list[int]", prompts.lengths.tolist())
    right = cast("list[list[int]]", prompts.right.tolist())
    given = [row[:size] for row, size in zip(right, lengths, strict=True)]
    new = max(ends.length - prompts.left.shape[1], 1)
    request = GenerationRequest(new, ends.tokens, sampling=choices)
    done, _ = generate(target.running().session, given, request, decode=speculator.decode)
    width = max(len(answer.tokens) for answer in done)
    fill = 0 if pad is None else int(pad)
    rows = [[*answer.tokens, *[fill] * (width - len(answer.tokens))] for answer in done]
    made = torch.tensor(rows, dtype=prompts.left.dtype)
    return prompts.restored(torch.cat([prompts.left, made], dim=1))
