"""Inspection of passes: traces, histories, explanations and normalized texts.

Read ``recording.py`` first: a recorded pipeline is the input of most reports; ``catalog.py`` lists
the passes there are.
"""
