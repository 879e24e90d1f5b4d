"""Verdicts, contradictions, evidence and measured times out of the results of a kit.

Read ``reading.py`` first.
"""
