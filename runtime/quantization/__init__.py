"""Quantized checkpoints: how they are made, what they cost, and how they are written."""
