"""Kits of test programs for people with a Neuron device, and readers of their results.

Read ``build_kit.py`` first: it collects the cases. ``kit_archive.py`` writes them, ``runner/`` is
what a kit carries to run itself, and ``findings/`` reads results.
"""
