"""Caches of layers with a sliding window: :mod:`graphgen.passes.window.roll_window_cache` first."""
