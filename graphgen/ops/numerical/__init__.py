"""Ops of numerical libraries: linear systems, Fourier transforms, random bits, narrow numbers.

Each file stands alone: read :mod:`graphgen.ops.numerical.quantization` for quantized weights.
"""
