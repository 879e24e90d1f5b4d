"""Reduction of failing modules; read ``minify.py`` first."""
