"""Speculative decoding: proposers, the loops of line, tree and fused, EAGLE, Medusa, acceptance."""
