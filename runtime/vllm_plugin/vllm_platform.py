"""The platform that vLLM runs on: this CPU, through programs of graphgen."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from vllm.platforms.interface import (  # pyright: ignore[reportMissingImports]
    Platform,
    PlatformEnum,
)

from graphgen.runtime.aws_config.environment import COMPILED_ARTIFACTS
from graphgen.runtime.vllm_plugin.model_options import check_options, take_stages

_WORKER: Final = "graphgen.runtime.vllm_plugin.vllm_worker.GraphgenWorker"
# vLLM's variable for names of variables that actors of Ray get.
_HANDED: Final = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
# Tokens of a block, where no flag gives them.
_BLOCK: Final = 32


class GraphgenPlatform(Platform):
    """A platform out of vLLM's tree; all ranks of a model are in one worker."""

    _enum: Any = PlatformEnum.OOT
    device_name: str = "graphgen"
    device_type: str = "cpu"
    dispatch_key: str = "CPU"
    dist_backend: str = "gloo"
    device_control_env_var: str = "GRAPHGEN_VISIBLE_DEVICES"
    # Ray's name for what a worker takes one of; Ray counts no CPUs by number.
    ray_device_key: str = "neuron_cores"

    def is_cpu(self) -> bool:
        """Tensors of the sampler are on this CPU, and no accelerator of torch is there to clear."""
        return True

    @property
    def supported_dtypes(self) -> list[Any]:
        """The element types of models, the default first."""
        import torch

        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """The name in reports."""
        return cls.device_name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """Bytes of memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> None:
        """There is none."""

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """Memory of this CPU needs no pinning."""
        return False

    @classmethod
    def inference_mode(cls) -> Any:
        """The mode of torch while vLLM samples."""
        import torch

        return torch.no_grad()

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Requests have generators of their own."""

    @classmethod
    def supports_structured_output(cls) -> bool:
        """Grammars mask the logits on the host."""
        return True

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Set what follows from the executor: one worker, its class, the size of blocks.

        Raises:
            GraphgenError: GG0705 for what the executor has not.
        """
        # A configuration without a model is made by vLLM's own tools.
        if vllm_config.model_config is None:
            return
        check_options(vllm_config)
        take_stages(vllm_config)
        parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = _WORKER
        # The worker holds all ranks: its programs run on as many devices.
        parallel.distributed_executor_backend = _ray_executor() if parallel.use_ray else "uni"
        parallel.world_size = 1
        parallel.disable_custom_all_reduce = True
        vllm_config.scheduler_config.async_scheduling = False
        if not cache.user_specified_block_size:
            cache.block_size = _BLOCK
        _run_no_torch_compiler(vllm_config.compilation_config)
        if parallel.data_parallel_size > 1:
            _watch_replicas()

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        """Accept proposed tokens by vLLM's own code for CPUs, but for one function of it."""
        _register_kernels()

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """The size of blocks does not depend on a backend of attention."""

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """The caches are the worker's own."""


def _ray_executor() -> Any:
    """The class of an executor whose worker is an actor of Ray."""
    from graphgen.runtime.vllm_plugin.ray_executor import GraphgenRayExecutor

    # A process that is forked from one with a client of Ray waits for ever.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    # Of the others vLLM hands its own to actors.
    handed = os.environ.get(_HANDED, "").split(",")
    os.environ[_HANDED] = ",".join(sorted({*handed, COMPILED_ARTIFACTS} - {""}))
    return GraphgenRayExecutor


def _run_no_torch_compiler(compilation: Any) -> None:
    """The model is not a torch module: nothing of it goes through vLLM's compiler."""
    from vllm.config import (  # pyright: ignore[reportMissingImports]
        CompilationMode,
    )

    compilation.mode = CompilationMode.NONE
    compilation.cudagraph_capture_sizes = []


def _watch_replicas() -> None:
    """Watch the replicas of the server that this process makes."""
    from vllm.v1.engine import core_client  # pyright: ignore[reportMissingImports]

    from graphgen.runtime.vllm_plugin.replica_watch import watch_replicas

    assert core_client
    watch_replicas()


@cache
def _register_kernels() -> None:
    """Register once: a second model of a process has them already."""
    from vllm.platforms.cpu import CpuPlatform  # pyright: ignore[reportMissingImports]
    from vllm.triton_utils.dispatcher import (  # pyright: ignore[reportMissingImports]
        register_kernels,
    )

    CpuPlatform.import_kernels()
    CpuPlatform.register_triton_kernel_overrides()
    register_kernels({"vllm.v1.sample.rejection_sampler.expand_kernel": _expand})


def _expand(
    output: Any, values: Any, ends: Any, replace_from: float, replace_to: float, *sizes: int
) -> None:
    """Repeat the setting of each request for its proposals.

    vLLM 0.32's function for CPUs writes to a copy of ``output``, and temperatures are left random.

    Args:
        output: of one number per proposal; it is written.
        values: of one number per request.
        ends: of each request, its proposals and those of requests before it.
        replace_from: a number to replace.
        replace_to: the number instead.
        sizes: of a GPU's launch.
    """
    counts = ends.diff(prepend=ends.new_zeros(1))
    output.copy_(values.masked_fill(values == replace_from, replace_to).repeat_interleave(counts))
