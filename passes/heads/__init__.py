"""Attention heads over ranks: which rank holds which heads, and the pass that arranges them so."""
