"""Rows that narrow weights are multiplied by: scales found beforehand, and those of blocks.

:mod:`graphgen.passes.quantize.quantize_activations` is the pass that uses both.
"""
