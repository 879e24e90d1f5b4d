"""Quantized checkpoints, and what schemes cost. Read rounding.py first."""
