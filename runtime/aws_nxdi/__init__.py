"""Applications: compile, load and run a model under AWS's interface. Read causal_lm.py first."""
