"""Checkpoints on disk: safetensors, PyTorch and GGUF files. Read open_checkpoint.py first."""
