"""One step of vLLM's scheduler: launch its rows, then choose tokens by vLLM's own sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from vllm.sampling_params import SamplingType
from vllm.v1.outputs import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    DraftTokenIds,
    LogprobsTensors,
    ModelRunnerOutput,
)
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.structured_output.utils import apply_grammar_bitmask, strip_speculative_padding
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from graphgen.errors import GraphgenError
from graphgen.runtime.session.row_results import Logits
from graphgen.runtime.session.session import Session
from graphgen.runtime.vllm_plugin.draft_proposals import DraftProposals, FinishedStep
from graphgen.runtime.vllm_plugin.scheduled_rows import (
    LogitsReader,
    ScheduledRow,
    check_session,
    launch_rows,
)
from graphgen.runtime.vllm_plugin.served_adapters import ServedAdapters

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


class PromptLogprobs:
    """The requests that ask for logprobs of their prompts, by id.

    Args:
        sampler: vLLM's, which ranks tokens.
        vocabulary: number of logits.
    """

    def __init__(self, sampler: Any, vocabulary: int) -> None:
        self._sampler: Final = sampler
        self._vocabulary: Final = vocabulary
        self._started: dict[str, Any] = {}

    def add(self, request: Any) -> None:
        """Note a request that starts, if it asks for them."""
        count = request.sampling_params.prompt_logprobs
        if count is not None:
            columns = 1 + (self._vocabulary if count < 0 else count)
            made = LogprobsTensors.empty_cpu(len(request.prompt_token_ids) - 1, columns)
            self._started[request.req_id] = made

    def forget(self, id: str) -> None:
        """Leave out a request that is finished."""
        self._started.pop(id, None)

    def reader(self, request: Any) -> LogitsReader | None:
        """Reads the logits of a request's tokens in a step; ``None`` where none is to be read."""
        tensors = self._started.get(request.req_id)
        if tensors is None:
            return None
        start, prompt = request.num_computed_tokens, request.prompt_token_ids

        def read(first: int, logits: Logits) -> None:
            begin = start + first
            following = prompt[begin + 1 : begin + 1 + len(logits)]
            if following:
                self._rank(tensors, begin, torch.from_numpy(logits[: len(following)]), following)

        return read

    def complete(self, ends: Mapping[str, int], requests: Mapping[str, Any]) -> dict[str, Any]:
        """Collected logprobs of the prompts that a step has processed to their end.

        Args:
            ends: by id, the number of tokens after the step.
            requests: states by id.
        """
        ended = [
            id
            for id in self._started.keys() & ends.keys()
            if ends[id] >= len(requests[id].prompt_token_ids)
        ]
        return {id: self._started.pop(id) for id in ended}

    def _rank(self, tensors: Any, begin: int, logits: torch.Tensor, following: list[int]) -> None:
        """Note the scores of the tokens that follow, and of the best ones."""
        sampler = self._sampler
        is_plain = sampler.logprobs_mode in ("raw_logits", "processed_logits")
        scores = logits if is_plain else sampler.compute_logprobs(logits)
        columns = tensors.logprobs.shape[1] - 1
        found = sampler.gather_logprobs(scores, columns, torch.tensor(following))
        where = slice(begin, begin + len(following))
        tensors.logprob_token_ids[where] = found.logprob_token_ids
        tensors.logprobs[where] = found.logprobs
        tensors.selected_token_ranks[where] = found.selected_token_ranks


# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


def request_of(new: Any) -> Any:
    """The state of a request that is scheduled for the first time (GG0705)."""
    sampling, generator = new.sampling_params, None
    if new.prompt_token_ids is None or sampling is None:
        raise GraphgenError("GG0705", f"request {new.req_id} has no tokens to go on from")
    if sampling.sampling_type == SamplingType.RANDOM_SEED:
        generator = torch.Generator()
        generator.manual_seed(sampling.seed)
    return CachedRequestState(
        req_id=new.req_id,
        prompt_token_ids=new.prompt_token_ids,
        mm_features=[],
        sampling_params=sampling,
        generator=generator,
        block_ids=new.block_ids,
        num_computed_tokens=new.num_computed_tokens,
        output_token_ids=[],
        lora_request=new.lora_request,
    )


def input_batch(config: Any, session: Session) -> Any:
    """vLLM's batch of requests, which knows the settings of its sampler."""
    assert session.blocks is not None
    device = torch.device("cpu")
    made = build_logitsprocs(
        config, device, False, False, config.model_config.logits_processors or ()
    )
    return InputBatch(
        max_num_reqs=config.scheduler_config.max_num_seqs,
        max_model_len=config.model_config.max_model_len,
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        device=device,
        vocab_size=session.vocabulary,
        block_sizes=[session.blocks.block],
        max_num_blocks_per_req=[int(np.shape(session.blocks.table)[1])],
        logitsprocs=made,
        logitsprocs_need_output_token_ids=bool(config.model_config.logits_processors),
        num_spec_tokens=config.num_speculative_tokens,
        reasoning_config=config.reasoning_config,
    )


