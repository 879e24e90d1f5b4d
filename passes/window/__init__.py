"""Caches of layers with a sliding window. Read roll_window_cache.py first."""
