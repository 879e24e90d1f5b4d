"""Comparison of two programs: pairing of interfaces, deviation, divergence, recorded choices."""
