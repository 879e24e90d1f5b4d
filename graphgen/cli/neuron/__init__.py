"""Commands for Neuron compilers and devices. Read ``lower_cmd`` first."""
