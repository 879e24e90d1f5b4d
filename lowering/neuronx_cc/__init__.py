"""Compilation with ``neuronx-cc``: command lines, workers, layouts, failures explained.

Written for the published command line and tested with a stand-in for the compiler: nothing here
has run beside a device.
"""
