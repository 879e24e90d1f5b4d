"""Tokenizers of folders and GGUF files, and chat templates."""
