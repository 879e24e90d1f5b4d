"""Validation of a model by its name: its twins, the calls and the numbers they are compared over.

Read :mod:`validate_model` first.
"""
