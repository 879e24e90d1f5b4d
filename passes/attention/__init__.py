"""Attention in tiles: blocks of tokens and of slots, one after the other, by an online softmax.

Read tile_attention.py first; tile_loop.py and unrolled_tiles.py have the two forms.
"""
