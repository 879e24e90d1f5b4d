"""Quantized checkpoints by the chain of NxD Inference."""
