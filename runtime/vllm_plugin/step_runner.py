"""One step of vLLM's scheduler: launch its rows, then choose tokens by vLLM's own sampler."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from vllm.sampling_params import SamplingType
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.sampler import Sampler
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from graphgen.errors import GraphgenError
from graphgen.runtime.launching.row_results import Logits
from graphgen.runtime.session import Session
from graphgen.runtime.vllm_plugin.scheduled_rows import ScheduledRow, check_session, launch_rows
from graphgen.runtime.vllm_plugin.served_adapters import ServedAdapters


class StepRunner:
    """Runs the steps of vLLM's scheduler over one session.

    Settings of a request are found by its id, never by its place among others.

    Args:
        config: a ``VllmConfig``.
        session: with a paged cache, whose blocks the scheduler assigns.
        adapters: those that requests name; ``None`` for programs without.
    """

    def __init__(self, config: Any, session: Session, adapters: ServedAdapters | None) -> None:
        check_session(session)
        self._session: Final = session
        self._adapters: Final = adapters
        self._requests: dict[str, Any] = {}
        self._batch: Final = _input_batch(config, session)
        self._sampler: Final = Sampler(logprobs_mode=config.model_config.logprobs_mode)
        self._launched: tuple[Any, Logits] | None = None

    def launch(self, scheduled: Any) -> Any:
        """Process the tokens of a ``SchedulerOutput``.

        Returns:
            ``None`` where :meth:`sample` has to follow, else the empty output.
        """
        self._leave(scheduled)
        for source, target in scheduled.kv_cache_block_copies or ():
            self._session.copy_block(source, target)
        self._enter(scheduled)
        self._batch.condense()
        self._batch.refresh_metadata()
        if not scheduled.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        ids = self._batch.req_ids
        if self._adapters is not None:
            self._adapters.use([self._requests[id].lora_request for id in ids])
        rows = [self._row(id, scheduled.num_scheduled_tokens[id]) for id in ids]
        self._launched = scheduled, launch_rows(self._session, rows)
        return None

    def sample(self, grammar: Any) -> Any:
        """Choose the next token of every request whose text is processed to its end.

        Args:
            grammar: a ``GrammarOutput``: masks of requests with structured outputs; ``None`` for
                none.

        Returns:
            A ``ModelRunnerOutput``.
        """
        assert self._launched is not None, "a launch comes first"
        (scheduled, rows), self._launched = self._launched, None
        logits = torch.from_numpy(rows)
        if grammar is not None:
            apply_grammar_bitmask(scheduled, grammar, self._batch, logits)
        counts = scheduled.num_scheduled_tokens
        partial = [
            place
            for place, id in enumerate(self._batch.req_ids)
            if self._requests[id].num_computed_tokens + counts[id] < self._requests[id].num_tokens
        ]
        generators = self._batch.generators
        before = {n: generators[n].get_state() for n in partial if n in generators}
        chosen = self._sampler(logits=logits, sampling_metadata=self._batch.sampling_metadata)
        for place, state in before.items():
            # No token was drawn for it: its text goes on in the next step.
            generators[place].set_state(state)
        tokens = chosen.sampled_token_ids.tolist()
        for place in partial:
            tokens[place] = []
        self._note(tokens)
        return ModelRunnerOutput(
            req_ids=self._batch.req_ids.copy(),
            req_id_to_index=self._batch.req_id_to_index.copy(),
            sampled_token_ids=tokens,
            logprobs=None if chosen.logprobs_tensors is None else chosen.logprobs_tensors.tolists(),
        )

    def _leave(self, scheduled: Any) -> None:
        """Forget requests that are finished, and take out those that are not in this step."""
        for id in scheduled.finished_req_ids:
            self._requests.pop(id, None)
            self._batch.remove_request(id)
        resumed = scheduled.scheduled_cached_reqs.resumed_req_ids
        staying = scheduled.num_scheduled_tokens.keys() - resumed
        for id in self._batch.req_id_to_index.keys() - staying:
            self._batch.remove_request(id)

    def _enter(self, scheduled: Any) -> None:
        """Put new requests into the batch, and note the progress of the others."""
        for new in scheduled.scheduled_new_reqs:
            self._requests[new.req_id] = _request_of(new)
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

    def _row(self, id: str, count: int) -> ScheduledRow:
        """The next tokens of a request."""
        request = self._requests[id]
        start = request.num_computed_tokens
        tokens = [request.get_token_id(place) for place in range(start, start + count)]
        return ScheduledRow(request.block_ids[0], start, tokens)

    def _note(self, tokens: list[list[int]]) -> None:
        """Append what was chosen to the requests, as the next step and penalties read it."""
        batch = self._batch
        for place, (id, chosen) in enumerate(zip(batch.req_ids, tokens, strict=True)):
            begin = int(batch.num_tokens_no_spec[place])
            batch.token_ids_cpu[place, begin : begin + len(chosen)] = chosen
            batch.is_token_ids[place, begin : begin + len(chosen)] = True
            batch.num_tokens_no_spec[place] = begin + len(chosen)
            self._requests[id].output_token_ids.extend(chosen)


def _request_of(new: Any) -> Any:
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


def _input_batch(config: Any, session: Session) -> Any:
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
    )
