"""Engines of several Python environments on one model, by turns: what ``compare.py`` is made of."""