def verification(drafts: Sequence[Sequence[int]]) -> Any:
    """The ``SpecDecodeMetadata`` of a step.

    Args:
        drafts: proposed tokens of each row; the logits of a row are those of the token before them
            and of each of them.
    """
    counts = np.asarray([len(tokens) for tokens in drafts], np.int32)
    ends = np.cumsum(counts + 1, dtype=np.int32)
    places = np.arange(ends[-1], dtype=np.int32)
    is_last = np.isin(places, ends - 1)
    return SpecDecodeMetadata(
        draft_token_ids=torch.tensor([token for row in drafts for token in row], dtype=torch.int32),
        num_draft_tokens=counts.tolist(),
        cu_num_draft_tokens=torch.from_numpy(np.cumsum(counts, dtype=np.int32)),
        cu_num_sampled_tokens=torch.from_numpy(ends),
        target_logits_indices=torch.from_numpy(places[~is_last]),
        bonus_logits_indices=torch.from_numpy(places[is_last]),
        logits_indices=torch.from_numpy(places),
    )


# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


@dataclass(frozen=True, slots=True)
class _Launched:
    """A step whose tokens are not chosen yet.

    Attributes:
        scheduled: the ``SchedulerOutput``.
        drafts: proposed tokens of each row, which the step has processed after its text.
        logits: f32 [n,V], of each row's last token and of its proposals, row after row.
    """

    scheduled: Any
    drafts: list[list[int]]
    logits: Logits


