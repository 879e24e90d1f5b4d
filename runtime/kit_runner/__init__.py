"""Runner of a device kit where a Neuron SDK is; the standard library alone, Python 3.9 or later.

These files are copied into every kit; ``run_kit.py`` is run there.
"""
