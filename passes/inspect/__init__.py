"""Explanations, histories, recordings, reports, slices, the normal form of a module.

A recorded pipeline (``recording.py``) is the input of most reports; ``catalog.py`` lists passes.
"""
