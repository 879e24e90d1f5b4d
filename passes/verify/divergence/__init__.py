"""Divergence: the first value in which two programs differ."""
