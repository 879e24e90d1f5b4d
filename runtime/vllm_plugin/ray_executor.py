"""An executor of vLLM whose worker is an actor of Ray, on clusters of CPUs too."""

# vLLM and Ray are installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false

from __future__ import annotations

import os
from typing import Any

import ray
from vllm.v1.executor.ray_executor_v2 import RayExecutorV2

from graphgen.errors import GraphgenError
from graphgen.runtime.vllm_plugin.replica_watch import watch_replicas
from graphgen.runtime.vllm_plugin.vllm_platform import GraphgenPlatform


class GraphgenRayExecutor(RayExecutorV2):
    """One actor of Ray that holds all ranks of the model."""

    def _init_executor(self) -> None:
        watch_replicas()
        _join(self.parallel_config.ray_runtime_env)
        super()._init_executor()

    def _get_parallel_sizes(self) -> tuple[int, int, int]:
        """Note the world's size; the worker is one, whatever its programs run on."""
        super()._get_parallel_sizes()
        return 1, 1, 1

    def _get_output_rank(self) -> int:
        return 0


def _join(runtime_env: Any) -> None:
    """Connect to the cluster; where there is none, begin one on this machine.

    Args:
        runtime_env: the environment of Ray's processes; ``None`` for this process's.

    Raises:
        GraphgenError: GG0705 for a cluster without NeuronCores: vLLM would wait for half an hour.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    wanted = GraphgenPlatform.ray_device_key
    if not ray.is_initialized():
        try:
            ray.init("auto", runtime_env=runtime_env)
        except ConnectionError:
            ray.init(resources={wanted: 1}, runtime_env=runtime_env)
    if ray.cluster_resources().get(wanted, 0) < 1:
        raise GraphgenError(
            "GG0705",
            f"the cluster of Ray has no {wanted}, and the worker of a model takes one",
            help=f"on a machine without NeuronCores: ray start --resources='{{\"{wanted}\": 1}}'",
        )
