"""Layouts of weights that the compiler asks for. Start with ``find_layouts``."""
