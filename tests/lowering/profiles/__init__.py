"""Dumps of XLA."""
