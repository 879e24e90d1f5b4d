"""NumPy rules of the ops of numerical libraries. Each file stands alone: read any one first."""

from graphgen.eval.numerical import (
    rules_acceptance,
    rules_fourier,
    rules_linear_systems,
    rules_random,
)

MODULES = (rules_linear_systems, rules_fourier, rules_random, rules_acceptance)
