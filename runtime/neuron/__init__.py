"""Models for Neuron devices: programs, compiled programs, and their folder."""
