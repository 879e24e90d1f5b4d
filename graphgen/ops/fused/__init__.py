"""Ops that are several composites at once, for kernels. Read rms_norm_quantize.py first."""
