"""Raise cache updates: read :mod:`cache` first, then caches of all layers and selects by slot."""
