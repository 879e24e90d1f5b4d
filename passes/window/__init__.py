"""Caches of layers that read a window of the last positions."""
