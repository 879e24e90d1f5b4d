"""Quantization of activation rows: static scales and scales per block.

:mod:`graphgen.passes.quantize.quantize_activations` is the pass that uses both.
"""
