"""Families with Llama's decoder and its variants, one file each. Read llama.py first."""
