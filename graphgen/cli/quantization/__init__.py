"""Commands about narrow weights: what they cost, and checkpoints of them."""
