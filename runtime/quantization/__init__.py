"""Quantized checkpoints, and the loss of each scheme. Read rounding.py first."""
