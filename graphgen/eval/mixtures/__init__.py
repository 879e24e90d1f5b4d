"""NumPy rule of mixtures of experts."""
