"""Accuracy checks of a model against a reference: tokens, logits, layers, captured inputs.

Read ``accuracy_check.py`` first: it runs the checks in order and names the step, the token and the
layer of the first error. ``step_model.py`` is the interface of both sides.
"""
