"""Weights in 8 bits: read :mod:`graphgen.passes.quantization.quantize_weights` first."""
