"""Removing what is not needed."""
