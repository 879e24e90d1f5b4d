"""Weight preparation: checkpoint tensors to per-rank device arrays. Read rank_weights.py first."""
