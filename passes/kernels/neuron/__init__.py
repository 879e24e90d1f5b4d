"""Kernels of Neuron: custom calls that its compiler documents, and kernels in NKI by artifact.

Read ``neuron_rules.py`` first: it is the table of all kernels in NKI.
"""