class StepRunner:
    """Runs the steps of vLLM's scheduler over one session.

    Settings of a request are found by its id, never by its place among others.

    Args:
        config: a ``VllmConfig``.
        session: with a paged cache, whose blocks the scheduler assigns.
        adapters: those that requests name; ``None`` for programs without.
        proposals: the source of tokens to verify; ``None`` for none.
    """

    def __init__(
        self,
        config: Any,
        session: Session,
        adapters: ServedAdapters | None,
        proposals: DraftProposals | None = None,
    ) -> None:
        check_session(session)
        self._session: Final = session
        self._adapters: Final = adapters
        self._proposals: Final = proposals
        self._requests: dict[str, Any] = {}
        self._batch: Final = input_batch(config, session)
        self._sampler: Final = Sampler(logprobs_mode=config.model_config.logprobs_mode)
        self._verifier: Final = RejectionSampler(self._sampler)
        self._prompts: Final = PromptLogprobs(self._sampler, session.vocabulary)
        self._launched: _Launched | None = None
        self._proposed: DraftTokenIds | None = None

    def launch(self, scheduled: Any) -> Any:
        """Process the tokens of a ``SchedulerOutput``.

        Returns:
            ``None`` where :meth:`sample` has to follow, else the empty output.
        """
        self._leave(scheduled)
        for source, target in scheduled.kv_cache_block_copies or ():
            self._session.copy_block(source, target)
            if self._proposals is not None:
                self._proposals.copy_block(source, target)
        self._enter(scheduled)
        self._batch.condense()
        self._batch.refresh_metadata()
        if not scheduled.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        ids = self._batch.req_ids
        if self._adapters is not None:
            self._adapters.use([self._requests[id].lora_request for id in ids])
        drafts = [list(tokens) for tokens in self._batch.spec_token_ids[: len(ids)]]
        rows = [
            self._row(id, scheduled.num_scheduled_tokens[id], proposed)
            for id, proposed in zip(ids, drafts, strict=True)
        ]
        self._launched = _Launched(scheduled, drafts, launch_rows(self._session, rows))
        return None

    def sample(self, grammar: Any) -> Any:
        """Choose the next tokens of every request whose text is processed to its end.

        Args:
            grammar: a ``GrammarOutput``: masks of requests with structured outputs; ``None`` for
                none.

        Returns:
            A ``ModelRunnerOutput``.
        """
        assert self._launched is not None, "a launch comes first"
        launched, self._launched = self._launched, None
        scheduled = launched.scheduled
        logits = torch.from_numpy(launched.logits)
        if grammar is not None:
            apply_grammar_bitmask(scheduled, grammar, self._batch, logits)
        counts = scheduled.num_scheduled_tokens
        ends = {
            id: self._requests[id].num_computed_tokens + counts[id] for id in self._batch.req_ids
        }
        partial = [
            place
            for place, (id, end) in enumerate(ends.items())
            if end < self._requests[id].num_tokens
        ]
        tokens, logprobs = self._chosen(logits, launched, partial)
        self._note(tokens)
        output = ModelRunnerOutput(
            req_ids=self._batch.req_ids.copy(),
            req_id_to_index=self._batch.req_id_to_index.copy(),
            sampled_token_ids=tokens,
            logprobs=logprobs,
            prompt_logprobs_dict=self._prompts.complete(ends, self._requests),
        )
        self._propose(scheduled, tokens)
        return output

    def take_proposals(self) -> Any:
        """The ``DraftTokenIds`` of the last step; ``None`` for none."""
        proposed, self._proposed = self._proposed, None
        return proposed

    def _chosen(
        self, logits: torch.Tensor, launched: _Launched, partial: list[int]
    ) -> tuple[list[list[int]], Any]:
        """The tokens of each row, and their logprobs.

        Args:
            logits: of the step, with the masks of grammars.
            launched: the step.
            partial: rows whose text goes on in the next step, which choose no token.
        """
        generators = self._batch.generators
        before = {n: generators[n].get_state() for n in partial if n in generators}
        metadata = self._batch.sampling_metadata
        if any(launched.drafts):
            made = self._verifier(verification(launched.drafts), None, logits, metadata)
            tokens, logprobs = RejectionSampler.parse_output(
                made.sampled_token_ids,
                self._session.vocabulary,
                partial,
                logprobs_tensors=made.logprobs_tensors,
            )
            # Tokens that the scheduler fills a row up with are not proposed.
            real = launched.scheduled.scheduled_spec_decode_tokens
            for row, id in zip(tokens, self._batch.req_ids, strict=True):
                del row[1 + len(strip_speculative_padding(real.get(id, []))) :]
        else:
            made = self._sampler(logits=logits, sampling_metadata=metadata)
            tokens = made.sampled_token_ids.tolist()
            logprobs = None if made.logprobs_tensors is None else made.logprobs_tensors.tolists()
            for place in partial:
                tokens[place] = []
        for place, state in before.items():
            # No token was drawn for it: its text goes on in the next step.
            generators[place].set_state(state)
        return tokens, logprobs

    def _propose(self, scheduled: Any, tokens: list[list[int]]) -> None:
        """Note the tokens that the next step may verify."""
        if self._proposals is None:
            return
        counts, most = scheduled.num_scheduled_tokens, scheduled.num_spec_tokens_to_schedule
        step = FinishedStep(self._batch, self._requests, counts, tokens, most)
        self._proposed = DraftTokenIds(self._batch.req_ids.copy(), self._proposals.after(step))

    def _leave(self, scheduled: Any) -> None:
        """Drop finished requests, and remove requests outside of this step from the batch."""
        for id in scheduled.finished_req_ids:
            self._requests.pop(id, None)
            self._prompts.forget(id)
            self._batch.remove_request(id)
        resumed = scheduled.scheduled_cached_reqs.resumed_req_ids
        staying = scheduled.num_scheduled_tokens.keys() - resumed
        for id in self._batch.req_id_to_index.keys() - staying:
            self._batch.remove_request(id)

    def _enter(self, scheduled: Any) -> None:
        """Put new requests into the batch, and note the progress of the others."""
        for new in scheduled.scheduled_new_reqs:
            self._requests[new.req_id] = request_of(new)
            self._prompts.add(self._requests[new.req_id])
            self._batch.add_request(self._requests[new.req_id])
        known = scheduled.scheduled_cached_reqs
        for place, id in enumerate(known.req_ids):
            request, blocks = self._requests[id], known.new_block_ids[place]
            request.num_computed_tokens = known.num_computed_tokens[place]
            if id in known.resumed_req_ids:
                request.block_ids = blocks
            elif blocks is not None:
                for held, more in zip(request.block_ids, blocks, strict=True):
                    held.extend(more)
            if id not in self._batch.req_id_to_index:
                self._batch.add_request(request)
        # Where the scheduler fills up a row, any token will do: it is left out afterwards.
        drafts = {
            id: [max(token, 0) for token in tokens]
            for id, tokens in scheduled.scheduled_spec_decode_tokens.items()
        }
        for id in self._batch.req_id_to_index:
            self._batch.update_req_spec_token_ids(self._requests[id], drafts)

    def _row(self, id: str, count: int, drafts: list[int]) -> ScheduledRow:
        """The next tokens of a request, the last of which are proposed."""
        request = self._requests[id]
        start = request.num_computed_tokens
        end = start + count - len(drafts)
        tokens = [*map(request.get_token_id, range(start, end)), *drafts]
        reader = self._prompts.reader(request)
        return ScheduledRow(request.block_ids[0], start, tokens, 1 + len(drafts), reader)

    def _note(self, tokens: list[list[int]]) -> None:
        """Append what was chosen to the requests, as the next step and penalties read it."""
        batch = self._batch
        for place, (id, chosen) in enumerate(zip(batch.req_ids, tokens, strict=True)):
            begin = int(batch.num_tokens_no_spec[place])
            batch.token_ids_cpu[place, begin : begin + len(chosen)] = chosen
            batch.is_token_ids[place, begin : begin + len(chosen)] = True
            batch.num_tokens_no_spec[place] = begin + len(chosen)
            self._requests[id].output_token_ids.extend(chosen)
