"""Validation of real models a layer at a time, with weights that are streamed.

``layer_segments.py`` cuts a module, ``streamed_run.py`` evaluates the parts.
"""
