"""Proofs over programs for all sizes: equal data movement and integers, indices within bounds.

Read ``terms.py`` first. An element of a value at a symbolic index is a term; two values are equal
if their terms are. z3 decides equalities that the normal form of terms does not show, or leaves
them undecided.
"""
