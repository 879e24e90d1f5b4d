"""vLLM's scheduler and server over programs of graphgen."""

from __future__ import annotations

from graphgen.runtime.vllm_plugin.vllm_distribution import name_build


def register() -> str:
    """The class of the platform: entry point of ``vllm.platform_plugins``."""
    name_build()
    return "graphgen.runtime.vllm_plugin.vllm_platform.GraphgenPlatform"
