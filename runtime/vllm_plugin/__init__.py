"""vLLM's scheduler and server over programs of graphgen. Read step_runner.py first."""

from __future__ import annotations


def register() -> str:
    """The class of the platform: entry point of ``vllm.platform_plugins``."""
    return "graphgen.runtime.vllm_plugin.vllm_platform.GraphgenPlatform"
