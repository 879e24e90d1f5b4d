"""vLLM's worker over a model of graphgen: its caches are vLLM's blocks."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from typing import Any

import torch
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import is_artifact
from graphgen.runtime.engine import Engine, EngineOptions, locate_checkpoint, open_engine
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.progress import TerminalProgress
from graphgen.runtime.session.session import Session
from graphgen.runtime.vllm_plugin.draft_proposals import (
    DraftModelProposals,
    DraftProposals,
    NgramProposals,
)
from graphgen.runtime.vllm_plugin.model_options import (
    check_options,
    draft_options,
    model_options,
    weight_bytes,
)
from graphgen.runtime.vllm_plugin.replica_watch import watch_replicas
from graphgen.runtime.vllm_plugin.served_adapters import ServedAdapters
from graphgen.runtime.vllm_plugin.step_runner import StepRunner


class GraphgenWorker(WorkerBase):
    """Compiles and runs all ranks of a model in this process.

    The model is opened when the number of blocks is known, which its programs are compiled for.
    """

    _runner: StepRunner | None = None
    _adapters: ServedAdapters | None = None

    def init_device(self) -> None:
        """Nothing is to be set up before the model is known."""
        check_options(self.vllm_config)
        watch_replicas()
        # Requests without a seed draw from one generator.
        set_random_seed(self.model_config.seed, self.parallel_config.data_parallel_index)
        # Of the model and of its draft.
        self._sessions: list[Session] = []
        self.device: Any = torch.device("cpu")

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Find the checkpoint, so that a wrong path fails first."""
        checkpoint = locate_checkpoint(self.model_config.model)
        self._weights = weight_bytes(self.vllm_config, checkpoint)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """Keys and values of each layer in blocks, of all ranks together."""
        config = self.model_config
        layers = config.hf_text_config.num_hidden_layers
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=config.get_total_num_kv_heads(),
            head_size=config.get_head_size(),
            dtype=config.dtype,
        )
        return {f"model.layers.{number}.self_attn": spec for number in range(layers)}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """The order of vLLM's default; the caches never leave this worker."""
        return [next(iter(KVCacheLayout)).name]

    def determine_available_memory(self) -> int:
        """Bytes of the caches: as requested, or those of all sequences, as far as memory goes.

        Weights and caches take at most ``--gpu-memory-utilization`` of the memory.
        """
        cache = self.cache_config
        if cache.kv_cache_memory_bytes is not None:
            return int(cache.kv_cache_memory_bytes)
        columns = -(-self.model_config.max_model_len // cache.block_size)
        # Block 0 stands for none in vLLM's tables.
        blocks = self.scheduler_config.max_num_seqs * columns + 1
        needed = blocks * sum(spec.page_size_bytes for spec in self.get_kv_cache_spec().values())
        memory = self.current_platform.get_device_total_memory()
        return min(needed, int(cache.gpu_memory_utilization * memory) - self._weights)

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Open the model with as many blocks as the block manager gives out."""
        blocks = kv_cache_config.num_blocks
        engine = _opened(self.model_config.model, model_options(self.vllm_config, blocks))
        self._sessions.append(engine.session)
        if self.lora_config is not None:
            self._adapters = ServedAdapters(LoadedAdapters(engine.session, engine.model))
        proposals = self._proposals(blocks, engine.session.vocabulary)
        self._runner = StepRunner(self.vllm_config, engine.session, self._adapters, proposals)

    def compile_or_warm_up_model(self) -> Any:
        """Compile every program, so that no request waits for it."""
        start = time.perf_counter()
        for session in self._sessions:
            session.warm_up()
        return CompilationTimes(language_model=time.perf_counter() - start, encoder=0.0)

    def update_max_model_len(self, max_model_len: int) -> None:
        """Note that vLLM has shortened the longest sequence."""
        self.model_config.max_model_len = max_model_len

    def execute_model(self, scheduler_output: Any) -> Any:
        """Launch a step; ``None`` where :meth:`sample_tokens` has to follow."""
        assert self._runner is not None
        return self._runner.launch(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """The tokens of the step that was launched."""
        assert self._runner is not None
        return self._runner.sample(grammar_output)

    def execute_dummy_batch(self) -> None:
        """Replicas of other processes need no company: no collective crosses them."""

    def take_draft_token_ids(self) -> Any:
        """The tokens that the next step may verify; ``None`` for none."""
        assert self._runner is not None
        return self._runner.take_proposals()

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Answers to prompts."""
        return ("generate",)

    def synchronize_device(self) -> None:
        """Steps are read before they return."""

    def add_lora(self, lora_request: Any) -> bool:
        """Load an adapter; False for one that is loaded."""
        return self._served().add(lora_request)

    def remove_lora(self, lora_id: int) -> bool:
        """Unload an adapter by vLLM's number; False for an unknown one."""
        return self._served().remove(lora_id)

    def list_loras(self) -> set[int]:
        """vLLM's numbers of the loaded adapters."""
        return self._served().numbers

    def _proposals(self, blocks: int, vocabulary: int) -> DraftProposals | None:
        """The source of tokens to verify, as ``--speculative-config`` names it."""
        asked = self.speculative_config
        if asked is None:
            return None
        if asked.method == "ngram":
            return NgramProposals(self.vllm_config)
        options = draft_options(self.vllm_config, blocks)
        draft = _opened(asked.draft_model_config.model, options).session
        self._sessions.append(draft)
        return DraftModelProposals(draft, vocabulary, self.model_config.max_model_len)

    def _served(self) -> ServedAdapters:
        if self._adapters is None:
            raise GraphgenError(
                "GG0705", "the programs have no slots for adapters", help="give --enable-lora"
            )
        return self._adapters

    def reset_mm_cache(self) -> None:
        """All inputs are tokens."""

    def reset_encoder_cache(self) -> None:
        """The model is a decoder alone."""


def _opened(name: str, options: EngineOptions) -> Engine:
    """A model by path or name."""
    artifact, progress = options.artifact, TerminalProgress()
    was_there = artifact is None or is_artifact(artifact)
    try:
        engine, _ = open_engine(name, options, lambda _: [[0]], 1, progress)
    except GraphgenError:
        if was_there or artifact is None or not is_artifact(artifact):
            raise
        # Another replica has written the artifact in the meantime.
        engine, _ = open_engine(name, options, lambda _: [[0]], 1, progress)
    return engine
