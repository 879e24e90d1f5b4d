"""Collectives over links: the bytes at each level of a machine, and their time."""
