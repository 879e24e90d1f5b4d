"""Comparison of runs: distance of arrays, relations between values, choices by margin.

Read ``deviation.py`` first, then ``choice_replay.py``.
"""
