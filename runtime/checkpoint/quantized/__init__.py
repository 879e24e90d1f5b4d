"""Checkpoints whose weights are quantized, read as they are."""
