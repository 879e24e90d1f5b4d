"""Kernels of a target in the place of the ops that they compute.

Read :mod:`graphgen.passes.kernels.select_kernels` first.
"""
