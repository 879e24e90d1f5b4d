"""Kernels in C++ behind XLA's custom calls: their sources, how they are built, loaded and called.

Read :mod:`graphgen.lowering.cpu.kernels.kernel_calls` first.
"""
