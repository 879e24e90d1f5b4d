"""A stand-in for neuronx-cc: its published command line, files as NEFF, failures on request."""
