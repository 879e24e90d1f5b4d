"""Weights in 8 bits: read :mod:`graphgen.passes.quantize.quantize_weights` first."""
