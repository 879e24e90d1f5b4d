"""Tokens, logits and layers beside a reference; perplexity; captured inputs.

``accuracy_check.py`` runs the checks in order and names the step, the token and the layer of the
first error. ``step_model.py`` is the interface of both sides.
"""
