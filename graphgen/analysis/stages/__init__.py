"""Programs cut between layers, and as chains of stages. Read layer_cuts.py first."""
