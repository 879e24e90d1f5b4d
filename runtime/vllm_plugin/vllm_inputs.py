"""The inputs of vLLM's sampler: states of requests, its batch of them, and proposals to verify."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from vllm.sampling_params import SamplingType
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from graphgen.errors import GraphgenError
from graphgen.runtime.session import Session


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
