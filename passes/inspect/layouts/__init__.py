"""Layouts of values over the ranks: what a module states, and what follows from it."""
