"""Ops of numerical libraries: linear systems, Fourier transforms, random and narrow numbers.

Each file stands alone: read :mod:`graphgen.ops.numerical.quantization` for quantized weights.
"""
