"""Kernels of a target in the place of the ops that they compute: ``cpu_*``, ``neuron_*``."""
