"""Runs a device kit where a Neuron SDK is; the standard library alone, Python 3.9 or later.

These files are copied into every kit. Start with ``run_kit.py``.
"""
