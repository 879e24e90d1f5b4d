"""Runtime: load a checkpoint, compile its programs, generate tokens.

``engine.py`` opens a model and generates.
"""
