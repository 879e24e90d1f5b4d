"""Tokenizers of folders and GGUF files, and chat templates."""

from __future__ import annotations

from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
