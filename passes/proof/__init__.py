"""Proofs over programs for all sizes: equal data movement and integers, indices within bounds.

An element of a value at a symbolic index is a term; two values are equal if their terms are. Where
the normal forms of terms differ, z3 decides or leaves the pair undecided.
"""
