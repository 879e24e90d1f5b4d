"""Paired runs: two modules over the same calls."""
