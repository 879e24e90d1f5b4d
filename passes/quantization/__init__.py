"""Weights, activations and caches in narrow numbers: schemes, forms of stored checkpoints."""
