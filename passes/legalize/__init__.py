"""Forms that a target takes or runs fast: common ones, ``cpu_*`` and ``neuron_*``."""
