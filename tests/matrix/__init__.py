"""The matrix: every combination of what a compilation can be given, as one table of axes.

Read ``axes.py`` first (the table, and its holes), then ``covering.py`` (which cells hold every
value, pair or triple) and ``cells.py`` (one cell: a model compiled and compared). ``python -m
tests.matrix`` runs the cells of all triples.
"""
