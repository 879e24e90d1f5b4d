"""Weight programs as copies: checkpoint tensors to arrays of ranks, pre-sharded files, checks."""
