"""NumPy rules of the ops of numerical libraries."""

from graphgen.eval.numerical import rules_fourier, rules_linear_systems, rules_random

MODULES = (rules_linear_systems, rules_fourier, rules_random)
