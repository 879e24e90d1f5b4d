"""Profiles of Neuron devices as neuron-profile and Neuron Explorer write them as JSON."""
