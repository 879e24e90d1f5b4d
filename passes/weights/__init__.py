"""Algebra of weights: values that derive from weights alone, their lift out of programs."""
