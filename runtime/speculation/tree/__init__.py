"""Speculation with trees of proposals: several tokens at each place. Read tree_speculator.py."""
