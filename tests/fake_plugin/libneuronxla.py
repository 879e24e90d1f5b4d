"""The module of the hook that the plugin calls; its compiler is none."""

from __future__ import annotations


def neuronx_cc(code: bytes, code_format: bytes, version: bytes, prefix: bytes) -> tuple[int, bytes]:
    """Fail, as nothing may be compiled while a folder is loaded."""
    del code, code_format, version, prefix
    return 400, b""
