"""Layouts of values over the ranks: stated by a module, or derived by propagation."""
