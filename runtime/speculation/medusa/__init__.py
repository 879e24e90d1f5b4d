"""Heads of Medusa propose trees: a checkpoint with heads, trees of choices, the proposer."""
