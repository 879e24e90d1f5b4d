"""Kernels in C++, called by XLA as custom calls: sources, build, loader and calls."""
