"""Compiling programs with ``neuronx-cc``: command lines, workers, failures and the cache.

Written for the published command line and tested with a stand-in for the compiler: nothing here
has run beside a device. Start with ``driver``.
"""
