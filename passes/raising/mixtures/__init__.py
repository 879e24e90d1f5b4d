"""Experts of programs traced elsewhere: axes followed through layouts, and what chooses them."""
