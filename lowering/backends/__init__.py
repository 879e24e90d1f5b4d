"""Compilers by name: NumPy, XLA with and without legalization, IREE, PJRT plugins; triage."""
