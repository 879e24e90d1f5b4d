"""Kits that people with a Neuron device run, and what their results say about the rules.

Read ``build_kit.py`` first: it collects the cases. ``kit_archive.py`` writes them, ``runner/`` is
what a kit carries to run itself, and ``findings/`` reads results.
"""
