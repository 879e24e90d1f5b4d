"""Kernels in C++, called by XLA as custom calls: sources, build, loader and calls.

Read :mod:`graphgen.lowering.cpu_kernels.kernel_calls` first.
"""
